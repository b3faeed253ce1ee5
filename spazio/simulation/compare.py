"""`spazio simulate`: compares schedulers on a simulated cluster, in virtual time; nothing is started or contacted."""

import asyncio
import io
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import polars as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from spazio import INTERRUPTED, count, plain
from spazio.export import file
from spazio.simulation import engine, outcome, scenario
from spazio.simulation.outcome import Interval
from spazio.simulation.scenario import Scenario, Unreadable
from spazio.simulation.workers import workers
from spazio.terminal import clean

Results = Mapping[str, Sequence[Mapping[str, float]]]

_FIGURES = {
    "job_seconds": "job, seconds",
    "pod_seconds_mean": "pod, seconds from bind to end",
    "pod_seconds_p99": "  of 99 % at most",
    "wait_seconds_p50": "wait for a node, seconds, median",
    "serving_slowdown_p50": "slowdown of serving pods, median",
    "serving_slowdown_p99": "  of 99 % at most",
    "utilization_mean": "CPU in use, share",
    "over_node_seconds": "node-seconds beyond the policy",
    "kills": "out-of-memory kills",
    "unfinished": "pods not finished",
    "unbound": "pods without a node",
}


def run(source: Callable[[], Scenario], *, seeds: int, only: Sequence[str], out: Path | None, json_output: bool) -> int:
    """Run a scenario with every scheduler and so many seeds; return the exit status."""
    try:
        wanted = source()
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)  # before runs that take minutes
        results = compare(wanted, _chosen(wanted, only), range(1, seeds + 1))
        if out is not None:
            _write(results, out / "runs.parquet")
            with file.replacing(out / "scenario.toml") as hidden:
                hidden.write_text(scenario.text(wanted))
    except (Unreadable, OSError) as error:
        clean.complain(error, out)
        return 2 if isinstance(error, Unreadable) else 1
    except BrokenProcessPool:
        clean.complain("a run was killed, as where memory runs out; fewer nodes, pods or seconds take less")
        return 1
    except KeyboardInterrupt:
        clean.complain("interrupted" if out is None else f"interrupted; {out} has no part of a file")
        return INTERRUPTED
    if json_output:
        figures = {name: {key: each._asdict() for key, each in outcome.together(runs).items()}
                   for name, runs in results.items()}  # fmt: skip
        document = {"scenario": wanted.name, "seeds": seeds, "simulated": True, "schedulers": figures}
        print(json.dumps(plain.value(document), allow_nan=False))
    else:
        Console().print(_table(wanted, results, seeds))
    return 0


def _chosen(wanted: Scenario, only: Sequence[str]) -> list[str]:
    chosen = [str(name) for name in wanted.schedulers if not only or name in only]
    if unknown := set(only) - set(scenario.SCHEDULERS):
        raise Unreadable(f"--only {', '.join(sorted(unknown))}: schedulers are {', '.join(scenario.SCHEDULERS)}")
    if not chosen:
        raise Unreadable(f"scenario {wanted.name} runs {', '.join(map(str, wanted.schedulers))}, none of --only")
    return chosen


def compare(wanted: Scenario, names: Sequence[str], seeds: Sequence[int]) -> Results:
    """Return the figures of each scheduler for each seed; runs go side by side, one to a CPU."""
    work = [(name, seed) for name in names for seed in seeds]
    results: dict[str, list[Mapping[str, float]]] = {name: [] for name in names}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with workers() as pool, Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(wanted.name, total=len(work))
        pending = [pool.submit(_figures, wanted, name, seed) for name, seed in work]
        for (name, _), figures in zip(work, pending, strict=True):
            results[name].append(figures.result())
            bar.advance(task)
    return results


def _figures(wanted: Scenario, name: str, seed: int) -> dict[str, float]:
    return outcome.of(asyncio.run(engine.run(wanted, name, seed)), wanted)


def _write(results: Results, path: Path) -> None:
    """Write one row for each scheduler, seed and figure."""
    rows = [
        (name, seed, figure, value)
        for name, runs in results.items()
        for seed, figures in enumerate(runs, 1)
        for figure, value in figures.items()
    ]
    schema = {"scheduler": pl.String, "seed": pl.Int64, "figure": pl.String, "value": pl.Float64}
    written = io.BytesIO()  # given a path, polars raises an error of its own where the disk is full
    pl.DataFrame(rows, schema=schema, orient="row").write_parquet(written)
    with file.replacing(path) as hidden:
        hidden.write_bytes(written.getvalue())


def _table(wanted: Scenario, results: Results, seeds: int) -> Table:
    together = {name: outcome.together(runs) for name, runs in results.items()}
    shown = [figure for figure in _FIGURES if any(figure in figures for figures in together.values())]
    title = f"{wanted.name}, simulated: mean of {count.of(seeds, 'seed')}" + (" and 95 % interval" if seeds > 1 else "")
    table = Table(title=title, caption=Text(clean.text(wanted.about)) if wanted.about else None)
    table.add_column("")
    for name in together:
        table.add_column(name.replace("_", " "), justify="right")
    for figure in shown:
        table.add_row(_FIGURES[figure], *(cell(figures.get(figure)) for figures in together.values()))
    return table


def cell(interval: Interval | None) -> str:
    """Return a mean with half the width of its interval, as tables show it, and of how many seeds if not of all."""
    if interval is None or interval.mean != interval.mean:
        return "-"
    digits = 2 if abs(interval.mean) < 10 else 1
    text = f"{interval.mean:.{digits}f}" + (f" ±{interval.half:.{digits}f}" if interval.half else "")
    return f"{text} ({interval.seeds} of {interval.seeds + interval.lacking})" if interval.lacking else text
