"""The tasks of `spazio process`: which there are, and how each is folded and stored.

Each partition has two tasks: how many pods fit now, and predictions. One more task aggregates the partitions' sums,
and one forecasts workloads. If the reject signal is federated, one more merges the partitions' directions. Replicas
share the tasks (`bus.folding.worker_pool`). The outputs of a partition go to the estimates stream in one atomic batch
with its cursor. The global model and the merged directions go to the telemetry stream, where they have one position
among all measurements.
"""

import asyncio
import logging
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from bus import errors, stream
from bus.client import Client
from bus.folding import journal
from bus.folding.overload.shedding import Shedding
from bus.folding.task import Journal, Shared, Task
from bus.folding.task_runner import TaskRunner
from bus.folding.worker import Worker
from bus.folding.worker_pool import WorkerPool
from bus.health import Health
from bus.publishing import group_commit
from bus.publishing.group_commit import GroupCommit
from bus.reading.feed import FEED_BYTES, Feed
from processors.decode import MEMO_BYTES, Memo
from schemas.live import Live
from schemas.settings import Settings
from schemas.subject import Names
from spazio.recovery import facts
from spazio.service import folding
from spazio.service.folding import ProcessorFold
from spazio.service.liveness import loop_guard
from spazio.service.service import Context

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
AGGREGATE, FEDERATION, FORECAST, PREDICTION = "aggregate", "federation", "forecast", folding.PREDICTION
# Kinds whose next message says the same a second later.
_BLOCKS = ("samples", "pods", "edge")
# Longest time for which a fold keeps the event loop from reading; Python's default is 5 ms.
_SWITCH_SECONDS = 0.001
# For which data from the server may wait, which is little beside the time for which messages are collected.
_REST_SECONDS = 0.01

# Between two batches of rows that a replay waits for.
_EAGER_SECONDS = 0.01


async def serve(context: Context) -> None:
    """Do the tasks with a connection that nothing else uses."""
    context.client.rest_seconds = _REST_SECONDS
    await run(context.client, context.live, context.health)


async def run(client: Client, live: Live, health: Health) -> None:
    """Do the tasks that the server gives to this replica, until cancelled; then checkpoint and release them.

    Raises:
        Repartitioned: In a group: the number of partitions, and with it the tasks, has changed. Start again.
    """
    names = Names(live.current.prefix)
    sys.setswitchinterval(_SWITCH_SECONDS)
    shared = Shared(
        Worker(live.current.http.busy_seconds, partial(loop_guard.end, "a fold does not end")),
        Shedding(
            _BLOCKS if live.current.process.shed else (),
            reconnects=lambda: client.stats["reconnects"],
        ),
        eager=not live.current.process.collect,
    )
    works = {work.task.name: work for work in _works(client, live, await _shards(client, names))}
    runners = [TaskRunner(client, live, health, work.task, work.fold, work.journal, shared) for work in works.values()]

    await WorkerPool(client, live.current.prefix, runners, lambda name: works[name].fold.about).run()


class _Work(NamedTuple):
    task: Task
    fold: ProcessorFold[Any]
    journal: Journal


def _works(client: Client, live: Live, shards: int) -> Iterator[_Work]:
    """Yield every task with its fold and its journal."""
    settings = folding.sharded(live.current, shards)
    names, timeout = Names(settings.prefix), settings.nats.request_timeout_seconds

    reading = asyncio.Lock()  # each reads all of them

    async def given(number: int) -> facts.Facts:
        async with reading:
            return await facts.of_partition(client, names, number, shards, timeout)

    interval = group_commit.INTERVAL_SECONDS if settings.process.collect else _EAGER_SECONDS
    group = GroupCommit(client, names.estimates, interval_seconds=interval)

    def batches(name: str) -> journal.Batches:
        return journal.Batches(client, names.estimates, names.of("cursor", name), timeout_seconds=timeout, group=group)

    for number in range(shards):
        name = str(number)
        memo = Memo(MEMO_BYTES // shards) if _predicts(settings) else None
        # A replay leaves nothing out, and sees from the server how far each task has read. The directions of all nodes
        # are read by predictions alone.
        fed = _predicts(settings) and settings.process.shed and not _federated(settings)
        feed = Feed(names.partition(number), FEED_BYTES // shards) if fed else None
        # A replay has what was recorded, and not what came later.
        begin = facts.SharedRead(partial(given, number)) if settings.process.shed else None
        task = Task(name, names.telemetry, subjects(names, number), feed=feed, given=begin, partitions=shards)
        yield _Work(task, folding.partition(settings, number, memo), batches(name))
        if _predicts(settings):
            name = f"{PREDICTION}-{number}"
            pause, wanted = (
                settings.predict.checkpoint_seconds,
                prediction_subjects(names, number, _federated(settings)),
            )
            task = Task(name, names.telemetry, wanted, pause, patient=True, feed=feed, given=begin, partitions=shards)
            yield _Work(task, folding.prediction(live, number, shards, memo), batches(name))

    def merge(name: str, kind: str, subject: str, fold: ProcessorFold[Any]) -> _Work:
        task = Task(name, names.estimates, (names.of(kind, "partition", "*"),))
        return _Work(task, fold, journal.Singles(client, names.telemetry, subject, timeout_seconds=timeout))

    if settings.process.aggregate:
        yield merge(AGGREGATE, "model", names.model, folding.aggregate(settings, shards))
    if _federated(settings):
        yield merge(FEDERATION, "subspace", names.subspace, folding.federation(settings, shards))
    if settings.forecast.enabled:
        wanted = (names.of("workloads", "partition", "*"),)
        task = Task(FORECAST, names.estimates, wanted, patient=True)
        yield _Work(task, folding.forecast(live, shards), batches(FORECAST))


def part_names(settings: Settings, shards: int) -> list[str]:
    """Return the names of all tasks."""
    predictions = [f"{PREDICTION}-{number}" for number in range(shards)] if _predicts(settings) else []
    federation = [FEDERATION] if _federated(settings) else []
    forecast = [FORECAST] if settings.forecast.enabled else []
    return [*map(str, range(shards)), *predictions, AGGREGATE, *federation, *forecast]


def _predicts(settings: Settings) -> bool:
    return settings.predict.enabled or settings.reject.enabled or settings.forecast.enabled


def _federated(settings: Settings) -> bool:
    return settings.reject.enabled and settings.reject.subspace == "global"


def subjects(names: Names, number: int) -> tuple[str, ...]:
    """Return the subjects that a partition folds: all of its nodes, and the global model.

    The fold ignores facts of nodes, but one filter for the whole partition costs the server less than several.
    """
    return names.partition(number), names.model


def prediction_subjects(names: Names, number: int, federated: bool = False) -> tuple[str, ...]:
    """Return the subjects that predictions of a partition fold: all of its nodes, and if federated the directions."""
    return (names.partition(number), names.subspace) if federated else (names.partition(number),)


async def _shards(client: Client, names: Names) -> int:
    while True:
        try:
            return (await stream.describe(client, names.telemetry)).partitions
        except errors.REQUEST_FAILED as error:
            log.warning("stream.describe_failed", extra={"reason": repr(error)})
            await asyncio.sleep(_AGAIN_SECONDS)
