"""What a processor leaves out when its machine cannot keep up, so that availability stays fresh.

First goes what a node sends beyond anything that an agent has to say, as soon as availability is behind at all. All
else is left out of all nodes alike. While a task is behind, those that nothing waits for hardly fold. A task that is
behind and catches up, as after an outage, leaves nothing of it out: its rows stay exact. One that stays behind cannot
keep up. Then, in this order, tasks that nothing waits for fold few of their batches, and the others fold the newest
block of each node in a batch and leave out the older ones. Only blocks are left out, of which the next one says the
same a second later; facts and events are always folded. What is left out is counted as flooded or skipped.

A step is taken back when nothing has been behind for a while, and, since a processor that leaves blocks out is not
behind, only once there are hardly any to leave out. Whether it can be done without is then only a trial: what falls
behind soon after is left out again at once. Within a minute after a machine can keep up again everything is folded.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from prometheus_client import Counter

from bus.accounting.ledger import Account
from bus.folding import flood
from bus.folding.flood import Floods
from bus.health import Health
from bus.reading.progress import Received, behind_seconds
from bus.reading.reader import Reader
from schemas.subject import kind_and_node

log = logging.getLogger(__name__)

_PRESSED_SECONDS = 1.0  # a busy processor that keeps up collects for at most 0.6 s
_BEHIND_SECONDS = 3.0
_PATIENT_BEHIND_SECONDS = 20.0
_OBSERVED_SECONDS, _NEXT_SECONDS = 4.0, 2.0  # before the first step, and before the next: predictions rest already
_CATCHES_UP = 0.25  # seconds gained a second; less is not worth to wait for
_CALM_SECONDS = 20.0  # without a delay before a step is taken back, and how long that is a trial
_TRIED_SECONDS = 1.0  # observed during a trial
_SPARED = 0.05  # share of blocks left out below which a machine could have folded them all
_LOGGED_SECONDS = 60.0
_TURN_SECONDS = 5.0  # for which one waits for its turn
_RESTED_SECONDS = 5.0  # for which a fold of a patient task waits for others that are behind
_NAMED = 5
_THINNED = 4  # of so many batches a patient task folds one
NONE, PREDICTIONS, BLOCKS = range(3)
_PART = "overload"
_READ_SECONDS = 0.5
_MOST = 20_000  # messages that are kept at most before they are folded
_AT_ONCE = 5_000  # messages that are looked through together
_LEFT_OUT = {
    PREDICTIONS: f"predictions are made of one of {_THINNED} batches",
    BLOCKS: "predictions are made of few blocks, and availability of the newest block of each node",
}
_REMEDY = "this machine has too little CPU time for its nodes: add cores or a processor, or let it have fewer nodes"


SKIPPED = Counter("spazio_messages_skipped_total", "messages left out because the machine cannot keep up", ["part"])
FLOODED = Counter(
    "spazio_messages_flooded_total",
    "messages left out while a processor was behind, of nodes that sent far more than an agent has to say",
    ["part"],
)


class _Delay:
    """How far a kind of task is behind, and whether it catches up."""

    def __init__(self) -> None:
        self._behind: dict[str, float] = {}
        self._since = self._before = 0.0

    def stays(self, task: str, seconds: float, now: float, *, bound: float, observed: float) -> bool:
        """Take in how far a task is behind; tell whether the worst stays behind.

        Args:
            task: Its name.
            seconds: How far it is behind.
            now: The time.
            bound: More than this is behind.
            observed: Seconds in which the worst has to catch up by `_CATCHES_UP` each.
        """
        self._behind[task] = seconds
        worst = self.worst
        if worst <= bound:
            self._since = 0.0
            return False
        if not self._since:
            self._since, self._before = now, worst
        elif (passed := now - self._since) >= observed:
            gained, self._since, self._before = (self._before - worst) / passed, now, worst
            return gained < _CATCHES_UP
        return False

    @property
    def worst(self) -> float:
        return max(self._behind.values(), default=0.0)

    def end(self, task: str) -> None:
        self._behind.pop(task, None)


class Shedding:
    """What all tasks of a process leave out now.

    Attributes:
        blocks: Kinds of which a later message says the same as the one before; empty: nothing is ever left out.
        level: `NONE`, `PREDICTIONS` or `BLOCKS`.
        in_time: Set while no task of availability is behind; otherwise a patient one lets it have the thread.
        turn: Held by the task of availability that reads and folds, while blocks are left out.
    """

    def __init__(self, blocks: Collection[str] = (), clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without leaving anything out; `clock` returns seconds."""
        self.blocks, self._clock = frozenset(blocks), clock
        self._delays = {False: _Delay(), True: _Delay()}
        self._batches: dict[str, int] = {}
        self._last, self._pressed, self._taken_back = 0.0, -_CALM_SECONDS, -_CALM_SECONDS
        self._folded = self._left_out = 0
        self.level, self.in_time, self.turn = NONE, asyncio.Event(), asyncio.Lock()
        self.in_time.set()

    @property
    def reason(self) -> str:
        """What is left out and what would help; empty: nothing is."""
        return f"{_LEFT_OUT[self.level]}; {_REMEDY}" if self.level else ""

    def observe(self, task: str, seconds: float, health: Health, *, patient: bool) -> None:
        """Take in how far a task is behind."""
        if not self.blocks:
            return
        now, before = self._clock(), self.level
        if not patient and seconds > _PRESSED_SECONDS:
            self._pressed = now
        bound, observed = self._bounds(now, patient=patient)
        if self._delays[patient].stays(task, seconds, now, bound=bound, observed=observed):
            self._last, self._folded, self._left_out = now, 0, 0
            self.level = max(self.level, PREDICTIONS) if patient else min(self.level + 1, BLOCKS)
        elif self.level and now - self._last > _CALM_SECONDS:
            self._last = now
            if not self._spares_much():
                self._taken_back, self.level = now, self.level - 1
        self._see_who_is_late()
        if self.level:
            health.degrade(_PART, self.reason)
        elif before:
            health.recover(_PART)

    def _bounds(self, now: float, *, patient: bool) -> tuple[float, float]:
        """Return from when on a task is behind, and for how long it is observed before a step, in seconds."""
        if patient:
            return _PATIENT_BEHIND_SECONDS, _OBSERVED_SECONDS
        if now - self._taken_back < _CALM_SECONDS:
            return _PRESSED_SECONDS, _TRIED_SECONDS
        return _BEHIND_SECONDS, _NEXT_SECONDS if self.level else _OBSERVED_SECONDS

    def count(self, folded: int, left_out: int) -> None:
        """Take in what a task of availability folds and leaves out, in messages."""
        self._folded += folded
        self._left_out += left_out

    def _spares_much(self) -> bool:
        """Tell whether a considerable share of messages was left out since this was last asked."""
        folded, left_out, self._folded, self._left_out = self._folded, self._left_out, 0, 0
        return left_out > _SPARED * (folded + left_out)

    def end(self, task: str, health: Health) -> None:
        """Forget a task that this process does not hold any more; while no other is behind nothing is left out."""
        for delay in self._delays.values():
            delay.end(task)
        self._see_who_is_late()
        if self.level and not any(delay.worst for delay in self._delays.values()):
            self.level, self._folded, self._left_out = NONE, 0, 0
            health.recover(_PART)

    def _see_who_is_late(self) -> None:
        late = self._delays[False].worst > _BEHIND_SECONDS
        (self.in_time.clear if late else self.in_time.set)()

    def kept(self, task: str, messages: Sequence[Received], *, patient: bool) -> list[Received]:
        """Return the messages to fold. The last one stays, so that the task has a position."""
        if not self.sheds(patient=patient):
            return list(messages)
        if patient:
            self._batches[task] = number = self._batches.get(task, 0) + 1
            wanted: Collection[int] = () if number % _THINNED else range(len(messages))
        else:
            wanted = flood.newest(messages)
        last = len(messages) - 1
        return [
            message
            for index, message in enumerate(messages)
            if index in wanted or index == last or kind_and_node(message.subject)[0] not in self.blocks
        ]

    def pressed(self) -> bool:
        """Tell whether a task of availability was behind lately, so that floods are left out of all tasks."""
        return bool(self.blocks) and self._clock() - self._pressed < _CALM_SECONDS

    def sheds(self, *, patient: bool) -> bool:
        """Tell whether tasks of this kind leave something out."""
        return self.level >= (PREDICTIONS if patient else BLOCKS)


