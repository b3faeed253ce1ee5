"""In which order messages are folded, and when sums are due: the part that must look at messages one by one.

A tick holds messages in stream order. Blocks that may be folded together form a round: at most one of each node,
all of the same number of samples, with no global model and no due sum between them. Sums of the nodes are due when
the partition's event second moves on, before the message that moves it; so they depend on the order in the stream
and on nothing else.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from processors.decode import Block
from schemas.estimate import Model

_FAR_SECONDS = 60
_AGREEING = 3

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Watermark:
    """Event second of a partition.

    One node with a wrong clock must not move it: a block more than a minute away counts only once it is the third
    such block in a row, which cannot happen while other nodes report.
    """

    second: int = 0
    far: int = 0

    def seen(self, second: int) -> "Watermark":
        """Return the watermark after a block of an event second."""
        if self.second and abs(second - self.second) > _FAR_SECONDS:
            return Watermark(second) if self.far + 1 >= _AGREEING else replace(self, far=self.far + 1)
        return Watermark(max(self.second, second)) if self.far or second > self.second else self


@dataclass(frozen=True, slots=True)
class Fold(Generic[Key]):
    """Fold these blocks together."""

    blocks: list[tuple[Key, Block]]


@dataclass(frozen=True, slots=True)
class Sum:
    """Sum the nodes for this event second, which has ended."""

    second: int


@dataclass(frozen=True, slots=True)
class Adopt:
    """From here on, this is the global model."""

    model: Model


Step = Fold[Key] | Sum | Adopt


def steps(
    items: Iterable[Block | Model], watermark: Watermark, admit: Callable[[Block], Key | None]
) -> Iterator[tuple[Step[Key], Watermark]]:
    """Yield what to do, in order, each with the watermark that holds after it.

    Args:
        items: Believed messages in stream order.
        watermark: The partition's, before them.
        admit: Gives the node's key, or None for a block that was folded already; asked once per block, in order.
    """
    pending: list[tuple[Key, Block]] = []
    taken: set[Key] = set()
    for item in items:
        if isinstance(item, Model):
            if pending:
                yield Fold(pending), watermark
                pending, taken = [], set()
            yield Adopt(item), watermark
            continue
        key = admit(item)
        if key is None:
            continue
        after = watermark.seen(item.message.at_us // 1_000_000)
        due = watermark.second and after.second != watermark.second
        if pending and (due or key in taken or len(pending[0][1].values) != len(item.values)):
            yield Fold(pending), watermark
            pending, taken = [], set()
        if due:
            yield Sum(watermark.second), after
        watermark = after
        pending.append((key, item))
        taken.add(key)
    if pending:
        yield Fold(pending), watermark
