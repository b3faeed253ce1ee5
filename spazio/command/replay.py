"""`spazio replay FILE`: recorded telemetry through the pipeline, in one command.

A replay has its own server, streams, processors and history, in its own folder, so that it does not touch live data;
`--nats` uses a running server instead, under a prefix of its own. Event time is the recorded time, and only event time
drives the folds, so the rows are the same at any speed. A history records the stream position of every message, also of
global models, and is replayed in that order. For other recordings the model is aggregated again; nodes that are too far
ahead of it wait, so that it arrives in time at any speed. The scheduler cache rejects rows that are older than its
expiry, so it stays empty unless times are shifted.
"""

import asyncio
import contextlib
import itertools
import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
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
from producers.recorded.recording import Recorded, Recording
from schemas.settings import Settings
from schemas.subject import Names
from spazio import count, option
from spazio.export import frozen
from spazio.generator import isolation, pace
from spazio.generator.consumption import Consumption
from spazio.service import logs, service
from spazio.service.child import Unstartable
from spazio.service.supervision import Supervised
from spazio.terminal import clean, replayed

_OF_SERVICES = ("nats", "credentials", "run")  # of its own server, where it had one, and services: not read again
_AT_ONCE = 500
_LOOK_SECONDS = 0.2
_DRAIN_SECONDS = 30.0
# Faults of the recording, the options or what a replay needs; each has a sentence.
_UNUSABLE = (
    *(Unmapped, Unusable, Unstartable, isolation.InUse),
    *(server.Unusable, stream.NoRoom, connection.Unacceptable),
)


def run(settings: Settings, paths: Sequence[Path], *, skip_bad: bool, feed_only: bool, json_output: bool) -> int:
    """Replay files to their end, or until a signal arrives; return the exit status."""
    level = settings.log.level or "warning"
    settings = settings.model_copy(update={"log": settings.log.model_copy(update={"level": level})})
    logs.configure(settings.log, "replay")
    try:
        configured = option.reread(without=isolation.OWN)
        recorded = [isolation.located(configured, path) for path in paths]
        settings = isolation.isolated(settings, option.given())
        return _replay(settings, recorded, skip_bad=skip_bad, feed_only=feed_only, json_output=json_output)
    except _UNUSABLE as error:
        return _fail(str(error))
    except duckdb.Error as error:
        return _fail(str(error).splitlines()[0])
    except OSError as error:
        return _fail(f"{error}; fix that, or choose another folder with --data-dir", status=1)


def _replay(settings: Settings, paths: Sequence[Path], *, skip_bad: bool, feed_only: bool, json_output: bool) -> int:
    """Replay with the settings of a replay, and print the result."""
    folder = settings.data.dir
    with _emptied(folder) as work:
        copy = work / "history"
        present = [frozen.made(paths[0], copy)] if len(paths) == 1 else paths
        with recording.opened(present, settings.replay, work) as opened:
            prepared = opened.prepared
            replayed.report_faults(prepared, lambda file: frozen.original(file, paths[0], copy))
            if prepared.faulty and not skip_bad:
                return _fail(
                    f"cannot use {count.of(prepared.faulty, 'row')}; fix what is reported, or skip it with --skip-bad"
                )
            if not prepared.rows:
                return _fail(f"{paths[0]}: holds no samples")
            opened.check()
            for complaint in (replayed.lacking(prepared.metrics), replayed.unread(opened.unread)):
                if complaint:
                    clean.complain(complaint)
            variant = choose(settings)
            if others := opened.leave_out_model(variant.features, ratios=not variant.absolute):
                clean.complain(
                    f"the recorded global model is of {others}, these settings model {','.join(variant.features)}"
                    f"{'' if variant.absolute else ' in ratios'}: a new one is aggregated"
                )
            settings = isolation.few_partitions(settings, opened)
            replay = _Replay(settings, opened, feed_only=feed_only)
            result = asyncio.run(replay.run())
    print(json.dumps(result) if json_output else replayed.sentence(result), flush=True)
    return 0 if result["whole"] else 128 + replay.ended_by


@contextlib.contextmanager
def _emptied(folder: Path) -> Iterator[Path]:
    """Yield a folder for what is needed meanwhile; however it ends, only a history is left in the folder around it."""
    absent, work = [each for each in (folder, *folder.parents) if not each.exists()], folder / "work"
    try:
        yield work
    finally:
        for each in (work, *(folder / name for name in _OF_SERVICES)):
            shutil.rmtree(each, ignore_errors=True)
        with contextlib.suppress(OSError):
            for each in absent:
                each.rmdir()


def _fail(message: str, status: int = 2) -> int:
    clean.complain(message)
    return status


