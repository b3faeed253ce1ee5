"""Runs one task of a replica: waits for it, takes over its state, folds exactly once, gives it back.

A term begins when the server gives this replica the lease. The newest checkpoint restores the state. An earlier holder
has already published the rows between the checkpoint and the cursor, so those messages are folded without output.
After that, each fold stores its rows together with the cursor, only if no other replica has moved the cursor. A holder
may therefore die at any instant, be paused and resumed, or miss that another replica took over: each row is stored
exactly once.
"""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import takewhile

import nats.errors
from nats.aio.client import Client
from prometheus_client import Counter, Histogram

from bus.accounting.ledger import EXPIRED, LEDGER
from bus.api import FULL
from bus.folding import careful, resumption
from bus.folding.checkpoint import Checkpoint, Store
from bus.folding.overload.thinning import Thinning
from bus.folding.portion import Portion
from bus.folding.publication import Publication
from bus.folding.task import Fold, Journal, Shared, Task
from bus.health import Health
from bus.publishing import batch, dead
from bus.publishing.batch import Fenced
from bus.reading import feed
from bus.reading.lease import Lease, Lost
from bus.reading.progress import Received
from bus.reading.setback import Mark, SetBack
from bus.stream import Stream
from schemas.live import Live
from schemas.subject import Names

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_READ_SECONDS = 0.5
_CAREFUL_SECONDS = 0.1
_PATIENCE_SECONDS = 5.0
_LAST_SAVE_SECONDS = 2.0
_LONG_SECONDS = 1.0
_FULL_REASON = "the bucket of checkpoints is full: raise nats checkpoints_max_bytes; until then more is replayed"
_LONG_FOLD_SECONDS = 10.0
SLOW = "folding takes long (messages: {}): this machine has too little CPU time for what runs on it"

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1)
FOLD = Histogram("spazio_fold_duration_seconds", "time of one fold, without waiting for messages", buckets=_BUCKETS)
FOLDED = Counter("spazio_messages_folded_total", "input messages folded")
FENCED = Counter("spazio_folds_fenced_total", "folds discarded because another replica had folded the same messages")
LOST = Counter("spazio_leases_lost_total", "times that the server gave a part to another replica")
TERMS = Counter("spazio_terms_total", "times that this replica took over a part")
CHECKPOINTS = Counter("spazio_checkpoints_total", "checkpoints written", ["outcome"])


