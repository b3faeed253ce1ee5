"""Targets that are made of several readers: the first byte of an input says which one reads the rest."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from tests.fuzz.session import Run

Readers = Mapping[str, Callable[[bytes], object]]


def seeds(readers: Readers, good: Mapping[str, Sequence[bytes]]) -> list[bytes]:
    """Return good inputs, each behind the byte of its reader."""
    assert good.keys() <= readers.keys()
    names = list(readers)
    return [bytes([names.index(name)]) + data for name, every in good.items() for data in every]


def opened(readers: Readers) -> Callable[[], AbstractContextManager[Run]]:
    """Return what `Target.opened` needs."""
    every = list(readers.values())

    def once(data: bytes) -> None:
        if data:
            every[data[0] % len(every)](data[1:])

    return lambda: nullcontext(once)
