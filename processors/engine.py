"""The one impure file of the processors: which parts of the work there are, and how each is folded and stored.

Each partition is a part, and so is the aggregation of their sums; replicas share them (`bus.crew`). What a partition
says goes into the estimates stream in one atomic batch together with its cursor; the global model goes into the
telemetry stream, where it has one place in the order of everything that is measured.
"""

import asyncio
import gc
import logging
from collections.abc import Sequence
from typing import Any

import nats.errors
from nats.aio.client import Client
from prometheus_client import Gauge

from bus import journal, stream
from bus.batch import Row
from bus.crew import Crew
from bus.health import Health
from bus.linger import Linger
from bus.owner import Fold, Output, Owner, Part, Refusal
from processors import decode, partition
from processors.aggregate import Aggregate
from processors.partition import Partition
from schemas import codec
from schemas.live import Live
from schemas.settings import Settings
from schemas.subject import Names

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
AGGREGATE = "aggregate"
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
    linger = Linger()
    folds = {str(number): PartitionFold(settings, number) for number in range(shards)}
    owners = [
        Owner(
            client,
            live,
            health,
            Part(name, f"process-{name}", names.telemetry, subjects(names, int(name))),
            fold,
            journal.Batches(client, names.estimates, names.of("cursor", name), timeout_seconds=timeout),
            linger,
        )
        for name, fold in folds.items()
    ]
    sums = Part(AGGREGATE, AGGREGATE, names.estimates, (names.of("model", "partition", "*"),))
    models = journal.Singles(client, names.telemetry, names.model, timeout_seconds=timeout)
    if settings.process.aggregate:
        owners.append(Owner(client, live, health, sums, AggregateFold(settings, shards), models, linger))

    def about(part: str) -> dict[str, Any]:
        return {"nodes": folds[part].nodes} if part in folds else {}

    await Crew(client, settings.prefix, owners, about).run()


def subjects(names: Names, number: int) -> tuple[str, ...]:
    """Return what a partition folds: what is measured on its nodes, and the global model."""
    return (*(names.part(number, kind) for kind in decode.KINDS), names.model)


async def _shards(client: Client, names: Names) -> int:
    while True:
        try:
            return (await stream.describe(client, names.telemetry)).partitions
        except (nats.errors.Error, TimeoutError) as error:
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

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[list[Output], list[Refusal]]:
        """Fold (stored subject, payload) pairs; return what to store, and what is of no use."""
        outputs, refusals = self._partition.fold(messages)
        label = str(self._number)
        NODES.labels(label).set(self._partition.nodes)
        WITHHELD.labels(label).set(self._partition.withheld)
        IGNORED.labels(label).set(self._partition.ignored)
        return rows(outputs), [Refusal(refusal.index, refusal.reason) for refusal in refusals]

    def snapshot(self) -> bytes | None:
        """Return the state as bytes; None: no node is known."""
        return self._partition.snapshot() if self._partition.nodes else None

    def restore(self, body: bytes) -> None:
        """Take over a state.

        Raises:
            ValueError: It cannot be used.
        """
        self._partition.restore(body)


def rows(said: Sequence[partition.Output]) -> list[Output]:
    """Return what a partition says as it is stored."""
    return [Output(output.place, Row(output.subject, codec.encode(output.message))) for output in said]


class AggregateFold(Fold):
    """The aggregate as rows and bytes."""

    def __init__(self, settings: Settings, shards: int) -> None:
        self._subject = Names(settings.prefix).model
        self._aggregate = Aggregate(shards, silent_seconds=settings.model.silent_seconds)

    def clear(self) -> None:
        """Forget everything."""
        self._aggregate.clear()

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[list[Output], list[Refusal]]:
        """Fold (stored subject, payload) pairs; return what to store, and what is of no use."""
        made: list[Output] = []
        refusals: list[Refusal] = []
        for index, (subject, payload) in enumerate(messages):
            try:
                model = self._aggregate.fold(subject, payload)
            except codec.Refused as refused:
                refusals.append(Refusal(index, str(refused)))
                continue
            if model is not None:
                made.append(Output(index, Row(self._subject, codec.encode(model))))
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
