"""Published figures beside simulated ones, with intervals over the seeds."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.evaluation import runs
from benchmarks.evaluation.published import KUBE, Case, Published
from benchmarks.evaluation.runs import Run
from spazio.simulation.outcome import Interval
from spazio.simulation.scenario import Scenario

LIMITS = {KUBE: 0.15}  # within which a row is as published; of predictions:
_PREDICTED = 0.20


class Row(NamedTuple):
    """A published figure beside the simulated one of a scheduler."""

    published: Published
    scheduler: str
    simulated: Interval

    @property
    def error(self) -> float:
        """By which share the simulation is above the publication."""
        return self.simulated.mean / self.published.value - 1.0

    @property
    def limit(self) -> float:
        """How large an error needs no reason."""
        return LIMITS.get(self.scheduler, _PREDICTED)

    @property
    def within(self) -> bool:
        """Whether the simulation is as published; a figure that not every seed has is not."""
        return abs(self.error) <= self.limit and not self.simulated.lacking


def wanted(
    published: Sequence[Published], scheduler: str, scenario: Callable[[Case], Scenario], seeds: Sequence[int]
) -> dict[Case, list[Run]]:
    """Return the runs of each case that these figures need."""
    cases = dict.fromkeys(row.case for row in published)
    return {case: [Run(scenario(case), scheduler, seed) for seed in seeds] for case in cases}


def compare(
    published: Sequence[Published],
    scheduler: str,
    scenario: Callable[[Case], Scenario],
    seeds: Sequence[int],
    folder: Path,
) -> list[Row]:
    """Simulate what was published, and return each figure beside its own.

    Args:
        published: The figures.
        scheduler: Scheduler of the simulation.
        scenario: What was run, as a scenario.
        seeds: Seeds of the runs.
        folder: Where figures of runs are kept.
    """
    by_case = wanted(published, scheduler, scenario, seeds)
    results = runs.figures([run for each in by_case.values() for run in each], folder)
    together = {case: runs.together(each, results) for case, each in by_case.items()}
    return [Row(row, scheduler, together[row.case][row.figure]) for row in published]
