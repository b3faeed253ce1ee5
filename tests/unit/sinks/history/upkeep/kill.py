"""Messages into a history, and a kill at a step of its upkeep."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas import codec
from schemas.messages.estimate import Availability
from sinks.history import layout, view
from sinks.history.writer import Writer
from tests.support.history import append
from tests.support.processors import estimate
from tests.support.processors.telemetry import NAMES, START, block, stored

CREATED = "20261121T063000123456Z"
LATER_US = (START + 5 * 3600) * 1_000_000


class Killed(BaseException):
    """The process is gone: nothing that it still tries has an effect."""


def break_after(patch: pytest.MonkeyPatch, calls: int, error: BaseException) -> None:
    """Let the call after so many fail; if the error is a kill, all later ones too."""
    made = 0

    def wrap(real: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object, **named: object) -> object:
            nonlocal made
            made += 1
            if made == calls + 1 or (made > calls and isinstance(error, Killed)):
                raise error
            return real(*arguments, **named)

        return wrapped

    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
        patch.setattr(owner, name, wrap(getattr(owner, name)))


def flush_but_the_cursor(target: Writer) -> None:
    """Flush while the disk is full when the cursor is written: the files are there, and not committed."""

    def full(*_: object) -> None:
        raise OSError("full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "write_cursor", full)
        with pytest.raises(OSError, match="full"):
            target.flush()


def put(target: Writer, sequences: range) -> None:
    """Append a block for each odd sequence and an availability for each even one."""
    for sequence in sequences:
        if sequence % 2:
            subject, payload = stored(block("n", sequence, seq=sequence))
        else:
            subject, payload = NAMES.node("availability", "n"), codec.encode(availability(sequence))
        append(target, subject, sequence, payload)


def availability(sequence: int) -> Availability:
    return estimate.availability(at_us=(START + sequence) * 1_000_000, seq=sequence)


def writer(directory: Path, first: int = 1) -> Writer:
    if view.version(directory) is None:
        view.create(directory)
    return Writer(directory, "S", CREATED, first)


def exactly(directory: Path, sequences: list[int]) -> bool:
    with view.connect(directory, restricted=True) as connection:
        samples = connection.execute("SELECT seq, count(*) FROM samples GROUP BY 1 ORDER BY 1").fetchall()
        available = connection.execute("SELECT seq, count(*) FROM availability GROUP BY 1 ORDER BY 1").fetchall()
    return samples == [(s, 10) for s in sequences if s % 2] and available == [(s, 1) for s in sequences if not s % 2]
