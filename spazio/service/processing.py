"""The one impure file of the processors: which parts of the work there are, and how each is folded and stored.

Each partition is two parts, how many pods fit now and what is to come; the aggregation of the partitions' sums is one
more. Replicas share them (`bus.folding.worker_pool`). What a partition says goes into the estimates stream in one
atomic batch together with its cursor; the global model goes into the telemetry stream, where it has one place in the
order of everything that is measured.
"""

import asyncio
import gc
import logging
from collections.abc import Sequence
from typing import Any

from prometheus_client import Gauge

from bus import errors, stream
from bus.client import Client
from bus.folding import journal
from bus.folding.task import Fold, OutputRow, Shared, Task
from bus.folding.task_runner import TaskRunner
from bus.folding.worker_pool import WorkerPool
from bus.health import Health
from bus.publishing.batch import Row
from processors.forecast import model, workload
from processors.forecast.workloads import Forecasts
from processors.partition import output
from processors.partition.aggregate import Aggregate
from processors.partition.partition import Partition
from processors.prediction.fold import PredictionPartition
from schemas import codec
from schemas.codec import InvalidMessage
from schemas.live import Live
from schemas.messages.prediction import WorkloadSums
from schemas.settings import Settings
from schemas.subject import Names, token

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
AGGREGATE, FORECAST, OUTLOOK = "aggregate", "forecast", "outlook"
# Nothing in a fold refers to itself, and its thousands of objects die with it; the default of 700 looks for cycles
# among them several times per fold, which takes 7 % of the process's time.
_OBJECTS_BEFORE_COLLECTION = 50_000

NODES = Gauge("spazio_nodes", "nodes known", ["partition"])
WITHHELD = Gauge("spazio_messages_withheld", "messages not made because cpu or memory is unknown", ["partition"])
IGNORED = Gauge(
    "spazio_container_events_ignored",
    "container events that open no window: of a node without blocks, or a minute away from its newest one; and "
    "edge blocks before the first that tells the node's size",
    ["partition"],
)


async def run(client: Client, live: Live, health: Health) -> None:
    """Do every part that the server gives to this replica, until cancelled; then checkpoint and give them back."""
    settings = live.current
    names, timeout = Names(settings.prefix), settings.nats.request_timeout_seconds
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
    shards = await _shards(client, names)
    shared = Shared()
    folds: dict[str, PartitionFold | OutlookFold] = {}
    parts: list[Task] = []
    for number in range(shards):
        name = str(number)
        folds[name] = PartitionFold(settings, number)
        parts.append(Task(name, f"process-{name}", names.telemetry, subjects(names, number)))
        if _looks_ahead(settings):
            name = f"{OUTLOOK}-{number}"
            folds[name] = OutlookFold(live, number)
            pause, wanted = settings.predict.checkpoint_seconds, outlook_subjects(names, number)
            parts.append(Task(name, name, names.telemetry, wanted, pause, patient=True))
    owners = [
        TaskRunner(
            client,
            live,
            health,
            part,
            folds[part.name],
            journal.Batches(client, names.estimates, names.of("cursor", part.name), timeout_seconds=timeout),
            shared,
        )
        for part in parts
    ]
    sums = Task(AGGREGATE, AGGREGATE, names.estimates, (names.of("model", "partition", "*"),))
    models = journal.Singles(client, names.telemetry, names.model, timeout_seconds=timeout)
    if settings.process.aggregate:
        owners.append(TaskRunner(client, live, health, sums, AggregateFold(settings, shards), models, shared))

    if settings.forecast.enabled:
        workloads = Task(FORECAST, FORECAST, names.estimates, (names.of("workloads", "partition", "*"),), patient=True)
        cursor = journal.Batches(client, names.estimates, names.of("cursor", FORECAST), timeout_seconds=timeout)
        owners.append(TaskRunner(client, live, health, workloads, ForecastFold(live, shards), cursor, shared))

    def about(part: str) -> dict[str, Any]:
        return {"nodes": folds[part].nodes} if part in folds else {}

    await WorkerPool(client, settings.prefix, owners, about).run()


def part_names(settings: Settings, shards: int) -> list[str]:
    """Return the names of all parts of the work."""
    outlooks = [f"{OUTLOOK}-{number}" for number in range(shards)] if _looks_ahead(settings) else []
    return [*map(str, range(shards)), *outlooks, AGGREGATE, *([FORECAST] if settings.forecast.enabled else [])]


def _looks_ahead(settings: Settings) -> bool:
    return settings.predict.enabled or settings.reject.enabled or settings.forecast.enabled


def subjects(names: Names, number: int) -> tuple[str, ...]:
    """Return what a partition folds: what is measured on its nodes, and the global model.

    Whole partitions, although facts of nodes are of no use: the more filters, the more a server has to do.
    """
    return names.partition(number), names.model


def outlook_subjects(names: Names, number: int) -> tuple[str, ...]:
    """Return what the outlook of a partition folds: everything of its nodes; what it does not need is rare."""
    return (names.partition(number),)


async def _shards(client: Client, names: Names) -> int:
    while True:
        try:
            return (await stream.describe(client, names.telemetry)).partitions
        except errors.REQUEST_FAILED as error:
            log.warning("fold.waiting", extra={"reason": repr(error)})
            await asyncio.sleep(_AGAIN_SECONDS)


