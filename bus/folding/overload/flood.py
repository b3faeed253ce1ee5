"""Which nodes send far more than an agent has to say, so that this is left out before anything of other nodes.

Each node has a credit of blocks, and one of container events: what an agent sends at once after an outage, and then
several times as many a second as agents send. It is counted in the server's time, so that messages that waited long are
no flood.
"""

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from bus.reading.progress import Received
from schemas.channel import EDGE
from schemas.subject import kind_and_node


class Credit(NamedTuple):
    """How many messages a node may send at once, and how many a second."""

    at_once: float
    per_second: float


BLOCKS = Credit(2_400.0, 20.0)  # an agent keeps 600 blocks of each of its kinds while the server is away
EVENTS = Credit(10_000.0, 200.0)  # an agent keeps so many events then; a second has the four events of 50 containers
_OF_EDGE = f".{EDGE}."
_SELDOM = (b'"size"', b'"moment"')  # fields of an edge agent's block that come with the first one and then now and then
_NODES = 4096  # whose messages are counted; a new one begins with a whole credit


class Floods:
    """The credit of each node whose messages a task reads.

    Attributes:
        kinds: Kinds of which messages count.
    """

    def __init__(
        self, kinds: Collection[str], credit: Credit = BLOCKS, left: Iterable[tuple[str, tuple[float, int]]] = ()
    ) -> None:
        """Start with a whole credit for each node, or with what was left of it at a time in microseconds."""
        self.kinds, self._credit, self._left = kinds, credit, OrderedDict(left)

    def copy(self) -> "Floods":
        """Return the same credits, to be spent apart from these."""
        return Floods(self.kinds, self._credit, self._left.items())

    def beyond(self, messages: Sequence[Received]) -> set[str]:
        """Count messages that were read; return the nodes of which more came than their credit."""
        if not messages:
            return set()
        sent: Counter[str] = Counter()
        for subject, count in Counter(message.subject for message in messages).items():
            kind, node = kind_and_node(subject)
            if kind in self.kinds:
                sent[node] += count
        first_us, last_us = messages[0].stored_us, messages[-1].stored_us
        return {node for node, count in sent.items() if self._spend(node, count, first_us, last_us)}

    def _spend(self, node: str, count: int, first_us: int, last_us: int) -> bool:
        at_once, per_second = self._credit
        left, at_us = self._left.pop(node, (at_once, first_us))
        left += max(0, last_us - at_us) / 1e6 * per_second - count
        self._left[node] = min(at_once, max(0.0, left)), max(last_us, at_us)
        if len(self._left) > _NODES:
            self._left.popitem(last=False)
        return left < 0


def newest(messages: Sequence[Received]) -> set[int]:
    """Return the indexes of the newest message of each subject; the last of all is one of them.

    A block of an edge agent says only what has changed. So its newest one with the node's size and time stays, too, and
    the newest one with its model.
    """
    stays: dict[tuple[str, bytes], int] = {}
    for index, message in enumerate(messages):
        stays[message.subject, b""] = index
        if _OF_EDGE in message.subject:
            stays |= {(message.subject, field): index for field in _SELDOM if field in message.data}
    return set(stays.values())


def without(
    messages: Sequence[Received], nodes: Collection[str], kinds: Collection[str]
) -> tuple[list[Received], set[str]]:
    """Leave out what nodes have flooded a task with; the newest message of each subject stays.

    Args:
        messages: In stream order.
        nodes: Nodes that flood.
        kinds: Kinds that the nodes flood with.

    Returns:
        What stays, and the nodes of which something was left out.
    """
    stays, kept, flooded = newest(messages), list[Received](), set[str]()
    for index, message in enumerate(messages):
        kind, node = kind_and_node(message.subject)
        if node in nodes and kind in kinds and index not in stays:
            flooded.add(node)
        else:
            kept.append(message)
    return kept, flooded
