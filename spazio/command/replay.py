"""`spazio replay FILE`: recorded telemetry through the pipeline, in one command.

A replay has a server, streams, processors and a history of its own, in a folder of its own, so that it meets nothing
of what runs live; `--nats` uses a running server instead, under the prefix `replay`. Event time is what was recorded,
and it alone drives the folds, so the rows are the same at any speed. A history knows the place of every message in its
stream, the global model's too, and is replayed in that very order. Elsewhere the model is made anew; so that it comes
in time at any speed, nodes wait for it when they are too far ahead of it. The scheduler cache takes nothing that is
older than its expiry, so it stays empty unless times are shifted.
"""

import asyncio
import itertools
import json
import logging
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from bus import connection, errors, server, stream
from bus.connection import Connection
from bus.publishing.pipeline import Outgoing, Pipeline
from processors.estimation.variant import choose
from producers.recorded import recording
from producers.recorded.block import Unusable
from producers.recorded.mapping import Unmapped
from producers.recorded.prepare import Fault, Prepared
from producers.recorded.recording import Recorded, Recording
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import layout
from spazio.generator import pace
from spazio.service import logs
from spazio.service.child import Unstartable
from spazio.service.supervision import Supervised

log = logging.getLogger(__name__)

PREFIX = "replay"
_AT_ONCE = 500
_LOOK_SECONDS = 0.2
_QUIET_SECONDS = 2.0
_STARTING_SECONDS = 30.0
_DRAIN_SECONDS = 30.0
_EXAMPLE = "SELECT * FROM availability ORDER BY at_us LIMIT 5"


def run(settings: Settings, paths: Sequence[Path], *, skip_bad: bool, feed_only: bool, json_output: bool) -> int:
    """Replay files to their end, or until a signal comes; returns the exit status."""
    level = settings.log.level or "warning"
    settings = settings.model_copy(update={"log": settings.log.model_copy(update={"level": level})})
    logs.configure(settings.log, "replay")
    if settings.prefix == Settings().prefix:
        settings = settings.model_copy(update={"prefix": PREFIX})
    folder = settings.data.dir / PREFIX / datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    settings = settings.model_copy(update={"data": settings.data.model_copy(update={"dir": folder})})
    try:
        with recording.opened(paths, settings.replay, folder / "work") as opened:
            prepared = opened.prepared
            _tell(prepared)
            if prepared.faulty and not skip_bad:
                return _fail(f"{prepared.faulty} rows cannot be used; mend them, or leave them out with --skip-bad")
            if not prepared.rows:
                return _fail(f"{paths[0]}: holds no samples")
            opened.check()
            features = choose(settings).features
            if others := opened.leave_out_model(features):
                sys.stderr.write(
                    f"spazio: the recorded global model is of {others}, these settings model {','.join(features)}: "
                    "a new one is aggregated\n"
                )
            said = asyncio.run(_Replay(settings, opened, feed_only=feed_only).run())
    except (Unmapped, Unusable, Unstartable, server.Unusable, stream.NoRoom, connection.ServerTooOld, _InUse) as error:
        return _fail(str(error))
    except duckdb.Error as error:
        return _fail(str(error).splitlines()[0])
    except OSError as error:
        return _fail(f"{error}; mend that, or choose another folder with --data-dir")
    finally:
        shutil.rmtree(folder / "work", ignore_errors=True)
    print(json.dumps(said) if json_output else sentence(said), flush=True)
    return 0 if said["whole"] else 130