class _Replay:
    """One replay.

    Attributes:
        ended_by: Signal that has ended it before it was whole.
    """

    def __init__(self, settings: Settings, opened: Recording, *, feed_only: bool) -> None:
        self._settings, self._recording, self._feed_only = settings, opened, feed_only
        self._names = Names(settings.prefix)
        first = opened.prepared.first_us
        self._shift_us = time.time_ns() // 1000 - first if settings.replay.shift else 0
        self._sent: Counter[str] = Counter()
        self._rows = 0
        self._over, self.ended_by = False, signal.SIGINT
        # A recording with global models needs no aggregation, and no waiting for a model.
        self._complete = "model" in opened.kinds
        period_seconds = opened.period_seconds()
        self._model = pace.Model(settings.replay.model_lag_seconds, period_seconds)
        self._speed = pace.Speed(settings.replay.speed, period_seconds)

    async def run(self) -> dict[str, Any]:
        """Publish everything, wait until it is processed, and return the result."""
        loop, stop = asyncio.get_running_loop(), asyncio.Event()

        def end(by: signal.Signals) -> None:
            self.ended_by = by
            stop.set()

        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, end, each)
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
            "nats": self._settings.nats_shown if self._settings.nats.url else "",
            "history": "" if self._feed_only else str(self._settings.history_dir),
            "availability": 0 if self._feed_only else _availabilities(self._settings.history_dir),
        }

    async def _work(self, services: Supervised) -> None:
        settings = await services.start_server(aggregate=not self._complete)
        async with connection.connect(settings, f"{settings.prefix}-replay") as client:
            await self._check_unused(client)
            await stream.ensure(client, settings)
            telemetry, consumption = await stream.describe(client, self._names.telemetry), Consumption(client, settings)
            if not self._feed_only:
                names = {"process": ["process"], "history": ["sink", "history"]}
                if settings.replay.shift:
                    names["cache"] = ["sink", "cache"]
                await services.start(names)
                await consumption.started(telemetry.partitions)
            try:
                await self._publish_all(client, consumption)
            except ExceptionGroup as group:
                raise service.first(group) from group

    async def _check_unused(self, client: Connection) -> None:
        """Check that no pipeline has used the streams, before anything changes them."""
        try:
            telemetry = await stream.describe(client, self._names.telemetry)
        except errors.NotFound:
            return
        if telemetry.last:
            raise isolation.InUse(
                f"the stream {telemetry.name} holds messages of a pipeline or of an earlier replay; "
                "name another --prefix"
            )

    async def _publish_all(self, client: Connection, consumption: Consumption) -> None:
        """Publish everything while watching the consumers."""
        async with asyncio.TaskGroup() as group:
            try:
                if not self._feed_only:
                    group.create_task(self._watch(consumption))
                    await client.subscribe(self._names.model, cb=self._model.receive)
                await self._feed(client, group, consumption.close_behind)
                if not self._feed_only:
                    await consumption.finished()
            finally:
                self._over = True

    async def _feed(self, client: Connection, group: asyncio.TaskGroup, close_behind: asyncio.Event) -> None:
        """Publish the recording, at most at the given speed, and not too far ahead of the consumers."""
        pipeline = Pipeline(
            client,
            limit=self._settings.simulated.in_flight,
            timeout_seconds=self._settings.nats.request_timeout_seconds,
        )
        with _bar(Console(stderr=True)) as bar:
            task = bar.add_task("replay", total=self._recording.prepared.rows)
            async with pipeline:
                group.create_task(pipeline.run())
                async for piece in self._paced():
                    await close_behind.wait()
                    if not (self._feed_only or self._complete):
                        await self._model.follow((piece[0].end_us + self._shift_us) / 1e6)
                    await self._send(pipeline, piece)
                    self._advance(bar, task, piece)
                if not await pipeline.drain(_DRAIN_SECONDS):
                    raise OSError(
                        f"no acknowledgement of {count.of(pipeline.in_flight, 'message')}: {dict(pipeline.refused)}"
                    )

    async def _paced(self) -> AsyncIterator[list[Recorded]]:
        """Yield pieces of the recording, each when it is due."""
        loop, messages = asyncio.get_running_loop(), self._recording.messages(self._shift_us)
        while part := await asyncio.to_thread(lambda: list(itertools.islice(messages, _AT_ONCE))):
            for piece in pace.split(part):
                if wait_seconds := self._speed.wait_seconds(piece, loop.time()):
                    await asyncio.sleep(wait_seconds)
                yield piece

    async def _send(self, pipeline: Pipeline, piece: Sequence[Recorded]) -> None:
        await pipeline.send([Outgoing(self._subject(item), item.payload, item.identity.encode()) for item in piece])

    def _subject(self, item: Recorded) -> bytes:
        return (self._names.node(item.kind, item.node) if item.node else self._names.model).encode()

    def _advance(self, bar: Progress, task: TaskID, piece: Sequence[Recorded]) -> None:
        self._sent.update(item.kind for item in piece)
        rows = sum(item.rows for item in piece)
        self._rows += rows
        at = datetime.fromtimestamp(piece[-1].end_us / 1e6, UTC)
        bar.update(task, advance=rows, description=f"{at:%Y-%m-%d %H:%M:%S}")

    async def _watch(self, consumption: Consumption) -> None:
        while not self._over:  # the client swallows a cancellation while it sends
            await consumption.update()
            await asyncio.sleep(_LOOK_SECONDS)


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:3.0f} %"))
    return Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=not console.is_terminal)


def _availabilities(history: Path) -> int:
    file = history / "history.duckdb"
    if not file.is_file():  # a signal arrived before anything was written
        return 0
    with duckdb.connect(str(file), read_only=True) as database:
        row = database.execute("SELECT count(*) FROM availability").fetchone()
    return int(row[0]) if row else 0
