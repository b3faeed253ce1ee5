"""Stores in one atomic batch what several tasks of a process have ready at the same time.

For each batch the server makes a folder and two files, syncs them and deletes them again, however small the batch is.
With many tasks that fold a few nodes each, this is half of all that the server does. So batches begin at least
`INTERVAL_SECONDS` apart, and each takes what waits by then. A batch after a pause begins at once.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import nats.errors
from nats.aio.client import Client

from bus.publishing import batch
from bus.publishing.batch import Batch, Fenced, Row

INTERVAL_SECONDS = 0.1
_ENOUGH = (batch.MAXIMUM_ROWS + 1) // 2  # messages; waiting for more would save nothing


class _Entry(NamedTuple):
    batch: Batch
    timeout_seconds: float
    stored: asyncio.Future[int]


class GroupCommit:
    """The batches of all tasks of a process into one stream."""

    def __init__(self, client: Client, stream: str, *, interval_seconds: float = INTERVAL_SECONDS) -> None:
        """Name the stream; it allows atomic batches."""
        self._client, self._stream, self._interval = client, stream, interval_seconds
        self._waiting: deque[_Entry] = deque()
        self._enough = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._next = 0.0
        self._alone: set[asyncio.Task[None]] = set()

    async def publish(self, rows: Sequence[Row], cursor: Row, expected: int, *, timeout_seconds: float) -> int:
        """Store rows and cursor, all or nothing, with those of other callers; as `batch.publish`.

        A caller that is cancelled does not know whether its batch is stored.
        """
        batch.check(rows)
        entry = _Entry(Batch(rows, cursor, expected), timeout_seconds, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        if sum(waiting.batch.messages for waiting in self._waiting) >= _ENOUGH:
            self._enough.set()
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name=f"batches of {self._stream}")
        return await entry.stored

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            try:
                async with asyncio.timeout_at(self._next):
                    await self._enough.wait()
            except TimeoutError:
                pass
            self._next = loop.time() + self._interval
            if entries := self._take():
                await self._store(entries)

    def _take(self) -> list[_Entry]:
        """Return the next entries that fit one batch; those whose callers are gone are dropped."""
        entries: list[_Entry] = []
        messages = size = 0
        while self._waiting:
            entry = self._waiting[0]
            messages, size = messages + entry.batch.messages, size + entry.batch.size
            if entries and (messages > batch.MAXIMUM_ROWS + 1 or size > batch.MAXIMUM_BYTES):
                return entries
            self._waiting.popleft()
            if entry.stored.done():
                messages, size = messages - entry.batch.messages, size - entry.batch.size
            else:
                entries.append(entry)
        self._enough.clear()
        return entries

    async def _store(self, entries: Sequence[_Entry]) -> None:
        doubtful = False
        if len(entries) > 1:
            timeout = min(entry.timeout_seconds for entry in entries)
            try:
                stored = await batch.attempt(self._client, self._stream, [entry.batch for entry in entries], timeout)
            except (Fenced, nats.errors.MaxPayloadError):
                pass  # of one of them; nothing is stored
            except Exception:  # noqa: BLE001 # each caller gets the exception of its own batch
                doubtful = True
            else:
                for entry, sequence in zip(entries, stored, strict=True):
                    if not entry.stored.done():
                        entry.stored.set_result(sequence)
                return
        for entry in entries:
            storing = asyncio.create_task(
                self._store_alone(entry, doubtful), name=f"batch of {entry.batch.cursor.subject}"
            )
            self._alone.add(storing)
            storing.add_done_callback(self._alone.discard)
        # One that is refused again and again does not keep the others waiting.
        await asyncio.wait(self._alone, timeout=self._interval)

    async def _store_alone(self, entry: _Entry, doubtful: bool) -> None:
        storing = asyncio.ensure_future(
            batch.publish(
                self._client,
                self._stream,
                *entry.batch,
                timeout_seconds=entry.timeout_seconds,
                doubtful=doubtful,
            )
        )
        entry.stored.add_done_callback(lambda _: storing.cancel())  # the caller may have gone
        try:
            sequence = await storing
        except asyncio.CancelledError:
            if not entry.stored.done():
                entry.stored.cancel()
        except Exception as error:  # noqa: BLE001 # it is the caller's
            if not entry.stored.done():
                entry.stored.set_exception(error)
        else:
            if not entry.stored.done():
                entry.stored.set_result(sequence)
