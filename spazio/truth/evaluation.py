"""What the estimators say of a recording, beside what the experiment found.

The recorded telemetry goes through the processors' own fold, once for each policy and form, so that everything that is
compared has seen the same machine.
"""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from processors.partition.aggregate import Aggregate
from processors.partition.partition import Partition
from schemas import codec
from schemas.channel import TELEMETRY_KINDS
from schemas.messages.estimate import Availability, Model
from schemas.settings import Settings
from schemas.subject import Names
from spazio.truth.recording import Recording, Step, of_family

_AT_MOST = 0.15  # of the truth, or one pod: how far off a number may be


def replay(recording: Recording, settings: Settings) -> list[tuple[int, Availability]]:
    """Return what is said under these settings, each with the time when its telemetry came, in microseconds."""
    names = Names(settings.prefix)
    partition, aggregate = Partition(settings, 0), Aggregate(1, silent_seconds=settings.model.silent_seconds)
    said: list[tuple[int, Availability]] = []
    for at_us, subject, payload in recording.messages():
        if subject.rsplit(".", 2)[-2] not in TELEMETRY_KINDS:
            continue
        outputs, _ = partition.fold([(subject, payload)])
        for output in outputs:
            if isinstance(output.message, Availability):
                said.append((at_us, output.message))
            elif isinstance(output.message, Model):
                merged = aggregate.fold(output.subject, codec.encode(output.message))
                if merged is not None:
                    partition.fold([(names.model, codec.encode(merged))])
    return said


@dataclass(frozen=True, slots=True)
class Cell:
    """One number beside the truth.

    Attributes:
        family, pods: What ran.
        slowdown: The policy.
        seconds: Since the change.
        truth: Pods that still fit.
        available, lower: What was said of the mix to come.
        room, room_lower: What was said of the class that comes next; None: nothing.
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
        said = self.available if value is None else value
        return abs(said - self.truth) <= max(1.0, _AT_MOST * (self.truth + self.pods))

    @property
    def bounded(self) -> bool:
        """Whether `lower` is a bound."""
        return self.lower <= self.truth


def most(steps: Sequence[Step], slowdown: float) -> int | None:
    """Return the largest number of pods that holds, by interpolation between steps; None: all that were tried hold."""
    if steps[0].fits is not None:
        return steps[-1].fits
    known = [(step.pods, step.slowdown) for step in steps if step.slowdown is not None]
    for index, (pods, found) in enumerate(known):
        if found <= slowdown:
            continue
        if index == 0:
            return 0
        before, least = known[index - 1]
        share = (slowdown - least) / (found - least) if found > least else 0.0
        return int(before + share * (pods - before) + 1e-9)
    return None


def cells(
    recording: Recording, said: Sequence[tuple[int, Availability]], slowdown: float, seconds: Sequence[float]
) -> Iterator[Cell]:
    """Yield what was said so many seconds after each change, where the truth is known."""
    times = [at_us for at_us, _ in said]
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
                row = said[index][1]
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
