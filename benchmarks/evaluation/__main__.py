"""Write docs/evaluation.md: what is simulated, replayed and measured, what was published, and where they differ.

    python -m benchmarks.evaluation [--quick] [--fit] [--openb FOLDER] [--out FILE] [--runs FOLDER] [--processes N]

Figures of finished runs are kept in a folder, so an interrupted evaluation continues where it stopped. `--quick` takes
one seed instead of ten and few pairs of measured jobs, and writes beside the kept runs instead of into docs. `--openb`
is the folder of the openb lists; without it that section is left out. `--fit` searches for the free parameters again,
and prints them. The last twelve minutes measure this machine: let nothing else run then.
"""

import argparse
import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.evaluation import cluster, comparison, jobs, page, placement, plots, runs
from benchmarks.evaluation.comparison import Row
from benchmarks.evaluation.published import KUBE, SPAZIO, Published, rows
from benchmarks.evaluation.runs import Run
from benchmarks.overhead import __main__ as overhead
from spazio.simulation import engine, scenario
from spazio.simulation.outcome import Interval
from spazio.simulation.scenario import Scenario

_OUT = Path("docs/evaluation.md")
_FITTED = ("T2", "T3")
_SEEDS = 10
_PAIRS, _FEW_PAIRS = 300, 10  # of jobs with and without the agent, of a second each
_LARGE = {"name": "large", "nodes": [{"count": 500, "cpus": 8, "memory": 3.2e10}],
          "pods": [{"name": "p", "count": 10_000, "per_second": 200, "work": 20, "cpu_request": 0.5}]}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Run everything that has not been run, and write the page with its pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fit", action="store_true")
    parser.add_argument("--openb", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path, default=runs.FOLDER)
    parser.add_argument("--processes", type=int)
    asked = parser.parse_args(arguments)
    if asked.fit:
        for error, free in cluster.fit(range(1, 3), asked.runs):  # the last is the best
            print(f"{error:.3f} {free}", flush=True)
        return
    out: Path = asked.out or (asked.runs / _OUT.name if asked.quick else _OUT)
    seeds = range(1, 2 if asked.quick else _SEEDS + 1)
    tables = _published()
    scenarios = {name: scenario.load(name) for name in scenario.packaged()}
    every = [*_runs(tables, seeds), *jobs.wanted(seeds), *_scenario_runs(scenarios, seeds)]
    runs.figures(every, asked.runs, processes=asked.processes)
    pictures = out.with_suffix("")
    pictures.mkdir(parents=True, exist_ok=True)
    by_scheduler = {
        scheduler: comparison.compare(own, scheduler, cluster.scenario, seeds, asked.runs)
        for scheduler, own in tables.items()
    }
    results = {name: _together(wanted, seeds, asked.runs) for name, wanted in scenarios.items()}
    plots.published(by_scheduler, pictures / "published.png")
    plots.scenarios(results, pictures / "scenarios.png")
    lines = [*page.head(len(seeds), pictures.name), *compared(by_scheduler)]
    lines += jobs.lines(jobs.measure(seeds, asked.runs))
    for name, wanted in scenarios.items():
        lines += page.scenario(wanted, results[name])
    lines += _replayed(asked.openb) if asked.openb else ()
    pairs = _FEW_PAIRS if asked.quick else _PAIRS
    times, processes = overhead.run(pairs, seconds=1.0)
    lines += page.overhead(overhead.overhead(times), pairs, processes)
    lines += page.speed(_walls())
    out.write_text("\n".join(lines) + "\n")
    print(out)


def _published() -> Mapping[str, list[Published]]:
    """Return what each scheduler of the simulation is held against."""
    every = list(rows())
    ours = [row for row in every if row.case.scheduler == SPAZIO]
    return {KUBE: [row for row in every if row.case.scheduler == KUBE], "reference": ours, "spazio": ours}


def _runs(tables: Mapping[str, Sequence[Published]], seeds: Sequence[int]) -> Iterator[Run]:
    for scheduler, own in tables.items():
        for each in comparison.wanted(own, scheduler, cluster.scenario, seeds).values():
            yield from each


def _scenario_runs(scenarios: Mapping[str, Scenario], seeds: Sequence[int]) -> Iterator[Run]:
    for wanted in scenarios.values():
        yield from (Run(wanted, str(scheduler), seed) for scheduler in wanted.schedulers for seed in seeds)


def _together(wanted: Scenario, seeds: Sequence[int], folder: Path) -> dict[str, dict[str, Interval]]:
    """Return the figures of each scheduler on one scenario."""
    by_scheduler = {str(name): [Run(wanted, str(name), seed) for seed in seeds] for name in wanted.schedulers}
    results = runs.figures([run for each in by_scheduler.values() for run in each], folder)
    return {name: runs.together(each, results) for name, each in by_scheduler.items()}


def compared(by_scheduler: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """Yield the tables of published figures beside those of each scheduler."""
    kube = by_scheduler[KUBE]
    fitted = [row for row in kube if row.published.table in _FITTED]
    others = [row for row in kube if row.published.table not in _FITTED]
    yield from page.published("Simulated, fitted: kube-scheduler's tables T2 and T3", page.fitted(), fitted)
    text = "But for the work of an ml pod, these follow from the physics above."
    yield from page.published("Simulated, predicted: kube-scheduler's tables T4 to T6", text, others)
    text = "`--model-variant carico`, the algorithm of the dissertation, beside the published spazio."
    yield from page.published("Simulated, predicted: spazio's reference variant", text, by_scheduler["reference"])
    text = "The default settings beside the published spazio; lower is better."
    yield from page.published("Simulated, predicted: spazio", text, by_scheduler["spazio"])


def _replayed(folder: Path) -> Iterator[str]:
    lists = placement.read(folder)
    results = {name: placement.place(lists, score) for name, score in placement.STRATEGIES.items()}
    return page.placed(results, len(lists.tasks), len(lists.nodes))


def _walls() -> dict[str, tuple[float, float]]:
    """Return wall and virtual seconds of a large simulation, by scheduler."""
    wanted, walls = Scenario.model_validate(_LARGE), {}
    for name in ("kube", "spazio"):
        began = time.perf_counter()
        run = asyncio.run(engine.run(wanted, name, 1))
        walls[name] = time.perf_counter() - began, run.seconds
    return walls


if __name__ == "__main__":
    main()
