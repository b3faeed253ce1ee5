"""The one impure file of the processors: reads the stream, folds, publishes, checkpoints.

Each partition is folded on its own. What a fold says goes into the estimates stream in one atomic batch together
with the partition's cursor, and only if nobody else has moved that cursor; state is checkpointed behind it. So a
process may be killed at any instant: the next one takes the newest checkpoint, folds silently up to the cursor, and
goes on from there, and every row is stored exactly once.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

import nats.errors
from nats.aio.client import Client
from nats.js.errors import APIError
from prometheus_client import Counter, Gauge, Histogram
from pydantic import ValidationError

from bus import batch, checkpoint, dead, stream
from bus.health import UNSTORED, Health
from bus.pull import Reader, Received
from processors import aggregate, decode
from processors.partition import Output, Partition
from processors.plan import Watermark
from schemas import codec
from schemas.estimate import Cursor, Model
from schemas.settings import Settings
from schemas.subject import Names

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_READ_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0
_WRONG_LAST_SEQUENCE = 10071

FOLD = Histogram(
    "spazio_fold_duration_seconds",
    "time of one fold, without waiting for messages",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1),
)
FOLDED = Counter("spazio_messages_folded_total", "input messages folded")
ROWS = Counter("spazio_rows_published_total", "rows published by folds")
FENCED = Counter("spazio_folds_fenced_total", "folds thrown away because somebody else had folded the same messages")
CHECKPOINTS = Counter("spazio_checkpoints_total", "checkpoints written", ["outcome"])
NODES = Gauge("spazio_nodes", "nodes known", ["partition"])
WITHHELD = Gauge("spazio_messages_withheld", "messages not made because cpu or memory is unknown", ["partition"])
IGNORED = Gauge(
    "spazio_container_events_ignored",
    "container events that open no window: of a node without blocks, or a minute away from its newest one",
    ["partition"],
)
REFUSED = Counter("spazio_sums_refused_total", "partition sums that the aggregator could not use")


async def run(client: Client, settings: Settings, health: Health) -> None:
    """Process every partition, and aggregate their sums, until cancelled; then checkpoint."""
    shards = await _shards(client, settings)
    async with asyncio.TaskGroup() as group:
        for number in range(shards):
            group.create_task(_again(_Owner(client, settings, health, number).run, f"partition-{number}"))
        group.create_task(_again(_Aggregator(client, settings, shards).run, "aggregator"))


async def _shards(client: Client, settings: Settings) -> int:
    while True:
        try:
            return (await stream.describe(client, Names(settings.prefix).telemetry)).partitions
        except (nats.errors.Error, TimeoutError) as error:
            log.warning("fold.waiting", extra={"reason": repr(error)})
            await asyncio.sleep(_AGAIN_SECONDS)


async def _again(run_once: Callable[[], Awaitable[None]], name: str) -> None:
    """Run for ever, from the stored state on, whatever the server does in between."""
    while True:
        try:
            await run_once()
        except batch.Fenced as fenced:
            FENCED.inc()
            log.warning("fold.fenced", extra={"task": name, "reason": str(fenced)})
        except (nats.errors.Error, TimeoutError) as error:
            log.warning("fold.retried", extra={"task": name, "reason": repr(error)})
        await asyncio.sleep(_AGAIN_SECONDS)


class _Owner:
    """Folds one partition."""

    def __init__(self, client: Client, settings: Settings, health: Health, number: int) -> None:
        self._client, self._settings, self._health, self._number = client, settings, health, number
        self._names = Names(settings.prefix)
        self._cursor_subject = self._names.of("cursor", str(number))
        self._timeout = settings.nats.request_timeout_seconds
        self._store = checkpoint.Store(client, self._names.checkpoints, timeout_seconds=self._timeout)
        self._partition = Partition(settings, number)
        self._identity = ""
        self._folded = self._published = self._saved = self._expected = 0
        self._whole = True

    async def run(self) -> None:
        await self._load()
        await self._follow()

    async def _load(self) -> None:
        """Take the newest checkpoint and find out how far rows are published."""
        telemetry = await stream.describe(self._client, self._names.telemetry)
        self._identity = telemetry.identity
        self._published, self._expected = await batch.covered(
            self._client, self._names.estimates, self._cursor_subject, telemetry
        )
        self._whole = True
        self._partition = Partition(self._settings, self._number)
        self._folded = self._saved = 0
        found = await self._store.load(str(self._number), self._identity)
        if found is not None:
            try:
                self._partition.restore(found.body)
            except ValueError as error:
                log.warning("checkpoint.set_aside", extra={"partition": self._number, "reason": str(error)})
                self._partition = Partition(self._settings, self._number)
            else:
                self._folded = self._saved = found.sequence
                # A checkpoint is never ahead of its rows, but outlives the cursor when the stream ages out.
                self._published = max(self._published, found.sequence)
        if self._published and self._folded + 1 < telemetry.first:
            lost = {"partition": self._number, "from": self._folded + 1, "to": telemetry.first - 1}
            log.warning("telemetry.expired_unread", extra=lost)

    async def _follow(self) -> None:
        subjects = [*(self._names.part(self._number, kind) for kind in decode.KINDS), self._names.model]
        process = self._settings.process
        loop = asyncio.get_running_loop()
        due = loop.time() + process.checkpoint_seconds
        reader = Reader(
            self._client,
            self._names.telemetry,
            subjects,
            after=self._folded,
            batch=process.batch,
            timeout_seconds=self._timeout,
        )
        async with reader:
            try:
                while True:
                    messages = await reader.read(linger_seconds=process.tick_seconds, timeout_seconds=_READ_SECONDS)
                    for part in self._parts(messages):
                        await self._fold(part)
                    if loop.time() >= due:
                        await self._save()
                        due = loop.time() + process.checkpoint_seconds
            finally:
                await self._save_last()

    def _parts(self, messages: list[Received]) -> list[list[Received]]:
        """Split so that a part is published wholly or not at all, and so that its rows fit one batch."""
        silent = [message for message in messages if message.sequence <= self._published]
        fresh = messages[len(silent) :]
        # A block makes at most a smoothed and an availability row, and the partition's sum may come between.
        size = batch.MAXIMUM_ROWS // 3
        return ([silent] if silent else []) + [fresh[start : start + size] for start in range(0, len(fresh), size)]

    async def _fold(self, messages: Sequence[Received]) -> None:
        self._whole = False
        begin = time.perf_counter()
        outputs, refusals = self._partition.fold([(message.subject, message.data) for message in messages])
        FOLD.observe(time.perf_counter() - begin)
        FOLDED.inc(len(messages))
        NODES.labels(str(self._number)).set(self._partition.nodes)
        WITHHELD.labels(str(self._number)).set(self._partition.withheld)
        IGNORED.labels(str(self._number)).set(self._partition.ignored)
        for refusal in refusals:
            await dead.bury(
                self._client,
                self._names,
                "process",
                self._names.telemetry,
                messages[refusal.index],
                refusal.reason,
                timeout_seconds=self._timeout,
            )
        sequence = messages[-1].sequence
        if outputs and sequence > self._published:
            await self._publish(outputs, sequence)
        self._folded, self._whole = sequence, True

    async def _publish(self, outputs: list[Output], sequence: int) -> None:
        cursor = Cursor(stream=self._names.telemetry, created=self._identity, sequence=sequence)
        async with self._health.within(f"partition {self._number}", _PATIENCE_SECONDS, UNSTORED):
            self._expected = await batch.publish(
                self._client,
                self._names.estimates,
                [batch.Row(output.subject, codec.encode(output.message)) for output in outputs],
                batch.Row(self._cursor_subject, codec.encode(cursor)),
                self._expected,
                timeout_seconds=self._timeout,
            )
        self._published = sequence
        ROWS.inc(len(outputs))

    async def _save(self) -> None:
        behind = self._folded == self._saved or self._folded < self._published
        # A fold that was cut short has state that no sequence describes; it is replayed instead.
        if behind or not self._whole or not self._partition.nodes:
            return
        state = checkpoint.Checkpoint(self._identity, self._folded, self._partition.snapshot())
        try:
            await self._store.save(str(self._number), state)
        except (nats.errors.Error, TimeoutError) as error:
            CHECKPOINTS.labels("failed").inc()
            log.warning("checkpoint.failed", extra={"partition": self._number, "reason": str(error)})
            return
        CHECKPOINTS.labels("written").inc()
        self._saved = self._folded

    async def _save_last(self) -> None:
        """Checkpoint on the way out; what does not work then is replayed at the next start."""
        if not self._client.is_connected:
            return
        try:
            async with asyncio.timeout(2):
                await self._save()
        except TimeoutError:
            log.warning("checkpoint.skipped", extra={"partition": self._number})


class _Aggregator:
    """Adds the last sums of every partition, in partition order, once per event second."""

    def __init__(self, client: Client, settings: Settings, shards: int) -> None:
        self._client, self._settings, self._shards = client, settings, shards
        self._names = Names(settings.prefix)
        self._timeout = settings.nats.request_timeout_seconds
        self._sums: dict[int, Model] = {}
        self._watermark = Watermark()
        self._expected = 0
        self._emitted = 0

    async def run(self) -> None:
        await self._load()
        subjects = [self._names.of("model", "partition", "*")]
        async with Reader(
            self._client, self._names.estimates, subjects, newest=True, timeout_seconds=self._timeout
        ) as reader:
            while True:
                for message in await reader.read():
                    try:
                        model = self._believed(message)
                    except codec.Refused as refusal:
                        REFUSED.inc()
                        log.warning("aggregator.refused", extra={"subject": message.subject, "reason": str(refusal)})
                        continue
                    await self._add(model)

    def _believed(self, message: Received) -> Model:
        model = codec.decode(Model, message.data)
        named = message.subject.rpartition(".")[2]
        if model.scope != "partition" or str(model.partition) != named or int(named) >= self._shards:
            raise codec.Refused(f"{model.scope} {model.partition} on the subject of partition {named}")
        return model

    async def _load(self) -> None:
        stored = await batch.last(self._client, self._names.telemetry, self._names.model)
        self._expected = stored.sequence
        try:
            self._emitted = codec.decode(Model, stored.payload).at_us // 1_000_000 if stored.sequence else 0
        except codec.Refused:
            log.warning("aggregator.unreadable_model", extra={"sequence": stored.sequence})

    async def _add(self, model: Model) -> None:
        after = self._watermark.seen(model.at_us // 1_000_000)
        ended, self._watermark = self._watermark.second, after
        if ended and ended not in (after.second, self._emitted):
            await self._emit(ended)
        if model.partition is not None:
            self._sums[model.partition] = model

    async def _emit(self, second: int) -> None:
        try:
            whole = aggregate.merge(self._sums, second, silent_seconds=self._settings.model.silent_seconds)
        except ValidationError as error:  # each sum may be believed, and all of them together be too much
            REFUSED.inc()
            log.warning("aggregator.refused", extra={"second": second, "reason": str(error)})
            return
        if whole is None:
            return
        headers = {"Nats-Expected-Last-Subject-Sequence": str(self._expected)}
        js = self._client.jetstream(timeout=self._timeout)
        try:
            self._expected = (await js.publish(self._names.model, codec.encode(whole), headers=headers)).seq
            self._emitted = second
        except APIError as error:
            if error.err_code != _WRONG_LAST_SEQUENCE:
                raise
            log.info("aggregator.fenced", extra={"second": second})
            await self._load()
