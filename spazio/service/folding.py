"""The folds of all tasks: one adapter, which turns a processor's messages into rows, and a step for each processor."""

import logging
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from prometheus_client import Gauge

from bus.folding.task import Fold, OutputRow
from bus.publishing.batch import Row
from processors.decode import Memo
from processors.forecast import model, workload
from processors.forecast.workloads import Forecasts
from processors.partition.aggregate import Aggregate, Federation
from processors.partition.output import Output
from processors.partition.partition import Partition
from processors.prediction.fold import PredictionPartition
from processors.rows.quota import NodeQuota
from schemas import codec
from schemas.codec import InvalidMessage
from schemas.live import Live
from schemas.messages.prediction import WorkloadSums
from schemas.settings import Settings
from schemas.subject import Names, token
from spazio.service.state_total import StateTotal

log = logging.getLogger(__name__)

PREDICTION = "outlook"  # the name that stored cursors and checkpoints have

NODES = Gauge("spazio_nodes", "nodes known", ["partition"])
WITHHELD = StateTotal(
    "spazio_withheld_messages",
    "messages not made: cpu or memory is unknown, or a number cannot be in a message",
    gauge="spazio_messages_withheld",
)
REFUSED = StateTotal(
    "spazio_refused_node_messages",
    "messages left out because their node may have no state: see process nodes_max",
    gauge="spazio_messages_of_refused_nodes",
)
REFUSED_PODS = StateTotal(
    "spazio_refused_pods", "pods left out of predictions: see process pods_max", gauge="spazio_pods_refused"
)
IGNORED = StateTotal(
    "spazio_ignored_container_events",
    "container events that open no window: of a node without blocks, or a minute away from its newest one; and "
    "edge blocks before the first that tells the node's size",
    gauge="spazio_container_events_ignored",
)


class Processor(Protocol):
    """State of a processor."""

    def snapshot(self) -> bytes:
        """Return the state as bytes."""

    def restore(self, body: bytes) -> None:
        """Replace the state.

        Raises:
            ValueError: The bytes cannot be used.
        """


State = TypeVar("State", bound=Processor)
Merge = TypeVar("Merge", Aggregate, Federation)
Messages = Sequence[tuple[str, bytes]]
Result = tuple[Sequence[OutputRow], Sequence[InvalidMessage]]


class ProcessorFold(Fold, Generic[State]):
    """A processor as the fold of a task."""

    def __init__(
        self,
        create: Callable[[], State],
        step: Callable[[State, Messages], Result],
        *,
        observe: Callable[[State], None] = lambda _: None,
        forget: Callable[[], None] = lambda: None,
        count: Callable[[State], int] | None = None,
    ) -> None:
        """Start with empty state.

        Args:
            create: Returns empty state.
            step: Folds (stored subject, payload) pairs into the state.
            observe: Updates metrics, after each fold and when the state is restored.
            forget: Takes the metrics of the state away, when it is cleared.
            count: Returns the number of nodes in the state; None: the state does not consist of nodes.
        """
        self._create, self._step, self._count = create, step, count
        self._observe, self._forget = observe, forget
        self.clear()

    @property
    def nodes(self) -> int | None:
        """Number of nodes in the state; None: it does not consist of nodes."""
        return None if self._count is None else self._count(self._state)

    @property
    def about(self) -> dict[str, Any]:
        """Fields for a report: `nodes`, and if nodes were refused, `refused` messages and the `newest` node."""
        quota = getattr(self._state, "quota", None)
        fields = {} if self.nodes is None else {"nodes": self.nodes}
        if quota is None or not quota.refused:
            return fields
        return fields | {"refused": quota.refused, "newest": quota.newest, "limit": quota.limit}

    def clear(self) -> None:
        """Discard all state."""
        self._state = self._create()
        self._forget()

    def fold(self, messages: Messages) -> Result:
        """Fold (stored subject, payload) pairs; return rows to store, and messages that cannot be used."""
        result = self._step(self._state, messages)
        self._observe(self._state)
        return result

    def snapshot(self) -> bytes | None:
        """Return the state as bytes; None: it has no node."""
        return None if self.nodes == 0 else self._state.snapshot()

    def capture(self) -> bytes:
        """Return the state as bytes, also if it has no node."""
        return self._state.snapshot()

    def restore(self, body: bytes) -> None:
        """Replace the state by a snapshot.

        Raises:
            ValueError: The snapshot cannot be used.
        """
        self._state.restore(body)
        self._observe(self._state)


def partition(settings: Settings, number: int, memo: Memo | None = None) -> ProcessorFold[Partition]:
    """Return the fold of a partition; `memo` is shared with its predictions."""
    label = str(number)

    def step(state: Partition, messages: Messages) -> Result:
        outputs, invalid = state.fold(messages)
        return _rows(outputs), invalid

    tell = _refusals(label)

    def observe(state: Partition) -> None:
        NODES.labels(label).set(state.nodes)
        WITHHELD.set(label, state.withheld)
        IGNORED.set(label, state.ignored)
        tell(state.quota)

    def forget() -> None:
        NODES.labels(label).set(0)
        _forget(label)

    return ProcessorFold(
        lambda: Partition(settings, number, memo), step, observe=observe, forget=forget, count=attrgetter("nodes")
    )


