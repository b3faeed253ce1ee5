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
        truth: Pods that still fit.
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


def most(steps: Sequence[Step], slowdown: float) -> int | None:
    """Return the largest number of pods that fits, interpolated between steps; None: all tested numbers fit."""
    if steps[0].fits is not None:
        return steps[-1].fits
    measured = [(step.pods, step.slowdown) for step in steps if step.slowdown is not None]
    for index, (pods, exceeding) in enumerate(measured):
        if exceeding <= slowdown:
            continue
        if index == 0:
            return 0
        before, least = measured[index - 1]
        share = (slowdown - least) / (exceeding - least) if exceeding > least else 0.0
        return int(before + share * (pods - before) + 1e-9)
    return None


def cells(
    recording: Recording, estimates: Sequence[tuple[int, Availability]], slowdown: float, seconds: Sequence[float]
) -> Iterator[Cell]:
    """Yield the estimates `seconds` after each change of pods, where the truth is known."""
    times = [at_us for at_us, _ in estimates]
    for family, steps in of_family(recording.steps).items():
        fits = most(steps, slowdown)
        if fits is None:
            continue
        for step in steps:
            for since in seconds:
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
                    truth=max(0, fits - step.pods),
                    available=row.available,
                    lower=row.lower,
                    room=None if room is None else room.available,
                    room_lower=None if room is None else room.lower,
                )