class TaskRunner:
    """Does one task whenever the server gives it to this replica.

    Attributes:
        since: Unix time in seconds at which this replica's term began; 0: it does not hold the task.
        sequence: Last input sequence folded.
        lag: Messages of the stream behind that sequence.
    """

    def __init__(
        self, client: Client, live: Live, health: Health, task: Task, fold: Fold, journal: Journal, shared: Shared
    ) -> None:
        """Prepare the task; nothing is sent before `run`."""
        self._worker = shared.worker
        self._linger, self._turn = shared.linger, shared.turn if task.patient else contextlib.nullcontext()
        self._client, self._live, self._health, self.task = client, live, health, task
        self._state, self._journal = fold, journal
        settings = live.current
        self._names = Names(settings.prefix)
        self._timeout = settings.nats.request_timeout_seconds
        self._store = Store(client, self._names.checkpoints, timeout_seconds=self._timeout)
        self._checkpoints = f"checkpoints of {task.name}"
        self._source: Stream | None = None
        self._account = LEDGER.account("process", task.source)
        patient, blocks = task.patient, task.subjects if task.source == self._names.telemetry else ()
        self._thinning = Thinning(shared.shedding, task.name, health, self._account, patient=patient, subjects=blocks)
        self._rows = Publication(client, journal, self._names, timeout_seconds=self._timeout)
        self._doubt, self._portion = careful.Doubt(), Portion(patient=patient)
        self._unread = resumption.Unread(task.name)
        self.sequence = self.lag = self._saved = self._stored_us = 0
        self._consistent = False  # whether the state is what `sequence` says; without that no checkpoint is written
        self._leave = asyncio.Event()
        self._saving: asyncio.Task[None] | None = None
        self.since = self._pause = 0.0

    @property
    def refolding(self) -> bool:
        """Whether this replica still folds messages whose rows an earlier holder has stored."""
        return self.sequence < self._rows.published

    def stand_down(self, pause_seconds: float) -> None:
        """Release the task after the current fold, and leave it to other replicas for a while."""
        self._pause = pause_seconds
        self._leave.set()

    async def run(self) -> None:
        """Do the task whenever this replica holds it, until cancelled; failures of the server are retried."""
        while True:
            try:
                await self._term()
            except Fenced as fenced:
                FENCED.inc()
                log.warning("fold.fenced", extra={"part": self.task.name, "reason": str(fenced)})
            except Lost as lost:
                LOST.inc()
                log.info("task.lost", extra={"part": self.task.name, "reason": str(lost)})
            except (nats.errors.Error, TimeoutError) as error:
                log.warning("fold.retried", extra={"part": self.task.name, "reason": repr(error)})
                await asyncio.sleep(_AGAIN_SECONDS)
            pause, self._pause = self._pause, 0.0
            await asyncio.sleep(pause)

    async def _term(self) -> None:
        lease = Lease(
            self._client,
            self.task.source,
            self.task.consumer,
            self.task.subjects,
            failover_seconds=self._live.current.process.failover_seconds,
            timeout_seconds=self._timeout,
            covered=self._covered,
            # Another replica stores its rows and checkpoints now.
            taken=lambda: self._health.recover(self.task.consumer, self._checkpoints),
        )
        await lease.acquire()
        self._leave.clear()
        TERMS.inc()
        self.since = time.time()
        log.info("task.acquired", extra={"part": self.task.name})
        try:
            while not self._leave.is_set():
                began = time.monotonic()
                source = await self._load()
                took = round(time.monotonic() - began, 3)
                log.info("fold.resumed", extra={"part": self.task.name, "after": self.sequence, "seconds": took})
                try:
                    await self._follow(lease, source)
                except careful.Doubtful as doubtful:
                    log.warning("fold.raised", extra={"part": self.task.name, "reason": str(doubtful)})
                    lease.keep()
                    await asyncio.sleep(_CAREFUL_SECONDS)
        except Lost:
            lease.forget()
            raise
        except SetBack:
            self._consistent = False  # the state has messages that the stream lacks now: no checkpoint of it
            raise
        finally:
            self.since = 0.0
            self._thinning.end()
            await self._end(lease)
            lease.forget()
            self._clear()

    def _clear(self) -> None:
        """Discard the state; until one is loaded, none is saved, not even by a term that ends before that."""
        self._state.clear()
        self.sequence = self.lag = self._saved = self._stored_us = 0
        self._consistent = False

    async def _end(self, lease: Lease) -> None:
        """Write a checkpoint and release the lease. If that fails, the next holder replays, and the lease times out."""
        if self._saving is not None:
            self._saving.cancel()
        if not self._client.is_connected:
            return
        try:
            async with asyncio.timeout(_LAST_SAVE_SECONDS):
                state = await self._unsaved() if lease.held else None
                if state is not None:
                    await self._save(state)
                await lease.release()
        except TimeoutError:
            log.warning("checkpoint.skipped", extra={"part": self.task.name})

    async def _covered(self) -> int:
        return await self._journal.covered(await resumption.input_of(self._client, self.task))

    async def _load(self) -> Stream:
        """Restore the newest checkpoint and read up to which input rows are stored."""
        source = self._source = await resumption.input_of(self._client, self.task)
        await self._rows.resume(source)
        self._clear()
        self._consistent, name = True, self.task.name
        checkpoint = await resumption.find(self._client, self._store, name, source, self._rows.published, self._timeout)
        if checkpoint is not None:
            try:
                async with self._turn:
                    await self._worker.run(self._state.restore, checkpoint.body)
            except Exception as error:  # noqa: BLE001 # replay rebuilds the state after any exception
                log.warning("checkpoint.set_aside", extra={"part": self.task.name, "reason": repr(error)})
                self._state.clear()
            else:
                self.sequence = self._saved = checkpoint.sequence
                self._stored_us = checkpoint.stored_us
                self._rows.skip(checkpoint.sequence)
        if not self.sequence and source.first > 1 and self.task.given is not None:
            await self._worker.run(careful.begin, self._state, await self.task.given(), name)
        self._account.add(EXPIRED, self._unread.count(max(self.sequence, self._rows.published), source))
        return source

    async def _follow(self, lease: Lease, source: Stream) -> None:
        loop, behind = asyncio.get_running_loop(), True
        began, batch = loop.time(), self._live.current.process.batch
        # Random, so that tasks taken over together do not all write checkpoints at the same time.
        due = began + self._pause_between_checkpoints() * random.uniform(0.1, 1)  # noqa: S311 # no secret
        after, patient = Mark(self.sequence, self._stored_us), self.task.patient
        async with feed.reader(self._client, lease, self.task.feed, second=patient, after=after, batch=batch) as reader:
            while not self._leave.is_set():
                linger = self._linger.seconds(self._live.current.process.tick_seconds, patient=patient)
                messages = await reader.read(linger_seconds=linger, timeout_seconds=_READ_SECONDS)
                async with self._thinning.turn(messages) as turn:
                    if not self.refolding:
                        messages = await self._thinning.thinned(reader, messages)
                    for portion in takewhile(lambda _: not self._leave.is_set(), self._portion.split(messages)):
                        await self._fold(portion, source, turn)
                self.lag = reader.pending
                if behind and messages and not self.lag:
                    behind = False
                    if loop.time() - began > _LONG_SECONDS:  # so that a next holder does not fold it all again
                        due = loop.time()
                due = min(due, loop.time() + self._pause_between_checkpoints())
                if loop.time() >= due:
                    await self._save_soon()
                    due = loop.time() + self._pause_between_checkpoints()

    def _pause_between_checkpoints(self) -> float:
        own = self.task.checkpoint_seconds
        return self._live.current.process.checkpoint_seconds if own is None else own

    async def _fold(self, messages: Sequence[Received], source: Stream, turn: AsyncExitStack) -> None:
        await self._thinning.rest()
        async with self._turn:
            if self.task.patient:
                await asyncio.sleep(0)  # other tasks that are ready run first
            self._consistent = False
            await turn.aclose()  # another task reads while this one folds: that takes longer where CPU time is short
            async with self._health.within(self.task.consumer, _LONG_FOLD_SECONDS, SLOW.format(len(messages))):
                outputs, invalid = await self._worker.run(self._timed_fold, messages)
        FOLDED.inc(len(messages))
        self._account.receive(len(messages))
        self._account.add("refused", len(invalid))
        self._account.add("folded", len(messages) - len(invalid))
        fresh = [each for each in invalid if messages[each.index].sequence > self._rows.published]
        bad = [(messages[each.index], each.reason) for each in fresh]
        async with self._health.within(self.task.consumer, _PATIENCE_SECONDS, lambda: batch.unstored(self._client)):
            await dead.bury_all(self._client, self._names, "process", source.name, bad, timeout_seconds=self._timeout)
            await self._rows.store(messages, outputs, source)
        self.sequence, self._stored_us, self._consistent = messages[-1].sequence, messages[-1].stored_us, True

    def _timed_fold(self, messages: Sequence[Received]) -> careful.Result:
        with FOLD.time(), self._portion.timed(len(messages)):
            return self._doubt.fold(self._state, messages)

    async def _save_soon(self) -> None:
        """Write a checkpoint while folding goes on, unless the last one is still being written."""
        if self._saving is None or self._saving.done():
            state = await self._unsaved()
            self._saving = None if state is None else asyncio.create_task(self._save(state))

    async def _unsaved(self) -> Checkpoint | None:
        """Return the checkpoint to write; None: there is no state, or it is saved."""
        # No sequence describes the state of a fold that was interrupted. The fold is replayed instead.
        if self.sequence == self._saved or not self._consistent or self._source is None:
            return None
        try:
            body = await self._worker.run(self._state.snapshot)
        except Exception as error:  # noqa: BLE001 # without a checkpoint the next holder replays more
            CHECKPOINTS.labels("failed").inc()
            log.warning("checkpoint.save_failed", extra={"part": self.task.name, "reason": repr(error)})
            return None
        if body is None:
            return None
        return Checkpoint(self._source.identity, self.sequence, body, self._stored_us, self._rows.recorded)

    async def _save(self, state: Checkpoint) -> None:
        try:
            await self._store.save(self.task.name, state)
        except (nats.errors.Error, TimeoutError) as error:
            CHECKPOINTS.labels("failed").inc()
            log.warning("checkpoint.save_failed", extra={"part": self.task.name, "reason": str(error)})
            if FULL in str(error):
                self._health.degrade(self._checkpoints, _FULL_REASON)
            return
        CHECKPOINTS.labels("written").inc()
        self._health.recover(self._checkpoints)
        self._saved = state.sequence
