"""History as a service: reads the streams, writes Parquet, keeps the views, tidies up.

The files are the position: a stream is read again from behind what is committed on disk. While the disk is full or
read-only nothing is thrown away; reading stops when the buffer is full, and the rest waits in the stream.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from prometheus_client import Counter, Gauge

from bus import errors, stream, subscription
from bus.accounting.ledger import LEDGER
from bus.client import Client
from bus.health import Health
from bus.reading import setback
from bus.reading.consumer import StreamRecreated
from bus.reading.reader import Reader
from bus.reading.setback import SetBack
from bus.subscription import Batch, Subscription
from schemas import channel
from schemas.live import Live
from schemas.sections.service import History
from schemas.subject import Names
from sinks.history import lock, table, view
from sinks.history.continuity import epoch, hour
from sinks.history.continuity.gap import EXPIRED, RECREATED, SET_BACK
from sinks.history.market import publisher
from sinks.history.upkeep import retention
from sinks.history.upkeep.upkeep import Upkeep
from sinks.history.writer import Window, Writer

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_LOOK_SECONDS = 0.05  # after which it looks again whether the disk is free
_FIRST_TIDY_SECONDS, _TIDY_SECONDS = 60.0, 600.0
_REST = 2.0  # times as long as a step of the upkeep takes: else it would take a core for seconds
_LOCK_SECONDS = 4.0  # for an earlier process that is about to end

_GAP_SECONDS = 60.0  # for which a gap shows, if no rows come
_GAPS = {
    SET_BACK: "{stream} came back with less than the history has read, as after a loss of power; it goes on from there",
    RECREATED: "{stream} was deleted and created again; the history goes on with the new one",
    EXPIRED: "messages of {stream} expired before they were read, `spazio doctor --flow` counts them: the history was "
    "stopped or is too slow; let the stream keep them longer with nats telemetry_max_age_seconds and "
    "telemetry_max_bytes",
}

Result = TypeVar("Result")

ROWS = Counter("spazio_history_rows_total", "rows written", ["stream"])
LAG = Gauge("spazio_history_buffered_rows", "rows that wait for the disk", ["stream"])


async def run(client: Client, live: Live, health: Health, *, upkeep: bool = True) -> None:
    """Write history until cancelled; then write what is buffered.

    Args:
        client: Connection to the server.
        live: Settings, of which some may change.
        health: Takes the problems.
        upkeep: Merge, roll up and delete hours; without it those that are there stay as they are.

    Raises:
        lock.Held: Another process writes history into the folder, and does not end within seconds.
    """
    folder = live.current.history_dir
    # One thread: writers and the tidying of files must not meet.
    with ExitStack() as held, ThreadPoolExecutor(1, thread_name_prefix="history") as pool:
        deadline = time.monotonic() + _LOCK_SECONDS
        while True:
            try:
                held.enter_context(lock.exclusive(folder))
                await _in(pool, _create, folder, live.current.history if upkeep else None)
                health.recover("history")
                break
            except lock.Held as error:
                if time.monotonic() > deadline:
                    raise
                health.degrade("history", str(error))
            except OSError as error:
                held.close()
                health.degrade("history", _remedy(folder, error))
            await asyncio.sleep(_AGAIN_SECONDS)
        await _serve(client, live, health, pool, upkeep)


def _create(folder: Path, settings: History | None) -> None:
    """Create the views; if a full disk or a damaged file keeps DuckDB from that, make room first where it may."""
    try:
        view.create(folder)
    except OSError:
        if settings is None:
            raise
        Upkeep(folder).make_room(_confirmed(folder), settings)
        view.create(folder)


def window(live: Live) -> Window:
    """Return what is stored now by the current settings."""
    now_us, history = time.time_ns() // 1000, live.current.history
    kept_us, ahead_us = int(history.retention_seconds * 1e6), int(history.ahead_seconds * 1e6)
    limit = history.node_messages_per_minute
    return Window(now_us - kept_us, now_us + ahead_us, limit, kept_us, hour.MOST if limit else 0)


def _confirmed(folder: Path) -> int:
    return retention.confirmed(folder, time.time_ns() // 1000)


async def _serve(client: Client, live: Live, health: Health, pool: ThreadPoolExecutor, upkeep: bool) -> None:
    names = Names(live.current.prefix)
    # Whole streams, although not everything has a table: a reader that lags behind with filters costs the server
    # a walk over all subjects of a block for each message.
    subjects = {
        names.telemetry: [">"],
        names.estimates: [">"],
        # Dead letters are of every subject and have no table.
        names.events: [row.filter(names) for row in channel.of_store(channel.EVENTS) if row.kind in table.KINDS],
    }
    tidying = asyncio.Lock()
    async with asyncio.TaskGroup() as group:
        for source, wanted in subjects.items():
            group.create_task(_Source(client, live, health, pool, tidying, source, wanted).run(), name=source)
        group.create_task(publisher.run(client, live, health), name="market")
        if upkeep:
            group.create_task(_tidy(pool, tidying, live, live.current.history_dir), name="tidy")


async def _in(pool: ThreadPoolExecutor, work: Callable[..., object], *arguments: object) -> object:
    return await asyncio.get_running_loop().run_in_executor(pool, functools.partial(work, *arguments))


def _remedy(folder: Path, error: OSError) -> str:
    return (
        f"{folder} cannot be written: {error.strerror or error}; free space or fix its permissions. "
        "Nothing is lost while the streams keep it"
    )


async def _tidy(pool: ThreadPoolExecutor, tidying: asyncio.Lock, live: Live, folder: Path) -> None:
    """Tidy up now and then; the lock is held during each step, in which nothing can be written."""
    upkeep = Upkeep(folder)
    seconds = _FIRST_TIDY_SECONDS  # a sink that is restarted often must drop old hours, too
    while True:
        await asyncio.sleep(seconds)
        work = upkeep.steps(_confirmed(folder), live.current.history)
        more: object = True
        while more:
            began = time.monotonic()
            async with tidying:
                more = await _in(pool, next, work, None)
            await asyncio.sleep(_REST * (time.monotonic() - began))  # rows are written between two steps
        seconds = _TIDY_SECONDS


class _Source:
    """Writes one stream's messages."""

    def __init__(
        self,
        client: Client,
        live: Live,
        health: Health,
        pool: ThreadPoolExecutor,
        tidying: asyncio.Lock,
        source: str,
        subjects: list[str],
    ) -> None:
        self._client, self._settings, self._health, self._pool = client, live.current, health, pool
        self._live, self._tidying = live, tidying
        self._source, self._subjects = source, subjects
        self._part = f"history of {source}"
        self._gap_until = 0.0
        self._whole = subjects == [">"]
        self._account = LEDGER.account("history", source, whole=self._whole)

    async def run(self) -> None:
        await subscription.keep(self._follow, self._report, also=(OSError,), pause_seconds=_AGAIN_SECONDS)

    def _report(self, error: Exception) -> None:
        if isinstance(error, OSError) and not isinstance(error, errors.REQUEST_FAILED):
            self._health.degrade(self._part, _remedy(self._settings.history_dir, error))
        else:
            log.warning("history.retried", extra={"stream": self._source, "reason": repr(error)})

    async def _follow(self) -> None:
        writer = await self._open()
        timeout = self._settings.nats.request_timeout_seconds
        self._account.resume(writer.cursor)
        reader = Reader(
            self._client, self._source, self._subjects, after=writer.read, timeout_seconds=timeout, bound=True
        )
        names = Names(self._settings.prefix)
        bury = subscription.bury(self._client, names, "history", self._source, timeout_seconds=timeout)
        async with Subscription(reader, table.decode, bury, account=self._account) as messages:
            try:
                await self._copy(messages, writer)
            except (StreamRecreated, SetBack):
                await self._drain(writer)
                raise
            except asyncio.CancelledError:
                await self._flush(writer)
                raise

    async def _drain(self, writer: Writer) -> None:
        """Write what is buffered, as long as it takes: the stream does not have these rows any more."""
        while True:
            if await self._flush(writer):
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _open(self) -> Writer:
        """Return the writer of the stream as it is now: of its next epoch if it came back with less than it had."""
        info = await stream.describe(self._client, self._source)
        folder, timeout = self._settings.history_dir, self._settings.nats.request_timeout_seconds
        position = await self._do(epoch.read, folder, self._source, info.identity)
        gap = ""
        if not position.created:
            gap = RECREATED if position.pace else ""
            position = position._replace(created=info.identity)
        try:
            await setback.check(self._client, self._source, position.read, timeout)
        except SetBack as error:
            gap = SET_BACK
            position = await self._do(epoch.begin, folder, self._source, position, error.kept, time.time_ns() // 1000)
        writer = await self._do(
            Writer, folder, self._source, position.created, info.first, functools.partial(window, self._live), position
        )
        if gap:
            self._note_gap(writer, gap)
        return writer

    def _note_gap(self, writer: Writer, reason: str, messages: int = 0) -> None:
        writer.gaps.begin(reason, messages)
        self._gap_until = time.monotonic() + _GAP_SECONDS
        self._health.degrade(f"gap in the {self._part}", _GAPS[reason].format(stream=self._source))

    async def _do(self, work: Callable[..., Result], *arguments: object) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, functools.partial(work, *arguments))

    async def _copy(self, messages: Subscription[table.Kept | None], writer: Writer) -> None:
        """Read and write; a full buffer is written at once, unless the disk did not take the last write.

        While a step of the upkeep has the disk, the buffer fills: who waits for it reads nothing.
        """
        loop = asyncio.get_running_loop()
        flushed, written = loop.time(), True
        while True:
            history = self._live.current.history
            left = max(min(flushed + history.flush_seconds - loop.time(), 1.0), _LOOK_SECONDS)
            if writer.rows < history.buffer_rows:
                self._take(writer, await messages.read(timeout_seconds=left))
            else:
                await asyncio.sleep(left)
            LAG.labels(self._source).set(writer.rows)
            full = writer.rows >= history.buffer_rows
            due = loop.time() >= flushed + history.flush_seconds
            if (due and (full or not self._tidying.locked())) or (full and written):
                written = await self._flush(writer)
                flushed = loop.time()

    def _take(self, writer: Writer, batch: Batch[table.Kept | None]) -> None:
        gone = batch.last - writer.seen - batch.received
        if self._whole and writer.seen and batch.received and gone > 0:
            self._note_gap(writer, EXPIRED, gone)
        for each in batch.messages:
            if each.message is not None:
                writer.append(each.subject, each.sequence, each.message, batch.stored_us)
        writer.cover(batch.first, batch.last, batch.stored_us)

    async def _flush(self, writer: Writer) -> bool:
        """Write what is buffered; False: the disk is full or read-only."""
        try:
            written = await self._do(writer.flush)
        except OSError as error:
            self._health.degrade(self._part, _remedy(self._settings.history_dir, error))
            return False
        ROWS.labels(self._source).inc(written)
        self._health.recover(self._part)
        if written or time.monotonic() > self._gap_until:
            self._health.recover(f"gap in the {self._part}")
        return True
