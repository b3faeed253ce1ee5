"""What `latest` returns when the contents of the cache arrive in parts."""

import asyncio
import time
from collections.abc import Iterable

from bus.subscription import Batch, Decoded
from schemas.messages.estimate import Availability
from spazio.terminal import latest
from tests.support.extender.placement import report


class Parts:
    """Batches of given sizes as a subscription returns them; after the last one, reads wait for ever."""

    def __init__(self, sizes: Iterable[int], total: int) -> None:
        self._sizes, self._read, self._total = iter(sizes), 0, total

    async def read(self, *, timeout_seconds: float) -> Batch[Availability]:
        del timeout_seconds
        size = next(self._sizes, None)
        if size is None:
            await asyncio.Event().wait()
            raise AssertionError
        names = [f"n{number}" for number in range(self._read, self._read + size)]
        self._read += size
        rows = [Decoded(name, 1, b"", report(name, time.time_ns() // 1000, 1)) for name in names]
        return Batch(rows, size, 1, 1, self._total - self._read)


def nodes(sizes: Iterable[int], total: int) -> latest.Nodes:
    return latest.Nodes(Parts(sizes, total), expiry_seconds=60)  # type: ignore[arg-type] # it only reads


def test_a_pause_between_parts_is_not_taken_for_the_end() -> None:
    read = nodes([0, 48, 0, 0, 13], 61)
    assert len(asyncio.run(read.read_all(5))) == 61
    assert read.unread == 0


def test_an_empty_cache_is_read_at_once() -> None:
    assert asyncio.run(nodes([0], 0).read_all(5)) == []


def test_what_did_not_arrive_in_time_is_counted() -> None:
    read = nodes([48], 61)
    assert len(asyncio.run(read.read_all(0.01))) == 48
    assert read.unread == 13
