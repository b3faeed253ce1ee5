"""What agents have published: where every account of the bus begins.

An agent numbers its blocks by the second, `seq` of `CLOCK_BOOTTIME`, and publishes one of each kind for each. So the
first and the last block that a stream has of a node and kind say how many there should be between them, and the stream
says how many there are. What lacks was never stored: the agent did not run, or it dropped blocks while the server was
away. No other account sees that. The last block is read before the stream is asked for its counts, so a block that
arrives meanwhile can hide one that lacks, and none that is there is called missing.
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import nats.errors
from nats.aio.client import Client

from bus import api
from schemas.subject import Names, kind_and_node

KINDS = ("samples", "smoothed", "edge", "pods")  # of which an agent publishes a block for each second
MOST = 2000  # nodes and kinds that are looked at
_AT_ONCE = 32


class Source(NamedTuple):
    """Blocks of one kind of one node, as far as the stream has them.

    Attributes:
        node: Name of the node, as a token.
        kind: Kind of the blocks.
        stored: Blocks that the stream has.
        due: Blocks that it should have, one for each second from the first to the last; None: the node has started
            again between them.
    """

    node: str
    kind: str
    stored: int
    due: int | None

    @property
    def missing(self) -> int:
        """Blocks that were never stored."""
        return 0 if self.due is None else max(0, self.due - self.stored)


class Sources(NamedTuple):
    """What agents have published.

    Attributes:
        looked_at: By node and kind.
        nodes: Number of nodes that the stream has, also beyond `MOST`.
    """

    looked_at: Sequence[Source]
    nodes: int


async def read(client: Client, names: Names, timeout_seconds: float) -> Sources:
    """Return what agents have published, as far as the stream of telemetry has it.

    Args:
        client: Connection.
        names: Names on the bus.
        timeout_seconds: Time limit for each request.

    Raises:
        nats.errors.Error: The server does not answer, or there is no such stream; also TimeoutError.
    """
    counts = await _counts(client, names, timeout_seconds)
    subjects = sorted(counts, key=lambda subject: kind_and_node(subject)[::-1])
    free = asyncio.Semaphore(_AT_ONCE)

    async def block(subject: str, first: int | None) -> tuple[str, int] | None:
        async with free:
            return await _block(client, names.telemetry, subject, first, timeout_seconds)

    chosen = subjects[:MOST]
    last = await asyncio.gather(*(block(subject, None) for subject in chosen))
    counts = await _counts(client, names, timeout_seconds)
    first = await asyncio.gather(*(block(subject, 1) for subject in chosen))
    looked_at = []
    for subject, begin, end in zip(chosen, first, last, strict=True):
        kind, node = kind_and_node(subject)
        looked_at.append(Source(node, kind, counts.get(subject, 0), _seconds(begin, end)))
    return Sources(looked_at, len({kind_and_node(subject)[1] for subject in subjects}))


async def _counts(client: Client, names: Names, timeout_seconds: float) -> dict[str, int]:
    """Return the number of blocks that the stream has, by subject."""
    counts: dict[str, int] = {}
    for kind in KINDS:
        seen, total = 0, 1
        while seen < total:
            asked = {"subjects_filter": names.part("*", kind, "*"), "offset": seen}
            answer = await api.request(client, f"STREAM.INFO.{names.telemetry}", asked, timeout_seconds)
            page: Mapping[str, int] = answer["state"].get("subjects") or {}
            counts |= page
            seen, total = seen + len(page), int(answer.get("total", 0)) if page else 0
    return counts


async def _block(
    client: Client, stream: str, subject: str, first: int | None, timeout_seconds: float
) -> tuple[str, int] | None:
    """Return boot and second of a subject's last block, or of its next one from a sequence on; None: there is none."""
    js = client.jetstream(timeout=timeout_seconds)
    with contextlib.suppress(nats.errors.Error, ValueError, KeyError, TypeError):
        message = await js.get_msg(stream, first, subject, direct=True, next=first is not None)
        content = json.loads(message.data or b"")
        return str(content["boot"]), int(content["seq"])
    return None


def _seconds(first: tuple[str, int] | None, last: tuple[str, int] | None) -> int | None:
    if first is None or last is None or first[0] != last[0]:
        return None
    return max(0, last[1] - first[1] + 1)
