"""The page: what was simulated, replayed and measured, which figures were fitted, and why some are not as published."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.evaluation import reasons
from benchmarks.evaluation.cluster import FITTED
from benchmarks.evaluation.comparison import Row
from benchmarks.evaluation.placement import Result
from benchmarks.evaluation.published import OVERHEAD, Case
from benchmarks.overhead.__main__ import Overhead
from spazio.simulation import compare
from spazio.simulation.outcome import Interval
from spazio.simulation.scenario import Scenario

Figures = Mapping[str, Interval]

_FIGURES = {
    "job_seconds": "job s",
    "pod_seconds_mean": "pod s, mean",
    "pod_seconds_p99": "pod s, p99",
    "serving_slowdown_p99": "slowdown of services, p99",
    "over_node_seconds": "node-seconds beyond the policy",
    "kills": "out-of-memory kills",
    "unfinished": "unfinished",
}
_WORDS = {"job_seconds": "job, s", "pod_seconds": "pod, s", "serving_slowdown": "latency over alone"}


def head(seeds: int, pictures: str) -> Iterator[str]:
    """Yield what the page is, and its pictures."""
    yield "# Evaluation\n"
    yield (
        "Each heading says what its figures are. **Simulated** ones are of `spazio simulate` "
        f"([simulate.md](simulate.md)): means of {seeds} seeds with 95 % intervals (Student's t); *fitted*, if free "
        "parameters were chosen by them, *predicted* if not. **Replayed** ones are of a recorded list, **measured** "
        "ones of the machine that made this page. `make evaluate` makes the page. What real kernels and clusters show "
        "is in [truth.md](truth.md), "
        "[benchmarks.md](benchmarks.md) and [backtest.md](backtest.md).\n"
    )
    yield f"![Published and simulated figures]({pictures}/published.png)\n"
    yield f"![Job completion and broken policy by scenario]({pictures}/scenarios.png)\n"


def published(title: str, text: str, rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of published figures beside simulated ones, with a reason for each row that differs."""
    notes: dict[str, int] = {}
    lines = [_row(row, notes) for row in rows]
    within = sum(row.within for row in rows)
    yield f"## {title}\n"
    yield f"{text} {within} of {len(rows)} rows are within {100 * rows[0].limit:.0f} %.\n"
    yield "| table | pods | request | figure | published | simulated | difference | why |"
    yield "|---" * 8 + "|"
    yield from lines
    yield ""
    for note, number in notes.items():
        yield f"{number}. {note}"
    if notes:
        yield ""


def _row(row: Row, notes: dict[str, int]) -> str:
    case, published_row = row.published.case, row.published
    why = "" if row.within else str(notes.setdefault(reasons.of(row), len(notes) + 1))
    request = "none" if case.request is None else f"{case.request * 1000:.0f}m"
    return (
        f"| {published_row.table} | {_pods(case)} | {request} | {_figure(published_row.figure)} "
        f"| {published_row.value:.4g} | {compare.cell(row.simulated)} | {100 * row.error:+.0f} % | {why} |"
    )


def _pods(case: Case) -> str:
    parts = [f"{count} {kind}" for kind, count in (("bpi", case.bpi), ("ml", case.ml)) if count]
    return " + ".join([*parts, *(["a service"] if case.service else [])])


def _figure(name: str) -> str:
    """Return a figure's name in words.

    >>> _figure("pod_seconds_mean.ml"), _figure("job_seconds")
    ('pod, s, mean (ml)', 'job, s')
    """
    first, _, kind = name.partition(".")
    prefix = next(prefix for prefix in _WORDS if first.startswith(prefix))
    point = first.removeprefix(prefix).strip("_")
    return ", ".join(filter(None, (_WORDS[prefix], point))) + (f" ({kind})" if kind else "")


def fitted() -> str:
    """Return what was fitted."""
    return (
        "19 nodes of 4 CPUs. Fitted to kube-scheduler's rows alone: "
        f"{FITTED.work:g} core-seconds of work a bpi pod, {FITTED.start_seconds:g} s from binding to running, "
        f"{100 * FITTED.loss:.1f} % of the throughput lost at most, {FITTED.per_second:g} pods created a second (T2, "
        f"T3); {FITTED.ml_work:g} core-seconds of an ml pod (T4, job of 100 pods), whose {FITTED.ml_threads} threads "
        "are assumed."
    )


def scenario(wanted: Scenario, together: Mapping[str, Figures]) -> Iterator[str]:
    """Yield the table of one packaged scenario."""
    yield f"## Simulated: {wanted.name}\n\n{wanted.about}. Policy: a slowdown of {wanted.slowdown:g}.\n"
    shown = [figure for figure in _FIGURES if any(figure in figures for figures in together.values())]
    yield "| | " + " | ".join(_FIGURES[figure] for figure in shown) + " |"
    yield "|---|" + "---|" * len(shown)
    for scheduler, figures in together.items():
        cells = (compare.cell(figures.get(figure)) for figure in shown)
        yield f"| {scheduler.replace('_', ' ')} | " + " | ".join(cells) + " |"
    yield ""


def placed(results: Mapping[str, Result], tasks: int, nodes: int) -> Iterator[str]:
    """Yield what strategies made of the openb list."""
    yield "## Replayed: placement of the openb list\n"
    yield (
        f"{tasks:,} tasks of Alibaba's cluster-trace-gpu-v2023 on its {nodes:,} nodes, in their order, by what they "
        "request; none leaves. GPUs are one divisible amount a node. Fragmentation is the share of the free GPUs on "
        "which the mean GPU task of the list does not fit.\n"
    )
    yield "| strategy | placed | GPUs in use | fragmentation | nodes in use |\n|---|---|---|---|---|"
    for name, result in results.items():
        yield (
            f"| {name} | {result.placed} | {100 * result.gpus:.1f} % | {100 * result.fragmentation:.1f} % "
            f"| {result.nodes} |"
        )
    yield ""


def overhead(result: Overhead, pairs: int, processes: int) -> Iterator[str]:
    """Yield by how much the agent delays jobs (table T1)."""
    yield "## Measured: by how much the agent delays jobs\n"
    yield (
        f"`python -m benchmarks.overhead` on the machine that made this page, with {processes} CPUs: {pairs} pairs of "
        "jobs that compute on all of them, with and without the agent, and with the server that it publishes to beside "
        "it. Mean and 95 % interval; of the published rows mean and deviation, on 19 nodes of 4 CPUs.\n"
    )
    yield "| | jobs take longer by |\n|---|---|"
    yield f"| spazio | {100 * result.mean:.2f} % ({100 * result.low:.2f} to {100 * result.high:.2f} %) |"
    for pods, (mean, deviation) in OVERHEAD.items():
        yield f"| published (T1), {pods} bpi pods | {mean:.2f} % ±{deviation:.2f} |"
    yield ""


def speed(walls: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """Yield how long a large simulation took."""
    yield "## Measured: how long a large simulation takes\n"
    yield "500 nodes and 10,000 pods, one run each, on the machine that made this page.\n"
    yield "| scheduler | wall s | virtual s |\n|---|---|---|"
    for name, (wall, virtual) in walls.items():
        yield f"| {name} | {wall:.0f} | {virtual:.0f} |"
