"""One replica's part in a fold: waiting for it, taking over its state, folding exactly once, giving it back.

A term begins when the server gives us the lease. State comes from the newest checkpoint; what lies between it and
the cursor was published by an earlier owner and is folded silently; from there on each fold's rows are stored
together with the cursor, only if nobody else has moved it. So an owner may die at any instant, be stopped for any
time and go on, or never learn that another has taken over: each row is stored exactly once.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import nats.errors
from nats.aio.client import Client
from prometheus_client import Counter, Histogram

from bus import stream
from bus.folding import checkpoint
from bus.folding.checkpoint import Checkpoint
from bus.health import UNSTORED, Health
from bus.publishing import dead
from bus.publishing.batch import Fenced, Row
from bus.reading.lease import Lease, Lost
from bus.reading.linger import Linger
from bus.reading.progress import Received
from bus.reading.reader import Reader
from bus.stream import Stream
from schemas.live import Live
from schemas.subject import Names

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_READ_SECONDS = 0.5
_PATIENCE_SECONDS = 5.0
_LAST_SAVE_SECONDS = 2.0
_LONG_SECONDS = 1.0
_PATIENCE = 10  # times as long as others

FOLD = Histogram(
    "spazio_fold_duration_seconds",
    "time of one fold, without waiting for messages",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1),
)
FOLDED = Counter("spazio_messages_folded_total", "input messages folded")
ROWS = Counter("spazio_rows_published_total", "rows published by folds")
FENCED = Counter("spazio_folds_fenced_total", "folds thrown away because somebody else had folded the same messages")
LOST = Counter("spazio_leases_lost_total", "times that the server gave a part to another replica")
TERMS = Counter("spazio_terms_total", "times that this replica took a part over")
CHECKPOINTS = Counter("spazio_checkpoints_total", "checkpoints written", ["outcome"])


class Refusal(NamedTuple):
    """A message that cannot be used: its place among those folded, from 0 on, and why."""

    place: int
    reason: str


class Output(NamedTuple):
    """A row to store, and the place, among those folded, of the message that it came of."""

    place: int
    row: Row


class Fold(Protocol):
    """A value that messages are folded into."""

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[Sequence[Output], Sequence[Refusal]]:
        """Fold (stored subject, payload) pairs in stream order.

        Returns:
            What to store, in the order of what it came of, at most three rows of one message; and what is of no
            use.
        """

    def snapshot(self) -> bytes | None:
        """Return the state as bytes; None: there is none worth keeping."""

    def clear(self) -> None:
        """Forget everything."""

    def restore(self, body: bytes) -> None:
        """Take over a state; it is cleared afterwards if that fails.

        Raises:
            ValueError: It cannot be used.
        """


class Journal(Protocol):
    """Where rows are stored, and where it is written from how much input they came.

    Attributes:
        most: Rows that are stored together at most.
    """

    most: int

    async def covered(self, source: Stream) -> int:
        """Return the input sequence up to which rows are stored; 0: none."""

    async def commit(self, rows: Sequence[Row], source: Stream, sequence: int) -> None:
        """Store rows, and that they cover the input up to a sequence; all or nothing.

        Raises:
            Fenced: Another has committed since `covered` or the last commit.
        """


class Part(NamedTuple):
    """One part of the work, which one replica does at a time.

    Attributes:
        name: Of its checkpoints.
        consumer: Of the durable consumer that decides who does it.
        source: Stream that is folded.
        subjects: What of it.
        checkpoint_seconds: Time from one checkpoint to the next; None: as settings say for all parts.
        patient: Nobody waits for its rows. It collects for longer before it folds, and of all patient parts of a
            process one folds at a time, so that after a take-over their backlogs do not hold up the others.
    """

    name: str
    consumer: str
    source: str
    subjects: tuple[str, ...]
    checkpoint_seconds: float | None = None
    patient: bool = False


class Shared:
    """What all owners of a process share.

    Attributes:
        linger: How long they collect messages.
        turn: Held by the patient part that folds.
    """

    def __init__(self) -> None:
        self.linger, self.turn = Linger(), asyncio.Lock()


class Owner:
    """Does one part whenever the server gives it to this replica.

    Attributes:
        since: Time of the day at which our term began; 0: another has it, or nobody.
        sequence: Last input sequence folded.
        lag: Messages behind it.
    """

    def __init__(
        self, client: Client, live: Live, health: Health, part: Part, work: Fold, journal: Journal, shared: Shared
    ) -> None:
        """Prepare; nothing is sent before `run`."""
        self._linger, self._turn = shared.linger, shared.turn if part.patient else contextlib.nullcontext()
        self._client, self._live, self._health, self.part = client, live, health, part
        self._work, self._journal = work, journal
        settings = live.current
        self._names = Names(settings.prefix)
        self._timeout = settings.nats.request_timeout_seconds
        self._store = checkpoint.Store(client, self._names.checkpoints, timeout_seconds=self._timeout)
        self._source: Stream | None = None
        self._published = self._saved = 0
        self._whole = True
        self._leave = asyncio.Event()
        self._pause = 0.0
        self._saving: asyncio.Task[None] | None = None
        self.since = 0.0
        self.sequence = self.lag = 0

    @property
    def refolding(self) -> bool:
        """Whether it is still folded again, silently, what an earlier owner has stored."""
        return self.sequence < self._published

    def stand_down(self, pause_seconds: float) -> None:
        """Give the part back once the fold under way is done, and leave it to others for a while."""
        self._pause = pause_seconds
        self._leave.set()

    async def run(self) -> None:
        """Do the part whenever it is ours, until cancelled, whatever the server does in between."""
        while True:
            try:
                await self._term()
            except Fenced as fenced:
                FENCED.inc()
                log.warning("fold.fenced", extra={"part": self.part.name, "reason": str(fenced)})
            except Lost as lost:
                LOST.inc()
                log.info("fold.lost", extra={"part": self.part.name, "reason": str(lost)})
            except (nats.errors.Error, TimeoutError) as error:
                log.warning("fold.retried", extra={"part": self.part.name, "reason": repr(error)})
                await asyncio.sleep(_AGAIN_SECONDS)
            pause, self._pause = self._pause, 0.0
            await asyncio.sleep(pause)

    async def _term(self) -> None:
        lease = Lease(
            self._client,
            self.part.source,
            self.part.consumer,
            self.part.subjects,
            failover_seconds=self._live.current.process.failover_seconds,
            timeout_seconds=self._timeout,
            covered=self._covered,
        )
        await lease.acquire()
        self._leave.clear()
        TERMS.inc()
        self.since = time.time()
        log.info("fold.owned", extra={"part": self.part.name})
        began = time.monotonic()
        try:
            source = await self._load()
            took = round(time.monotonic() - began, 3)
            log.info("fold.resumed", extra={"part": self.part.name, "after": self.sequence, "seconds": took})
            await self._follow(lease, source)
        except Lost:
            lease.forget()
            raise
        finally:
            self.since = 0.0
            await self._end(lease)
            self._work.clear()

    async def _end(self, lease: Lease) -> None:
        """Checkpoint and give the lease back; what does not work now is replayed and timed out."""
        if self._saving is not None:
            self._saving.cancel()
        if not self._client.is_connected:
            return
        try:
            async with asyncio.timeout(_LAST_SAVE_SECONDS):
                state = self._state() if lease.held else None
                if state is not None:
                    await self._save(state)
                await lease.release()
        except TimeoutError:
            log.warning("checkpoint.skipped", extra={"part": self.part.name})

    async def _covered(self) -> int:
        return await self._journal.covered(await stream.describe(self._client, self.part.source))

    async def _load(self) -> Stream:
        """Take the newest checkpoint and find out how far rows are stored."""
        source = self._source = await stream.describe(self._client, self.part.source)
        self._published = await self._journal.covered(source)
        self._whole = True
        self._work.clear()
        self.sequence = self._saved = 0
        found = await self._store.load(self.part.name, source.identity)
        if found is not None and found.sequence > source.last:  # the stream has lost its end
            log.warning("checkpoint.set_aside", extra={"part": self.part.name, "reason": "it is ahead of its stream"})
        elif found is not None:
            try:
                async with self._turn:
                    self._work.restore(found.body)
            except ValueError as error:
                log.warning("checkpoint.set_aside", extra={"part": self.part.name, "reason": str(error)})
                self._work.clear()
            else:
                self.sequence = self._saved = found.sequence
                # A checkpoint is never ahead of its rows, but outlives the cursor when the stream ages out.
                self._published = max(self._published, found.sequence)
        if self._published and self.sequence + 1 < source.first:
            lost = {"part": self.part.name, "from": self.sequence + 1, "to": source.first - 1}
            log.warning("input.expired_unread", extra=lost)
        return source

    async def _follow(self, lease: Lease, source: Stream) -> None:
        process, loop = self._live.current.process, asyncio.get_running_loop()
        began, behind = loop.time(), True
        # Parts that were taken over together do not checkpoint together.
        due = began + self._pause_between_checkpoints() * random.uniform(0.1, 1)  # noqa: S311 # no secret
        reader = Reader(
            self._client,
            self.part.source,
            self.part.subjects,
            after=self.sequence,
            batch=process.batch,
            timeout_seconds=self._timeout,
            lease=lease,
        )
        async with reader:
            while not self._leave.is_set():
                process = self._live.current.process
                linger = self._linger.seconds(process.tick_seconds) * (_PATIENCE if self.part.patient else 1)
                messages = await reader.read(linger_seconds=linger, timeout_seconds=_READ_SECONDS)
                if messages:
                    await self._fold(messages, source)
                self.lag = reader.pending
                if behind and messages and not self.lag:
                    behind = False
                    if loop.time() - began > _LONG_SECONDS:  # whoever comes next need not fold it all again
                        due = loop.time()
                due = min(due, loop.time() + self._pause_between_checkpoints())
                if loop.time() >= due:
                    self._save_soon()
                    due = loop.time() + self._pause_between_checkpoints()

    def _pause_between_checkpoints(self) -> float:
        own = self.part.checkpoint_seconds
        return self._live.current.process.checkpoint_seconds if own is None else own

    async def _fold(self, messages: Sequence[Received], source: Stream) -> None:
        async with self._turn:
            if self.part.patient:
                await asyncio.sleep(0)  # whoever is ready goes first
            self._whole = False
            begin = time.perf_counter()
            outputs, refusals = self._work.fold([(message.subject, message.data) for message in messages])
            FOLD.observe(time.perf_counter() - begin)
        FOLDED.inc(len(messages))
        for refusal in refusals:
            refused, reason = messages[refusal.place], refusal.reason
            await dead.bury(
                self._client, self._names, "process", source.name, refused, reason, timeout_seconds=self._timeout
            )
        # What an earlier owner has stored is not stored again.
        fresh = [output for output in outputs if messages[output.place].sequence > self._published]
        for last, rows in _cut(fresh, self._journal.most):
            sequence = messages[-1 if last is None else last].sequence
            async with self._health.within(self.part.consumer, _PATIENCE_SECONDS, UNSTORED):
                await self._journal.commit(rows, source, sequence)
            self._published = sequence
            ROWS.inc(len(rows))
        self.sequence, self._whole = messages[-1].sequence, True

    def _save_soon(self) -> None:
        """Checkpoint beside the folds that follow, unless the last one is still being written."""
        if self._saving is None or self._saving.done():
            state = self._state()
            self._saving = None if state is None else asyncio.create_task(self._save(state))

    def _state(self) -> Checkpoint | None:
        """Return what is to be kept; None: nothing, or nothing new."""
        # A fold that was cut short has state that no sequence describes; it is replayed instead.
        if self.sequence == self._saved or not self._whole or self._source is None:
            return None
        body = self._work.snapshot()
        return None if body is None else Checkpoint(self._source.identity, self.sequence, body)

    async def _save(self, state: Checkpoint) -> None:
        try:
            await self._store.save(self.part.name, state)
        except (nats.errors.Error, TimeoutError) as error:
            CHECKPOINTS.labels("failed").inc()
            log.warning("checkpoint.failed", extra={"part": self.part.name, "reason": str(error)})
            return
        CHECKPOINTS.labels("written").inc()
        self._saved = state.sequence


def _cut(outputs: Sequence[Output], most: int) -> Iterator[tuple[int | None, list[Row]]]:
    """Yield rows that are stored together, and the place of the last message that they cover; None: of all messages."""
    begin = 0
    while len(outputs) - begin > most:
        end = begin + most
        while outputs[end - 1].place == outputs[end].place:  # all rows of a message, or none
            end -= 1
        yield outputs[end - 1].place, [output.row for output in outputs[begin:end]]
        begin = end
    if begin < len(outputs):
        yield None, [output.row for output in outputs[begin:]]