def prediction(live: Live, number: int, shards: int, memo: Memo | None = None) -> ProcessorFold[PredictionPartition]:
    """Return the fold of the predictions of one of so many partitions, by the settings in force.

    `memo` is shared with the partition's own fold. It refuses only messages that this does not read: that one refuses
    the others.
    """
    label = f"{PREDICTION}-{number}"

    def step(state: PredictionPartition, messages: Messages) -> Result:
        state.settings = live.current
        outputs = state.fold(messages)
        return _rows(outputs), [InvalidMessage(index, reason) for index, reason in state.refused]

    tell = _refusals(label)

    def observe(state: PredictionPartition) -> None:
        WITHHELD.set(label, state.withheld)
        tell(state.quota)

    return ProcessorFold(
        lambda: PredictionPartition(sharded(live.current, shards), number, memo),
        step,
        observe=observe,
        forget=lambda: _forget(label),
        count=attrgetter("nodes"),
    )


def sharded(settings: Settings, shards: int) -> Settings:
    """Return settings with the partitions that the stream has: it keeps those with which it was made."""
    return settings.model_copy(update={"nats": settings.nats.model_copy(update={"partitions": shards})})


def _forget(label: str) -> None:
    """Let a part that has no state here have no counts here."""
    for total in (WITHHELD, IGNORED, REFUSED, REFUSED_PODS):
        total.forget(label)


def _refusals(label: str) -> Callable[[NodeQuota], None]:
    """Return a function that counts the messages of refused nodes, and logs the first."""
    reported = False

    def tell(quota: NodeQuota) -> None:
        nonlocal reported
        REFUSED.set(label, quota.refused)
        REFUSED_PODS.set(label, quota.refused_pods)
        if quota.refused and not reported:
            log.warning("nodes.refused", extra={"part": label, "limit": quota.limit, "node": quota.newest})
        reported = bool(quota.refused)

    return tell


def aggregate(settings: Settings, shards: int) -> ProcessorFold[Aggregate]:
    """Return the fold of all partitions' sums into the global model."""
    silent_seconds = settings.model.silent_seconds
    return _merge(lambda: Aggregate(shards, silent_seconds=silent_seconds), Names(settings.prefix).model)


def federation(settings: Settings, shards: int) -> ProcessorFold[Federation]:
    """Return the fold of all partitions' directions of usage into those of all nodes."""
    silent_seconds = settings.model.silent_seconds
    return _merge(lambda: Federation(shards, silent_seconds=silent_seconds), Names(settings.prefix).subspace)


def _merge(create: Callable[[], Merge], target: str) -> ProcessorFold[Merge]:
    def fold_one(state: Merge, subject: str, payload: bytes) -> list[Row]:
        merged = state.fold(subject, payload)
        return [] if merged is None else [Row(target, codec.encode(merged))]

    return ProcessorFold(create, _singly(fold_one))


def forecast(live: Live, shards: int) -> ProcessorFold[Forecasts]:
    """Return the fold of all partitions' sums into forecasts, by the settings in force."""
    names = Names(live.current.prefix)
    if (reason := model.missing(live.current.forecast.model)) is not None:
        log.warning("forecast.model_missing", extra={"reason": reason})

    def fold_one(state: Forecasts, _subject: str, payload: bytes) -> list[Row]:
        settings = live.current
        state.params = workload.params(settings)
        try:
            sums = codec.decode(WorkloadSums, payload)
            forecasts = state.fold(sums.partition, sums.at_us, workload.sums_of(sums))
        except ValueError as error:
            raise codec.Refused(str(error)) from error
        # A subject may be longer than a server takes; `bus.publishing.bounds` withholds those rows.
        return [
            Row(
                names.of("forecast", token(made.workload.namespace), token(workload.name(made.workload))),
                codec.encode(workload.message(made, settings)),
            )
            for made in forecasts
        ]

    return ProcessorFold(lambda: Forecasts(shards, workload.params(live.current)), _singly(fold_one))


def _singly(fold_one: Callable[[State, str, bytes], Iterable[Row]]) -> Callable[[State, Messages], Result]:
    """Return a step that folds messages one by one; those for which `fold_one` raises `Refused` are invalid."""

    def step(state: State, messages: Messages) -> Result:
        outputs: list[OutputRow] = []
        invalid: list[InvalidMessage] = []
        for index, (subject, payload) in enumerate(messages):
            try:
                outputs += [OutputRow(index, row) for row in fold_one(state, subject, payload)]
            except codec.Refused as refused:
                invalid.append(InvalidMessage(index, str(refused)))
        return outputs, invalid

    return step


def _rows(outputs: Sequence[Output]) -> list[OutputRow]:
    return [OutputRow(output.index, Row(output.subject, codec.encode(output.message))) for output in outputs]
