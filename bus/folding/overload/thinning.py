"""What one task leaves out of what it reads, when its processor cannot keep up.

Of what was read the older blocks go. Reading costs, too: where a task is far behind, it goes on near the end of the
stream, and the server sends it none of the blocks before. Facts and events are read there all the same. Floods of
single nodes are left out of all that is read, also of events.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from prometheus_client import Counter

from bus.accounting.ledger import Account
from bus.folding.overload import flood
from bus.folding.overload.flood import Floods
from bus.folding.overload.lag import Lag
from bus.folding.overload.shedding import Shedding
from bus.health import Health
from bus.reading.leased import LeasedReader
from bus.reading.progress import Received
from schemas.channel import CONTAINERS, EDGE, TELEMETRY_KINDS

log = logging.getLogger(__name__)

_LOGGED_SECONDS = 60.0
_TURN_SECONDS = 5.0  # for which one waits for its turn
_RESTED_SECONDS = 5.0  # for which a fold of a patient task waits for others that are behind
_NAMED = 5
_OF_EVENTS = f".{CONTAINERS}."
_READ_SECONDS = 0.5
_MOST = 20_000  # messages that are kept at most before they are folded
_AT_ONCE = 5_000  # messages that are looked through together
_FAR_SECONDS = 3.0  # behind from which on blocks are not even read; to ask for that takes the server some answers
_SHOWN_SECONDS = 1.25  # before the end of the stream at which a task goes on: each node has sent a block there

SKIPPED = Counter("spazio_messages_skipped_total", "messages left out because the machine cannot keep up", ["part"])
FLOODED = Counter(
    "spazio_messages_flooded_total",
    "messages left out while a processor was behind, of nodes that sent far more than an agent has to say",
    ["part"],
)


def never_left_out(subjects: Sequence[str], blocks: Collection[str]) -> list[str]:
    """Return filters for what a task folds in any case of the subjects that it reads.

    Args:
        subjects: As the telemetry stream stores them; one that ends with `>` stands for all kinds of a partition.
        blocks: Kinds that may be left out. Those of edge agents are read, too: some of them say what others do not.

    >>> never_left_out(("spazio.part.0.>", "spazio.model"), ("samples", "pods", "edge"))[-2:]
    ['spazio.part.0.podfacts.*', 'spazio.model']
    """
    kinds = [kind for kind in TELEMETRY_KINDS if kind not in blocks or kind == EDGE]
    return [
        filtered
        for subject in subjects
        for filtered in ([f"{subject[:-1]}{kind}.*" for kind in kinds] if subject.endswith(">") else [subject])
    ]


class Thinning:
    """What one task leaves out of what it reads."""

    def __init__(
        self,
        shedding: Shedding,
        task: str,
        health: Health,
        account: Account,
        *,
        patient: bool,
        subjects: Sequence[str] = (),
    ) -> None:
        """Describe the task; it counts messages in `account`.

        Args:
            shedding: What all tasks of the process leave out.
            task: Name of the task.
            health: Where what is left out is reported.
            account: Counts what is left out.
            patient: Nothing waits for its rows.
            subjects: What it reads of the telemetry stream; empty: it reads no blocks, and nothing is left out.
        """
        self._shedding, self._task, self._patient, self._blocks = shedding, task, patient, bool(subjects)
        self._apart = never_left_out(subjects, shedding.blocks)
        self._health, self._account = health, account
        self._floods = [Floods(shedding.blocks), Floods((CONTAINERS,), flood.EVENTS)]
        self._logged, self._lag = -_LOGGED_SECONDS, Lag()

    async def thinned(self, reader: LeasedReader, messages: list[Received]) -> list[Received]:
        """Return what is to be folded of messages that were read; while something is left out, read up to the newest.

        Raises:
            Lost, StreamRecreated, SetBack: As `Reader.read`.
        """
        if not self._blocks:
            return messages
        self._lag.take(messages)
        behind = self._lag.seconds(messages, reader.pending) if messages else 0.0
        self._shedding.observe(self._task, behind, self._health, patient=self._patient)
        if not messages:
            return messages
        kept, left_out = list(self._calm(messages)), 0
        if behind > _FAR_SECONDS and self._shedding.sheds(patient=False):
            kept += await self._skip_ahead(reader)
        if not self._patient and self._shedding.sheds(patient=False):
            kept += self._calm(await self._next(reader, 0))  # what has come while it waited for its turn
        if self._shedding.sheds(patient=self._patient):
            kept, left_out = await self._read_on(reader, kept)
        kept, more = self._kept(kept)
        left_out += more + self._skip(reader.take_skipped())
        if not self._patient:
            self._shedding.count(len(kept), left_out)
        return kept

    async def _skip_ahead(self, reader: LeasedReader) -> list[Received]:
        """Go on near the end of the stream; return what is kept of what was read.

        Messages that are read in vain, since the server does not answer in time, come again: they spend no credit.
        """
        floods, flooded = [each.copy() for each in self._floods], set[str]()

        def calm(messages: list[Received]) -> list[Received]:
            kept, nodes = self._without_floods(messages, floods)
            flooded.update(nodes)
            return kept

        ahead = await reader.skip_ahead(_SHOWN_SECONDS, self._apart, calm)
        self._lag.skip()
        if ahead.continues:
            self._floods = floods
            self._flood(ahead.left_out, flooded)
        return ahead.messages

    async def _read_on(self, reader: LeasedReader, kept: list[Received]) -> tuple[list[Received], int]:
        """Read what waits and go on up to the newest, but not for ever; returns what stays, and what is left out."""
        waited, read = reader.pending, 0
        left_out = fresh = latest = 0
        while reader.pending > (latest if read >= waited else 0) and read < 2 * waited and len(kept) < _MOST:
            if not (messages := await self._next(reader, _READ_SECONDS)):
                break
            latest = len(messages)
            read += latest
            calm = self._calm(messages)
            kept += calm
            fresh += len(calm)
            if fresh > _AT_ONCE and not self._patient:  # what a patient task reads in one go is one batch
                kept, more = self._kept(kept)
                left_out, fresh = left_out + more, 0
        return kept, left_out

    async def _next(self, reader: LeasedReader, seconds: float) -> list[Received]:
        messages = await reader.read(timeout_seconds=seconds)
        self._lag.take(messages)
        return messages

    def _calm(self, messages: list[Received]) -> list[Received]:
        """Return messages that were read without what nodes have flooded the task with, and count that."""
        kept, flooded = self._without_floods(messages, self._floods)
        self._flood(len(messages) - len(kept), flooded)
        return kept

    def _without_floods(self, messages: list[Received], each: Sequence[Floods]) -> tuple[list[Received], set[str]]:
        """Return what stays of messages that were read, and the nodes that flood, if processors are behind.

        No credit is spent while none is: it would cost more than what it is for.
        """
        kept, flooded = messages, set[str]()
        if not self._shedding.pressed():
            return kept, flooded
        events = [message for message in messages if _OF_EVENTS in message.subject]
        for floods, sent in zip(each, (messages, events), strict=True):
            if nodes := floods.beyond(sent):
                kept, names = flood.without(kept, nodes, floods.kinds)
                flooded |= names
        return kept, flooded

    def _flood(self, left_out: int, nodes: Collection[str]) -> None:
        """Count messages that are left out, since nodes have flooded the task with them."""
        if not left_out:
            return
        FLOODED.labels(self._task).inc(left_out)
        self._account.receive(left_out)
        self._account.add("flooded", left_out)
        if (now := time.monotonic()) - self._logged >= _LOGGED_SECONDS:
            self._logged = now
            listed = ",".join(sorted(nodes)[:_NAMED])
            log.warning("node.flooding", extra={"part": self._task, "nodes": listed, "left_out": left_out})

    def _kept(self, messages: Sequence[Received]) -> tuple[list[Received], int]:
        """Return what stays, and how many messages are left out."""
        kept = self._shedding.kept(self._task, messages, patient=self._patient)
        return kept, self._skip(len(messages) - len(kept))

    def _skip(self, count: int) -> int:
        """Count messages that are left out."""
        if count:
            SKIPPED.labels(self._task).inc(count)
            self._account.receive(count)
            self._account.add("skipped", count)
        return count

    @asynccontextmanager
    async def turn(self, messages: Sequence[Received]) -> AsyncIterator[AsyncExitStack]:
        """Wait until no other task of availability reads, while blocks are left out of messages.

        There is one thread for the folds of a process: what was read before the folds of several other tasks would be
        old after them. A task whose reader does not get on holds up the others for a while only.

        Yields:
            What is held until the end of the block; it may be closed earlier.
        """
        async with AsyncExitStack() as held:
            if messages and self._blocks and not self._patient and self._shedding.sheds(patient=False):
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TURN_SECONDS):
                        await held.enter_async_context(self._shedding.turn)
            yield held

    async def rest(self) -> None:
        """Wait before a fold of a patient task while others are behind, but not for long."""
        if self._patient:
            with suppress(TimeoutError):
                async with asyncio.timeout(_RESTED_SECONDS):
                    await self._shedding.in_time.wait()

    def end(self) -> None:
        """Forget how far the task was behind."""
        self._lag = Lag()
        self._shedding.end(self._task, self._health)
