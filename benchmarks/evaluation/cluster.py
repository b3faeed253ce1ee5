"""The dissertation's cluster as a scenario, and the search for the free parameters of its physics."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.evaluation import comparison
from benchmarks.evaluation.published import KUBE, Case, rows
from spazio.simulation.scenario import Scenario

_GIB, _MIB = 2.0**30, 2.0**20


class Free(NamedTuple):
    """What the publication does not say.

    Attributes:
        work: Core-seconds of a bpi pod.
        start_seconds: Mean time from binding to running.
        loss: Share of the throughput that is lost where many more threads run than there are CPUs.
        per_second: Pods that are created each second.
        ml_work: Core-seconds of an ml pod.
        ml_threads: Threads of an ml pod.
    """

    work: float
    start_seconds: float
    loss: float
    per_second: float
    ml_work: float
    ml_threads: int


# By kube-scheduler's rows alone: the first four by those of tables 2 and 3, the work of an ml pod by the job of 100 of
# them in table 4. The threads of an ml pod are assumed: on full nodes kube-scheduler's rows do not tell them apart.
FITTED = Free(work=7.5, start_seconds=1.5, loss=0.035, per_second=25.0, ml_work=92.0, ml_threads=2)


def scenario(case: Case, free: Free = FITTED) -> Scenario:
    """Return what was run as a scenario."""
    node = {"count": 19, "cpus": 4, "memory": 8 * _GIB, "requested_cpu": 0.85, "requested_memory": _GIB}
    return Scenario.model_validate(
        {
            "name": "-".join(f"{kind}-{count}" for kind, count in (("bpi", case.bpi), ("ml", case.ml)) if count),
            "nodes": [node],
            "pods": list(_pods(case, free)),
            "physics": {"start_seconds": free.start_seconds, "loss": free.loss},
        }
    )


def _pods(case: Case, free: Free) -> Iterator[dict[str, Any]]:
    if case.service:
        yield {"name": "http", "kind": "serving", "count": 19, "cores": 0.2, "memory": 64 * _MIB, "cpu_request": 0.2}
    if case.bpi:
        bpi = {"name": "bpi", "count": case.bpi, "work": free.work, "memory": 12 * _MIB, "per_second": free.per_second}
        request = {} if case.request is None else {"cpu_request": case.request}
        yield bpi | request | ({"at": 30} if case.service else {})
    if case.ml:
        ml = {"name": "ml", "count": case.ml, "work": free.ml_work, "threads": free.ml_threads, "memory": 750 * _MIB}
        yield ml | {"per_second": free.per_second, "cpu_request": 0.2, "memory_request": 750 * _MIB}


def fit(seeds: Sequence[int], folder: Path) -> Iterator[tuple[float, Free]]:
    """Yield ever better parameters by kube-scheduler's rows of tables 2 and 3, with their mean absolute error."""
    fitted = [row for row in rows() if row.table in ("T2", "T3") and row.case.scheduler == KUBE]
    best, least = FITTED, float("inf")
    steps = {"work": 1.0, "start_seconds": 0.5, "loss": 0.03, "per_second": 8.0}
    for size in (1.0, 0.5, 0.25):
        for name, step in steps.items():
            for sign in (0, 1, -1):
                tried = best._replace(**{name: max(0.01, getattr(best, name) + sign * size * step)})
                compared = comparison.compare(fitted, "kube", partial(scenario, free=tried), seeds, folder)
                error = sum(abs(row.error) for row in compared) / len(compared)
                if error < least:
                    best, least = tried, error
                    yield least, best
