"""The evaluation: its rows are the published ones, its runs are kept, and no row differs without a reason."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from benchmarks.evaluation import __main__ as evaluation
from benchmarks.evaluation import cluster, comparison, jobs, page, published, reasons, runs
from benchmarks.evaluation.comparison import Row
from benchmarks.evaluation.placement import Result
from benchmarks.evaluation.published import KUBE, SPAZIO, Case, Published
from benchmarks.evaluation.runs import Run
from benchmarks.overhead.__main__ import Overhead
from spazio.simulation import engine, scenario
from spazio.simulation.outcome import Interval
from spazio.simulation.scenario import Scenario

SMALL = Scenario.model_validate(
    {"name": "small", "nodes": [{"count": 1, "cpus": 2}], "pods": [{"name": "p", "count": 4, "work": 1}]}
)


def test_every_table_of_the_publication_is_held_against_the_simulation() -> None:
    every = list(published.rows())
    counts = {table: sum(row.table == table for row in every) for table in ("T2", "T3", "T4", "T5", "T6")}
    assert counts == {"T2": 25, "T3": 21, "T4": 20, "T5": 14, "T6": 12}
    assert len(set(every)) == len(every)
    slow = next(row for row in every if row.table == "T6" and row.case.scheduler == KUBE and row.figure.endswith("p99"))
    assert slow.value == pytest.approx(28.82 / 4.47)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("bpi-1000", Case(KUBE, bpi=1000, request=0.5)),
        ("ml-200", Case(KUBE, ml=200)),
        ("mixed-500", Case(KUBE, bpi=500, ml=20, request=0.1)),
        ("latency", Case(KUBE, bpi=1000, request=0.1, service=True)),
    ],
)
def test_the_packaged_scenarios_of_the_dissertation_have_the_fitted_physics(name: str, case: Case) -> None:
    packaged, fitted = scenario.load(name), cluster.scenario(case)
    assert packaged.model_dump(exclude={"name", "about"}) == fitted.model_dump(exclude={"name", "about"})


def test_a_finished_run_is_not_run_again_and_its_figures_stay_the_same(tmp_path: Path) -> None:
    wanted = [Run(SMALL, "kube", seed) for seed in (1, 2)]
    first = runs.figures(wanted[:1], tmp_path, processes=1)
    stored = tmp_path / f"{wanted[0].key}.json"
    marked = json.loads(stored.read_text()) | {"kills": 77.0}
    stored.write_text(json.dumps(marked))
    both = runs.figures(wanted, tmp_path, processes=1)
    assert both[wanted[0].key]["kills"] == 77.0
    assert both[wanted[0].key]["job_seconds"] == first[wanted[0].key]["job_seconds"]
    assert both[wanted[1].key]["kills"] == 0.0
    stored.write_text("{")  # an older program may have left anything
    assert runs.figures(wanted[:1], tmp_path, processes=1) == first


def test_a_run_is_known_by_what_it_computes_and_not_by_its_name() -> None:
    renamed = SMALL.model_copy(update={"name": "other", "about": "Something"})
    assert Run(renamed, "kube", 1).key == Run(SMALL, "kube", 1).key
    slower = SMALL.model_copy(update={"slowdown": 1.5})
    keys = {
        Run(SMALL, "kube", 1).key,
        Run(SMALL, "kube", 2).key,
        Run(SMALL, "spazio", 1).key,
        Run(slower, "kube", 1).key,
    }
    assert len(keys) == 4


def rows(scheduler: str, factor: float) -> list[Row]:
    """Return rows of a scheduler whose simulated figures are so many times the published ones."""
    role = KUBE if scheduler == KUBE else SPAZIO
    every = [row for row in published.rows() if row.case.scheduler == role]
    return [Row(row, scheduler, Interval(factor * row.value, 0.1)) for row in every]


@pytest.mark.parametrize("scheduler", ["kube", "reference", "spazio"])
@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_every_row_that_differs_has_a_reason_and_no_other(scheduler: str, factor: float) -> None:
    for row in rows(scheduler, factor):
        assert not row.within
        assert re.fullmatch(r"[A-Z`].{40,}\.", reasons.of(row)), row
    lines = list(page.published("Simulated, predicted", "Text.", rows(scheduler, 1.0)))
    assert lines[1].startswith("Text. ")
    assert all(line.endswith("| +0 % |  |") for line in lines if line.startswith("| T"))


def test_a_row_without_a_reason_is_refused() -> None:
    row = Published("T9", Case(KUBE, bpi=1), "job_seconds", 1.0)
    with pytest.raises(LookupError, match="T9"):
        reasons.of(Row(row, KUBE, Interval(2.0, None)))


def test_rows_are_within_their_limits_of_15_and_20_per_cent() -> None:
    assert [row.within for row in rows("kube", 1.16)[:1] + rows("reference", 1.16)[:1]] == [False, True]
    assert comparison.LIMITS[KUBE] == 0.15


def test_a_row_that_not_every_seed_has_is_not_as_published() -> None:
    (row, *_) = rows("kube", 1.0)
    assert row.within
    assert not row._replace(simulated=row.simulated._replace(lacking=1)).within


def test_each_heading_says_what_its_figures_are() -> None:
    interval = {"job_seconds": Interval(1.0, 0.1)}
    compared = {scheduler: rows(scheduler, 1.0) for scheduler in ("kube", "reference", "spazio")}
    lines = [
        *page.head(10, "evaluation"),
        *evaluation.compared(compared),
        *jobs.lines([]),
        *page.scenario(SMALL, {"kube": interval}),
        *page.placed({"availability": Result(1, 0.5, 0.5, 1)}, 1, 1),
        *page.overhead(Overhead(0.004, 0.002, 0.006), 300, 2),
        *page.speed({"kube": (1.0, 2.0)}),
    ]
    headings = [heading for line in lines for heading in re.findall(r"^## (.*)$", line, re.MULTILINE)]
    assert len(headings) == 9
    for heading in headings:
        assert re.match(r"(Simulated(, (fitted|predicted))?|Replayed|Measured): ", heading), heading


def test_the_overhead_is_shown_in_percent_beside_the_published_one() -> None:
    lines = list(page.overhead(Overhead(0.0039, 0.0023, 0.0055), 300, 2))
    assert "| spazio | 0.39 % (0.23 to 0.55 %) |" in lines
    assert sum("published (T1)" in line for line in lines) == len(published.OVERHEAD) == 5


def test_jobs_that_take_longer_than_under_the_best_request_are_marked() -> None:
    def job(seconds: float, over: float = 0.0) -> jobs.Job:
        return jobs.Job(Interval(seconds, 1.0), over)

    kube = {0.1: job(100.0, 5.0), 0.2: job(110.0), 0.5: job(105.0), 1.0: job(130.0)}
    sizes = [jobs.Size(1000, kube, job(120.0), job(104.0))]
    (line,) = (each for each in jobs.lines(sizes) if each.startswith("| 1000"))
    assert line == (
        "| 1000 | 100.0 ±1.0 s | 100m | 105.0 ±1.0 s | 500m "
        "| 104.0 ±1.0 s | +4.0 % ✗ | -1.0 % | 120.0 ±1.0 s | +20.0 % ✗ |"
    )


@pytest.mark.slow
def test_a_job_is_run_again_after_a_few_pods_of_its_kind_have_ended() -> None:
    """The second job alone is measured: its pods come 90 s after the first ones."""
    once = jobs.again(100)
    assert [(group.name, group.count, group.at) for group in once.pods] == [("bpi", 38, 0.0), ("bpi", 100, 90.0)]
    run = asyncio.run(engine.run(once, "spazio", 1))
    late = run.population.created > 90 + engine.SETTLED_SECONDS - 1
    assert late.sum() == 100
    assert run.ended[~late].max() < run.population.created[late].min()