def sentence(said: dict[str, Any]) -> str:
    """Say in words what came of a replay."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in said["messages"].items())
    lines = [f"{kinds} in {said['seconds']:.1f} s; {said['faulty']} rows left out"]
    if not said["whole"]:
        lines.append("ended before the end of the recording")
    if said["history"]:
        lines.append(f"{said['availability']} rows of availability:")
        lines.append(f'  spazio sql --history-dir {said["history"]} "{_EXAMPLE}"')
    return "\n".join(lines)


def _fail(message: str) -> int:
    sys.stderr.write(f"spazio: {message}\n")
    return 2


def _tell(prepared: Prepared) -> None:
    for fault in prepared.faults:
        sys.stderr.write(f"spazio: {_located(fault)}\n")
    if prepared.faulty > len(prepared.faults):
        sys.stderr.write(f"spazio: and {prepared.faulty - len(prepared.faults)} more\n")


def _located(fault: Fault) -> str:
    value = f"is {fault.value!r}, which is not a possible value" if fault.value else "is missing"
    return f"{fault.file} row {fault.row}, column {fault.column!r}: {value}"


class _InUse(RuntimeError):
    """The streams of this prefix hold something already."""


class _Replay:
    """One replay."""

    def __init__(self, settings: Settings, opened: Recording, *, feed_only: bool) -> None:
        self._settings, self._recording, self._feed_only = settings, opened, feed_only
        self._names = Names(settings.prefix)
        first = opened.prepared.first_us
        self._shift_us = time.time_ns() // 1000 - first if settings.replay.shift else 0
        self._sent: Counter[str] = Counter()
        self._rows = 0
        self._readers = self._unread = 0
        self._over = False
        # With the recorded model none is to be made, nor waited for.
        self._complete = "model" in opened.kinds
        self._model = pace.Model(settings.replay.model_lag_seconds)
        self._close_behind = asyncio.Event()
        self._close_behind.set()

    async def run(self) -> dict[str, Any]:
        """Feed everything, wait until it is processed, and return what came of it."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()
        for sign in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(sign, stop.set)
        began, whole = loop.time(), False
        async with Supervised(self._settings) as services:
            working = asyncio.create_task(self._work(services))
            stopping = asyncio.create_task(stop.wait())
            try:
                waiting: list[asyncio.Future[Any]] = [working, stopping, services.failed]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if services.failed.done():
                    services.failed.result()
                if working.done():
                    working.result()
                    whole = True
            finally:
                for task in (working, stopping):
                    task.cancel()
                await asyncio.wait({working, stopping})
        prepared = self._recording.prepared
        return {
            "messages": dict(self._sent),
            "samples": self._rows,
            "faulty": prepared.faulty,
            "whole": whole,
            "seconds": round(loop.time() - began, 3),
            "nats": services.url if self._settings.nats.url else "",
            "history": "" if self._feed_only else str(self._settings.history_dir),
            "availability": 0 if self._feed_only else _availabilities(self._settings.history_dir),
        }

    async def _work(self, services: Supervised) -> None:
        settings = await services.start_server(aggregate=not self._complete)
        async with connection.connect(settings, f"{settings.prefix}-replay") as client:
            await stream.ensure(client, settings)
            held = await stream.describe(client, self._names.telemetry)
            if held.last:
                raise _InUse(
                    f"the stream {held.name} holds an earlier replay; name another --prefix, or delete its streams"
                )
            if not self._feed_only:
                names = {"process": ["process"], "history": ["sink", "history"]}
                if settings.replay.shift:
                    names["cache"] = ["sink", "cache"]
                await services.start(names)
                await self._until_read(client, held.partitions)
            try:
                await self._follow(client)
            except ExceptionGroup as group:
                raise _first(group) from group

    async def _follow(self, client: Connection) -> None:
        """Feed everything, and look at what reads it."""
        async with asyncio.TaskGroup() as group:
            try:
                if not self._feed_only:
                    group.create_task(self._watch(client))
                    await client.subscribe(self._names.model, cb=self._model.heard)
                await self._feed(client, group)
                if not self._feed_only:
                    await self._until_processed(client)
            finally:
                self._over = True

    async def _feed(self, client: Connection, group: asyncio.TaskGroup) -> None:
        """Publish the recording, no faster than asked, and not too far ahead of the processors."""
        replay, loop = self._settings.replay, asyncio.get_running_loop()
        prepared = self._recording.prepared
        messages = self._recording.messages(self._shift_us)
        pipeline = Pipeline(
            client,
            limit=self._settings.simulated.in_flight,
            timeout_seconds=self._settings.nats.request_timeout_seconds,
        )
        console = Console(stderr=True)
        with _bar(console) as bar:
            task = bar.add_task("replay", total=prepared.rows)
            async with pipeline:
                group.create_task(pipeline.run())
                began, first_us = loop.time(), None
                while part := await asyncio.to_thread(_take, messages, _AT_ONCE):
                    first_us = part[0].end_us if first_us is None else first_us
                    for some in pace.split(part):
                        if replay.speed:
                            due = began + (some[0].end_us - first_us) / 1e6 / replay.speed
                            await asyncio.sleep(max(0.0, due - loop.time()))
                        await self._close_behind.wait()
                        if not (self._feed_only or self._complete):
                            await self._model.follow((some[0].end_us + self._shift_us) / 1e6)
                        await self._send(pipeline, some)
                        self._advance(bar, task, some)
                if not await pipeline.drain(_DRAIN_SECONDS):
                    raise OSError(f"{pipeline.in_flight} messages were not acknowledged: {dict(pipeline.refused)}")

    async def _send(self, pipeline: Pipeline, some: Sequence[Recorded]) -> None:
        await pipeline.send([Outgoing(self._subject(item), item.payload, item.identity.encode()) for item in some])

    def _subject(self, item: Recorded) -> bytes:
        return (self._names.node(item.kind, item.node) if item.node else self._names.model).encode()

    def _advance(self, bar: Progress, task: TaskID, some: Sequence[Recorded]) -> None:
        self._sent.update(item.kind for item in some)
        rows = sum(item.rows for item in some)
        self._rows += rows
        at = datetime.fromtimestamp(some[-1].end_us / 1e6, UTC)
        bar.update(task, advance=rows, description=f"{at:%Y-%m-%d %H:%M:%S}")

    async def _watch(self, client: Connection) -> None:
        while not self._over:  # the client swallows a cancellation that comes while it sends
            await self._look(client)
            await asyncio.sleep(_LOOK_SECONDS)

    async def _look(self, client: Connection) -> None:
        """Count who reads, and what is not read yet; a server that does not answer leaves that as it was."""
        readers = unread = 0
        try:
            for name in (self._names.telemetry, self._names.estimates):
                found = await stream.consumers(client, name)
                unread += sum(consumer.pending for consumer in found)
                readers += len(found) if name == self._names.telemetry else 0
        except errors.REQUEST_FAILED as error:
            log.info("replay.unanswered", extra={"reason": str(error)})
            return
        self._readers, self._unread = readers, unread
        if unread > 2 * self._settings.replay.ahead:  # each is read by a processor and by the history
            self._close_behind.clear()
        else:
            self._close_behind.set()

    async def _until_read(self, client: Connection, partitions: int) -> None:
        """Wait until a processor listens to every partition, and the history to all."""
        try:
            async with asyncio.timeout(_STARTING_SECONDS):
                while self._readers <= partitions:
                    await self._look(client)
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            raise Unstartable("the processors did not start in time; the log says why") from None

    async def _until_processed(self, client: Connection) -> None:
        """Wait until everything is read, and nothing new has been estimated for a while."""
        loop = asyncio.get_running_loop()
        last = now = -1
        since = loop.time()
        while loop.time() - since < _QUIET_SECONDS:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                now = (await stream.describe(client, self._names.estimates)).last
                quiet = now == last and not self._unread and await self._written(client)
            except errors.REQUEST_FAILED:
                quiet = False  # it is not known
            if not quiet:
                last, since = now, loop.time()

    async def _written(self, client: Connection) -> bool:
        """Tell whether the history is on the disk as far as it was read."""
        done = layout.committed(self._settings.history_dir)
        for name in (self._names.telemetry, self._names.estimates):
            identity = (await stream.describe(client, name)).identity
            for consumer in await stream.consumers(client, name):
                if not consumer.durable and consumer.delivered > done.get(identity, 0):
                    return False
        return True


def _first(group: ExceptionGroup[Exception]) -> Exception:
    """Return what failed first; the rest of a group ended because of it."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, ExceptionGroup) else error


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal)


def _take(messages: Any, count: int) -> list[Recorded]:
    return list(itertools.islice(messages, count))


def _availabilities(history: Path) -> int:
    file = history / "history.duckdb"
    if not file.is_file():  # a signal came before anything was written
        return 0
    with duckdb.connect(str(file), read_only=True) as database:
        row = database.execute("SELECT count(*) FROM availability").fetchone()
    return int(row[0]) if row else 0