class Thinning:
    """What one task leaves out of what it reads."""

    def __init__(
        self, shedding: Shedding, task: str, health: Health, account: Account, *, patient: bool, blocks: bool
    ) -> None:
        """Describe the task; it counts messages in `account`, and nothing is left out of one that reads no blocks."""
        self._shedding, self._task, self._patient, self._blocks = shedding, task, patient, blocks
        self._health, self._account = health, account
        self._floods, self._logged = Floods(shedding.blocks), -_LOGGED_SECONDS

    async def thinned(self, reader: Reader, messages: list[Received]) -> list[Received]:
        """Return what is to be folded of messages that were read; while something is left out, read up to the newest.

        Raises:
            Lost, StreamRecreated, SetBack: As `Reader.read`.
        """
        if not self._blocks:
            return messages
        behind = behind_seconds(messages, reader.pending) if messages else 0.0
        self._shedding.observe(self._task, behind, self._health, patient=self._patient)
        if not messages:
            return messages
        kept, left_out, fresh = list(self._calm(messages)), 0, 0
        if not self._patient and self._shedding.sheds(patient=False):
            kept += self._calm(await reader.read(timeout_seconds=0))  # what has come while it waited for its turn
        while self._shedding.sheds(patient=self._patient) and reader.pending > len(messages) and len(kept) < _MOST:
            if not (messages := await reader.read(timeout_seconds=_READ_SECONDS)):
                break
            kept += self._calm(messages)
            fresh += len(messages)
            if fresh > _AT_ONCE:
                kept, more = self._kept(kept)
                left_out, fresh = left_out + more, 0
        kept, more = self._kept(kept)
        left_out += more
        if not self._patient:
            self._shedding.count(len(kept), left_out)
        return kept

    def _calm(self, messages: list[Received]) -> list[Received]:
        """Return messages that were read without what nodes have flooded the task with, if processors are behind.

        Nothing is counted while none is: it would cost more than what it is for.
        """
        if not self._shedding.pressed() or not (nodes := self._floods.beyond(messages)):
            return messages
        kept, flooded = flood.without(messages, nodes, self._shedding.blocks)
        if left_out := len(messages) - len(kept):
            FLOODED.labels(self._task).inc(left_out)
            self._account.receive(left_out)
            self._account.add("flooded", left_out)
            if (now := time.monotonic()) - self._logged >= _LOGGED_SECONDS:
                self._logged = now
                names = ",".join(sorted(flooded)[:_NAMED])
                log.warning("node.flooding", extra={"part": self._task, "nodes": names, "left_out": left_out})
        return kept

    def _kept(self, messages: Sequence[Received]) -> tuple[list[Received], int]:
        """Return what stays, and how many messages are left out."""
        kept = self._shedding.kept(self._task, messages, patient=self._patient)
        if skipped := len(messages) - len(kept):
            SKIPPED.labels(self._task).inc(skipped)
            self._account.receive(skipped)
            self._account.add("skipped", skipped)
        return kept, skipped

    @asynccontextmanager
    async def turn(self, messages: Sequence[Received]) -> AsyncIterator[AsyncExitStack]:
        """Wait until no other task of availability reads and folds, while blocks are left out of messages.

        There is one thread for the folds of a process. What was read before another task's fold would be old after it.
        A task whose reader does not get on holds up the others for a while only.

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
        self._shedding.end(self._task, self._health)
