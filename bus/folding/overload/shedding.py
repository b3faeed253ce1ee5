"""What a processor leaves out when its machine cannot keep up, so that availability stays fresh.

First goes what a node sends beyond anything that an agent has to say, as soon as availability is behind at all. All
else is left out of all nodes alike. While a task is behind, those that nothing waits for hardly fold. A task that is
behind and catches up, as after an outage, leaves nothing of it out: its rows stay exact. One that stays behind cannot
keep up. Then, in this order, tasks that nothing waits for fold few of their batches, and the others fold the newest
block of each node in a batch and leave out the older ones. Only blocks are left out of all nodes, of which the next one
says the same a second later; facts are always folded, and so are events but for floods of single nodes. What is left
out is counted as flooded or skipped.

A step is taken back when nothing has been behind for a while, and, since a processor that leaves blocks out is not
behind, only once there are hardly any to leave out. Whether it can be done without is then only a trial: what falls
behind soon after is left out again at once. Within a minute after a machine can keep up again everything is folded.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence

from bus.folding.overload import flood
from bus.health import Health
from bus.reading.progress import Received
from schemas.subject import kind_and_node

_PRESSED_SECONDS = 1.0  # a busy processor that keeps up collects for at most 0.6 s
_BEHIND_SECONDS = 3.0
_PATIENT_BEHIND_SECONDS = 20.0
_OBSERVED_SECONDS, _NEXT_SECONDS = 4.0, 2.0  # before the first step, and before the next: predictions rest already
_CATCHES_UP = 0.25  # seconds gained a second; less is not worth to wait for
_CALM_SECONDS = 20.0  # without a delay before a step is taken back, and how long that is a trial
_TRIED_SECONDS = 1.0  # observed during a trial
_SPARED = 0.05  # share of blocks left out below which a machine could have folded them all
_THINNED = 4  # of so many batches a patient task folds one
NONE, PREDICTIONS, BLOCKS = range(3)
_PART = "overload"
_LEFT_OUT = {
    PREDICTIONS: f"predictions are made of one of {_THINNED} batches",
    BLOCKS: "predictions are made of few blocks, and availability of the newest block of each node",
}
_RETURN_SECONDS = 10.0  # after the server is back, until which a delay may begin to show
_CATCHING_UP_SECONDS = 120.0  # after which a delay is no longer of the server's outage
_CATCH_UP = "this processor catches up after an outage of the NATS server"
_REMEDY = "this machine has too little CPU time for its nodes: add cores or a processor, or let it have fewer nodes"


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


class _Outage:
    """Whether the server was away lately, so that tasks are behind for that.

    Args:
        reconnects: Returns how often the connection to the server has come back.
    """

    def __init__(self, reconnects: Callable[[], int]) -> None:
        self._reconnects, self._before, self._since = reconnects, reconnects(), float("-inf")

    def observe(self, now: float, behind: float, *, sheds: bool) -> None:
        """Take in how far the worst task is behind; what was left out already is not left out for an outage."""
        if (reconnects := self._reconnects()) != self._before:
            self._before = reconnects
            if not sheds:
                self._since = now
        elif not sheds and behind <= _BEHIND_SECONDS and now - self._since >= _RETURN_SECONDS:
            self._since = float("-inf")

    def cause(self, now: float) -> str:
        """Return why tasks are behind, or what would help."""
        return _CATCH_UP if now - self._since < _CATCHING_UP_SECONDS else _REMEDY


class Shedding:
    """What all tasks of a process leave out now.

    Attributes:
        blocks: Kinds of which a later message says the same as the one before; empty: nothing is ever left out.
        level: `NONE`, `PREDICTIONS` or `BLOCKS`.
        in_time: Set while no task of availability is behind; otherwise a patient one lets it have the thread.
        turn: Held by the task of availability that reads up to the newest block, while blocks are left out.
    """

    def __init__(
        self,
        blocks: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
        reconnects: Callable[[], int] = lambda: 0,
    ) -> None:
        """Begin without leaving anything out.

        Args:
            blocks: Kinds that may be left out.
            clock: Returns seconds.
            reconnects: Returns how often the connection to the server has come back.
        """
        self.blocks, self._clock, self._outage = frozenset(blocks), clock, _Outage(reconnects)
        self._delays = {False: _Delay(), True: _Delay()}
        self._batches: dict[str, int] = {}
        self._last, self._pressed, self._taken_back = 0.0, -_CALM_SECONDS, -_CALM_SECONDS
        self._folded = self._left_out = 0
        self.level, self.in_time, self.turn = NONE, asyncio.Event(), asyncio.Lock()
        self.in_time.set()

    @property
    def reason(self) -> str:
        """What is left out, why, and what would help; empty: nothing is."""
        return f"{_LEFT_OUT[self.level]}; {self._outage.cause(self._clock())}" if self.level else ""

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
        self._outage.observe(now, max(delay.worst for delay in self._delays.values()), sheds=before > NONE)
        if self.level:
            health.degrade(_PART, self.reason, level=logging.WARNING)
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
        """Tell whether a task of availability was behind lately, so that floods are left out of all tasks.

        They are also while blocks are left out: a flood that counted among those would hold the level until its end.
        """
        lately = self._clock() - self._pressed < _CALM_SECONDS
        return bool(self.blocks) and (lately or self.sheds(patient=False))

    def sheds(self, *, patient: bool) -> bool:
        """Tell whether tasks of this kind leave something out."""
        return self.level >= (PREDICTIONS if patient else BLOCKS)