class PartitionFold(Fold):
    """A partition as rows and bytes."""

    def __init__(self, settings: Settings, number: int) -> None:
        self._settings, self._number = settings, number
        self.clear()

    @property
    def nodes(self) -> int:
        """Number of nodes known."""
        return self._partition.nodes

    def clear(self) -> None:
        """Forget everything; others count what was ours."""
        self._partition = Partition(self._settings, self._number)
        for gauge in (NODES, WITHHELD, IGNORED):
            gauge.labels(str(self._number)).set(0)

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[list[OutputRow], list[InvalidMessage]]:
        """Fold (stored subject, payload) pairs; return what to store, and what is of no use."""
        outputs, refusals = self._partition.fold(messages)
        label = str(self._number)
        NODES.labels(label).set(self._partition.nodes)
        WITHHELD.labels(label).set(self._partition.withheld)
        IGNORED.labels(label).set(self._partition.ignored)
        return rows(outputs), [InvalidMessage(refusal.index, refusal.reason) for refusal in refusals]

    def snapshot(self) -> bytes | None:
        """Return the state as bytes; None: no node is known."""
        return self._partition.snapshot() if self._partition.nodes else None

    def restore(self, body: bytes) -> None:
        """Take over a state.

        Raises:
            ValueError: It cannot be used.
        """
        self._partition.restore(body)


def rows(said: Sequence[output.Output]) -> list[OutputRow]:
    """Return what a partition says as it is stored."""
    return [OutputRow(one.index, Row(one.subject, codec.encode(one.message))) for one in said]


class OutlookFold(Fold):
    """The outlook of a partition as rows and bytes. What the partition's own fold reads too, that one refuses."""

    def __init__(self, live: Live, number: int) -> None:
        self._live, self._number = live, number
        self.clear()

    @property
    def nodes(self) -> int:
        """Number of nodes known."""
        return self._outlook.nodes

    def clear(self) -> None:
        """Forget everything."""
        self._outlook = PredictionPartition(self._live.current, self._number)

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[list[OutputRow], list[InvalidMessage]]:
        """Fold (stored subject, payload) pairs by the settings in force; return what to store, and what is useless."""
        self._outlook.settings = self._live.current
        said = rows(self._outlook.fold(messages))
        WITHHELD.labels(f"{OUTLOOK}-{self._number}").set(self._outlook.withheld)
        return said, []

    def snapshot(self) -> bytes | None:
        """Return the state as bytes; None: no node is known."""
        return self._outlook.snapshot() if self._outlook.nodes else None

    def restore(self, body: bytes) -> None:
        """Take over a state.

        Raises:
            ValueError: It cannot be used.
        """
        self._outlook.restore(body)


class AggregateFold(Fold):
    """The aggregate as rows and bytes."""

    def __init__(self, settings: Settings, shards: int) -> None:
        self._subject = Names(settings.prefix).model
        self._aggregate = Aggregate(shards, silent_seconds=settings.model.silent_seconds)

    def clear(self) -> None:
        """Forget everything."""
        self._aggregate.clear()

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[list[OutputRow], list[InvalidMessage]]:
        """Fold (stored subject, payload) pairs; return what to store, and what is of no use."""
        made: list[OutputRow] = []
        refusals: list[InvalidMessage] = []
        for index, (subject, payload) in enumerate(messages):
            try:
                model = self._aggregate.fold(subject, payload)
            except codec.Refused as refused:
                refusals.append(InvalidMessage(index, str(refused)))
                continue
            if model is not None:
                made.append(OutputRow(index, Row(self._subject, codec.encode(model))))
        return made, refusals

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        return self._aggregate.snapshot()

    def restore(self, body: bytes) -> None:
        """Take over a state.

        Raises:
            ValueError: It cannot be used.
        """
        self._aggregate.restore(body)


class ForecastFold(Fold):
    """Forecasts of all workloads as rows and bytes."""

    def __init__(self, live: Live, shards: int) -> None:
        self._live, self._shards = live, shards
        self._names = Names(live.current.prefix)
        if (reason := model.missing(live.current.forecast.model)) is not None:
            log.warning("forecast.model_missing", extra={"reason": reason})
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._forecasts = Forecasts(self._shards, workload.params(self._live.current))

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[list[OutputRow], list[InvalidMessage]]:
        """Fold (stored subject, payload) pairs by the settings in force; return what to store, and what is useless."""
        self._forecasts.params = workload.params(self._live.current)
        made: list[OutputRow] = []
        refusals: list[InvalidMessage] = []
        for index, (_, payload) in enumerate(messages):
            try:
                sums = codec.decode(WorkloadSums, payload)
                found = self._forecasts.fold(sums.partition, sums.at_us, workload.sums_of(sums))
            except ValueError as refused:
                refusals.append(InvalidMessage(index, str(refused)))
                continue
            for one in found:
                subject = self._names.of("forecast", token(one.workload.namespace), token(workload.name(one.workload)))
                made.append(OutputRow(index, Row(subject, codec.encode(workload.message(one, self._live.current)))))
        return made, refusals

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        return self._forecasts.snapshot()

    def restore(self, body: bytes) -> None:
        """Take over a state.

        Raises:
            ValueError: It cannot be used.
        """
        self._forecasts.restore(body)
