"""What Kubernetes says of the nodes and pods of a partition, from the buckets.

The watch publishes facts when they change, and the stream holds them for a limited time. A new state that
is made later, as after a changed setting, would lack the others: how many pods a node takes, which class a pod is of.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from bus.client import Client
from bus.reading.reader import Reader
from schemas.subject import Names, partition, token

_BUCKET, _SUBJECT = "KV_{}", "$KV.{}.>"

Facts = list[tuple[str, bytes]]  # stored subject, payload


class _Origin(msgspec.Struct):
    """What is read of facts here: their node."""

    node: str


_origin = msgspec.json.Decoder(_Origin).decode


class SharedRead:
    """Reads facts once for all tasks that wait for them together: what changes meanwhile the stream has, too."""

    def __init__(self, read: Callable[[], Awaitable[Facts]]) -> None:
        """Share what `read` returns; nothing is read before the first call."""
        self._read, self._lock, self._waiting = read, asyncio.Lock(), 0
        self._facts: Facts | None = None

    async def __call__(self) -> Facts:
        """Return what is read now, by this call or by an earlier one that has not ended."""
        self._waiting += 1
        try:
            async with self._lock:
                if self._facts is None:
                    self._facts = await self._read()
                return self._facts
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._facts = None


async def of_partition(client: Client, names: Names, number: int, partitions: int, timeout_seconds: float) -> Facts:
    """Return the newest facts of a partition's nodes and of their pods, (stored subject, payload), nodes first.

    Args:
        client: Connection.
        names: Names on the bus.
        number: The partition.
        partitions: How many there are.
        timeout_seconds: Time limit for each request to the server.

    Raises:
        TimeoutError: The server does not send them.
    """
    facts: Facts = []
    for kind, bucket in (("nodefacts", names.nodes_bucket), ("podfacts", names.pods_bucket)):
        async for payload in _newest(client, bucket, timeout_seconds):
            node = _node(payload)
            if node is not None and partition(node, partitions) == number:
                facts.append((names.part(number, kind, node), payload))
    return facts


async def _newest(client: Client, bucket: str, timeout_seconds: float) -> AsyncIterator[bytes]:
    """Yield the newest message of each key, without those that mark its deletion."""
    wanted = _BUCKET.format(bucket), [_SUBJECT.format(bucket)]
    async with Reader(client, *wanted, newest=True, timeout_seconds=timeout_seconds) as reader:
        messages = await reader.read(timeout_seconds=0)  # then it knows how many there are
        while True:
            for message in messages:
                if message.data:
                    yield message.data
            if not reader.pending:
                return
            if not (messages := await reader.read(timeout_seconds=timeout_seconds)):
                raise TimeoutError(f"the server does not send bucket {bucket}")


def _node(payload: bytes) -> str | None:
    """Return the encoded node that facts are of; None: they are none."""
    try:
        return token(_origin(payload).node)
    except ValueError:
        return None
