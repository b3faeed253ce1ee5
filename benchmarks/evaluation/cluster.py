"""The dissertation's cluster as a scenario, and the search for the free parameters of its physics."""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from benchmarks.evaluation.published import COUNTS, JOBS, POD_FIGURES, PODS
from spazio.simulation import engine, outcome
from spazio.simulation.scenario import Scenario

_GIB = 2.0**30


class Free(NamedTuple):
    """What the publication does not say.

    Attributes:
        work: Core-seconds of a pod.
        start_seconds: Mean time from binding to running.
        loss: Share of the throughput that is lost where many more threads run than there are CPUs.
        per_second: Pods that are created each second.
    """

    work: float
    start_seconds: float
    loss: float
    per_second: float


class Row(NamedTuple):
    """A published figure beside the simulated one.

    Attributes:
        figure: Which.
        request: CPU request; None: spazio.
        pods: Number of pods.
        published, simulated: Seconds.
    """

    figure: str
    request: float | None
    pods: int
    published: float
    simulated: float

    @property
    def error(self) -> float:
        """By which share the simulation is above the publication."""
        return self.simulated / self.published - 1.0


def scenario(free: Free, request: float | None, pods: int) -> Scenario:
    """Return the dissertation's job of so many pods."""
    group = {"name": "bpi", "count": pods, "work": free.work, "per_second": free.per_second, "memory": 12 * 2.0**20}
    return Scenario.model_validate(
        {
            "name": f"bpi-{pods}",
            "seconds": 1200,
            "nodes": [{"count": 19, "cpus": 4, "memory": 8 * _GIB, "reserved_cpu": 0.85}],
            "pods": [group | ({} if request is None else {"cpu_request": request})],
            "physics": {"start_seconds": free.start_seconds, "loss": free.loss},
        }
    )


def rows(free: Free, scheduler: str, requests: Sequence[float | None], seeds: Sequence[int]) -> list[Row]:
    """Return every published row of these requests beside its simulation: the mean over the seeds."""
    work = [(free, scheduler, request, pods, seed) for request in requests for pods in COUNTS for seed in seeds]
    with ProcessPoolExecutor() as pool:
        runs = list(pool.map(_figures, work))
    measured: list[Row] = []
    for place, (request, pods) in enumerate(itertools.product(requests, COUNTS)):
        own = runs[place * len(seeds) : (place + 1) * len(seeds)]
        together = outcome.together(own)
        measured.append(Row("job", request, pods, JOBS[request][COUNTS.index(pods)], together["job_seconds"].mean))
        if pods == COUNTS[-1] and request in PODS:
            for figure, published in zip(POD_FIGURES, PODS[request], strict=True):
                measured.append(Row(figure, request, pods, published, together[figure].mean))
    return measured


def fit(seeds: Sequence[int]) -> Iterator[tuple[float, Free]]:
    """Yield ever better parameters by the rows of kube-scheduler alone, with their mean absolute relative error."""
    best, least = Free(7.5, 1.5, 0.05, 25.0), float("inf")
    steps = Free(1.0, 0.5, 0.03, 8.0)
    for size in (1.0, 0.5, 0.25):
        for name, step in steps._asdict().items():
            for sign in (0, 1, -1):
                tried = best._replace(**{name: max(0.01, getattr(best, name) + sign * size * step)})
                measured = rows(tried, "kube", [each for each in JOBS if each is not None], seeds)
                error = sum(abs(row.error) for row in measured) / len(measured)
                if error < least:
                    best, least = tried, error
                    yield least, best


def _figures(work: tuple[Free, str, float | None, int, int]) -> dict[str, float]:
    free, scheduler, request, pods, seed = work
    wanted = scenario(free, request, pods)
    return outcome.of(asyncio.run(engine.run(wanted, scheduler, seed)), wanted)
