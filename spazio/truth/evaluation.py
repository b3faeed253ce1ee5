"""Compares the estimates for a recording with the truth that the experiment measured.

The recorded telemetry goes through the processors' own fold, once for each policy and form, so that all compared
estimates are of the same machine state.
"""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from schemas.channel import TELEMETRY_KINDS
from schemas.messages.estimate import Availability
from schemas.settings import Settings
from spazio.in_process import InProcess
from spazio.truth.recording import Recording, Step, of_family

_AT_MOST = 0.15  # tolerated error as a share of the truth; at least one pod


def replay(recording: Recording, settings: Settings) -> list[tuple[int, Availability]]:
    """Return the estimates under these settings, each with the arrival time of its telemetry in microseconds."""
    processors = InProcess(settings)
    estimates: list[tuple[int, Availability]] = []
    for at_us, subject, payload in recording.messages():
        if subject.rsplit(".", 2)[-2] in TELEMETRY_KINDS:
            estimates += [(at_us, each) for each in processors.fold([(subject, payload)])[0]]
    return estimates


@dataclass(frozen=True, slots=True)
class Cell:
    """One estimate and the truth.

    Attributes:
        family, pods: Family and number of the running pods.
        slowdown: Slowdown of the policy.
        seconds: Time since the last change of pods.
        truth: Pods that still fit; with a part of one, as `available`.
        available, lower: Estimates for the expected mix.
        room, room_lower: Estimates for the class of the next pod; None: there are none.
    """

    family: str
    pods: int
    slowdown: float
    seconds: float
    truth: float
    available: float
    lower: float
    room: float | None
    room_lower: float | None

    def right(self, value: float | None = None) -> bool:
        """Tell whether a number (default: `available`) is within a pod or 15 % of the truth."""
        estimate = self.available if value is None else value
        return abs(estimate - self.truth) <= max(1.0, _AT_MOST * (self.truth + self.pods))

    @property
    def bounded(self) -> bool:
        """Whether `lower` is a bound."""
        return self.lower <= self.truth


def most(steps: Sequence[Step], slowdown: float) -> float | None:
    """Return how many pods fit, between steps a part of one; None: all tested numbers fit.

    More pods never slow work down less, so measurements that say so are averaged (isotonic regression). Pods cannot
    speed each other up either: where one alone was slower than several, an idle machine's clock was, so slowdowns count
    from the fastest step. Between two steps the inverse of the slowdown is interpolated: it falls almost evenly to 0
    where open loops have no room left.
    """
    if steps[0].fits is not None:
        return steps[-1].fits
    measured = [(step.pods, step.slowdown) for step in steps if step.slowdown is not None]
    fastest = min([1.0, *(value for _, value in measured)])
    speeds = [fastest / value for value in _rising([value for _, value in measured])]
    for index, speed in enumerate(speeds):
        if speed >= 1 / slowdown:
            continue
        if index == 0:
            return 0.0
        (before, _), (pods, _) = measured[index - 1 : index + 1]
        return before + (speeds[index - 1] - 1 / slowdown) / (speeds[index - 1] - speed) * (pods - before)
    return None


def _rising(values: Sequence[float]) -> list[float]:
    """Return the closest values that never fall (pool adjacent violators)."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pool = value, 1
        while pools and pools[-1][0] > pool[0]:
            before = pools.pop()
            count = before[1] + pool[1]
            pool = (before[0] * before[1] + pool[0] * pool[1]) / count, count
        pools.append(pool)
    return [value for value, count in pools for _ in range(count)]


def cells(
    recording: Recording, estimates: Sequence[tuple[int, Availability]], slowdown: float, seconds: Sequence[float]
) -> Iterator[Cell]:
    """Yield the estimates `seconds` after each change of pods, where the truth is known and nothing disturbed."""
    times = [at_us for at_us, _ in estimates]
    for family, steps in of_family(recording.steps).items():
        fits = most(steps, slowdown)
        if fits is None:
            continue
        for step in steps:
            for since in seconds if step.disturbed is None else ():
                at_us = step.begin_us + since * 1e6
                index = bisect.bisect_right(times, at_us) - 1
                if index < 0 or at_us > step.end_us:
                    continue
                row = estimates[index][1]
                room = (row.classes or {}).get(step.workload)
                yield Cell(
                    family=family,
                    pods=step.pods,
                    slowdown=slowdown,
                    seconds=since,
                    truth=max(0.0, fits - step.pods),
                    available=row.available,
                    lower=row.lower,
                    room=None if room is None else room.available,
                    room_lower=None if room is None else room.lower,
                )
