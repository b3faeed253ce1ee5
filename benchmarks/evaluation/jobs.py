"""Jobs of the dissertation's table 2 under spazio, beside kube-scheduler with each request that was published.

Two requests are best for kube-scheduler: the one with which a job ends soonest, and the one with which it does so
within the policy. Under spazio pods request nothing. A job is run as the first that the cluster sees of its kind, and
again: when a few pods of its kind have run before, so that the cluster has measured what one takes. To name the best
request, a user must have seen such a job, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.evaluation import cluster, runs
from benchmarks.evaluation.published import COUNTS, KUBE, SPAZIO, Case
from benchmarks.evaluation.runs import Run
from spazio.simulation import compare
from spazio.simulation.outcome import Interval
from spazio.simulation.scenario import Scenario

REQUESTS = (0.1, 0.2, 0.5, 1.0)
_SEEN, _AGAIN_SECONDS = 38, 90.0  # two pods a node, which have ended long before the job
_LARGEST_DISADVANTAGE = 0.03


class Job(NamedTuple):
    """How one job went.

    Attributes:
        seconds: From its first pod's creation to its last one's end.
        over: Node-seconds beyond the policy.
    """

    seconds: Interval
    over: float


class Size(NamedTuple):
    """Jobs of one size: under kube-scheduler by the request, and under spazio for the first time and again."""

    pods: int
    kube: Mapping[float, Job]
    first: Job
    again: Job


def again(pods: int) -> Scenario:
    """Return the job of so many pods after a few of its kind."""
    job = cluster.scenario(Case(SPAZIO, bpi=pods))
    (group,) = job.pods
    seen = group.model_copy(update={"count": _SEEN})
    return job.model_copy(update={"pods": [seen, group.model_copy(update={"at": _AGAIN_SECONDS})]})


def wanted(seeds: Sequence[int]) -> Iterator[Run]:
    """Yield the runs that the table needs."""
    for pods in COUNTS:
        for given, scheduler in _runs(pods).values():
            yield from (Run(given, scheduler, seed) for seed in seeds)


def _runs(pods: int) -> dict[float | str, tuple[Scenario, str]]:
    kube: dict[float | str, tuple[Scenario, str]] = {
        request: (cluster.scenario(Case(KUBE, bpi=pods, request=request)), KUBE) for request in REQUESTS
    }
    first = cluster.scenario(Case(SPAZIO, bpi=pods)), SPAZIO
    return {**kube, "first": first, "again": (again(pods), SPAZIO)}


def measure(seeds: Sequence[int], folder: Path) -> list[Size]:
    """Run what has not been run, and return the jobs by size."""
    results, sizes = runs.figures(list(wanted(seeds)), folder), []
    for pods in COUNTS:
        jobs: dict[float | str, Job] = {}
        for name, (given, scheduler) in _runs(pods).items():
            figures = runs.together([Run(given, scheduler, seed) for seed in seeds], results)
            before = _AGAIN_SECONDS if name == "again" else 0.0
            seconds = figures["job_seconds"]
            jobs[name] = Job(seconds._replace(mean=seconds.mean - before), figures["over_node_seconds"].mean)
        sizes.append(Size(pods, {request: jobs[request] for request in REQUESTS}, jobs["first"], jobs["again"]))
    return sizes


def lines(sizes: Sequence[Size]) -> Iterator[str]:
    """Yield the section of the page."""
    yield "## Simulated: jobs under spazio and under kube-scheduler's best request\n"
    yield (
        f"Again: {_SEEN} pods of the same kind ran before on the 19 nodes, so the cluster has seen what one takes. The "
        "first time, a node takes one pod until that is known. Within the policy: no node-second is beyond a slowdown "
        "of 2.\n"
    )
    yield (
        "| pods | kube-scheduler's best | request | its best within the policy | request "
        "| spazio, again | of the best | of the best within the policy | spazio, first time | of the best |"
    )
    yield "|---" * 10 + "|"
    for size in sizes:
        request, best = min(size.kube.items(), key=lambda item: item[1].seconds.mean)
        keeping = {each: job for each, job in size.kube.items() if job.over == 0}
        kept, lawful = min(keeping.items(), key=lambda item: item[1].seconds.mean)
        yield (
            f"| {size.pods} | {_cell(best)} | {_milli(request)} | {_cell(lawful)} | {_milli(kept)} "
            f"| {_cell(size.again)} | {_more(size.again, best)} | {_more(size.again, lawful)} "
            f"| {_cell(size.first)} | {_more(size.first, best)} |"
        )
    yield f"\n✗: more than {100 * _LARGEST_DISADVANTAGE:.0f} % longer, which was the aim.\n"


def _cell(job: Job) -> str:
    return f"{compare.cell(job.seconds)} s"


def _milli(request: float) -> str:
    return f"{1000 * request:.0f}m"


def _more(job: Job, other: Job) -> str:
    share = job.seconds.mean / other.seconds.mean - 1
    return f"{100 * share:+.1f} %{'' if share <= _LARGEST_DISADVANTAGE else ' ✗'}"
