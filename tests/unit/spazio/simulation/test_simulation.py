"""The simulated cluster against closed forms, and the schedulers on it."""

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from spazio.simulation import compare, engine, outcome, scenario
from spazio.simulation.cluster import DONE, RUNNING, TICKS, Cluster, populate
from spazio.simulation.scenario import Scenario, Unreadable
from spazio.simulation.schedulers.product import Product
from tests.support.server.program import SPAZIO

SMALL = {"nodes": [{"count": 3, "cpus": 2}], "pods": [{"name": "bpi", "count": 24, "per_second": 4, "work": 4}]}


def made(**fields: Any) -> Scenario:
    return Scenario.model_validate({"name": "test", **SMALL, **fields})


def cluster(pods: list[dict[str, Any]], physics: dict[str, float] | None = None, **node: Any) -> Cluster:
    plain = {"start_seconds": 0, "spike_seconds": 0, "loss": 0} | (physics or {})
    wanted = made(nodes=[{"count": 1, "cpus": 4, "system_cpu": 0, **node}], pods=pods, physics=plain)
    random = np.random.default_rng(1)
    return Cluster(wanted, populate(wanted, 0.0, random), random)


def advance(target: Cluster, seconds: float) -> list[float]:
    """Run everything on the first node; return the cores in use at each tick."""
    for pod in range(len(target.state)):
        target.bind(pod, 0, 0.0)
    return [float(target.tick(tick / TICKS)[0].used[0]) for tick in range(round(seconds * TICKS))]


@pytest.mark.parametrize(
    ("pods", "threads", "loss"), [(1, 1, 0.0), (4, 1, 0.0), (8, 1, 0.0), (16, 1, 0.1), (3, 4, 0.1)]
)
def test_equal_pods_take_as_long_as_processor_sharing_says(pods: int, threads: int, loss: float) -> None:
    target = cluster([{"name": "p", "count": pods, "work": 8, "spread": 0, "threads": threads}], {"loss": loss})
    used = advance(target, 60)
    each = min(1.0, 4 / (pods * threads))
    assert target.ended == pytest.approx(8 / (threads * each * (1 - loss * (1 - each))), abs=0.11)
    assert used[0] == pytest.approx(min(4, pods * threads))


def test_no_work_is_lost_or_made_in_any_order() -> None:
    target = cluster([{"name": "p", "count": 30, "work": 5, "spread": 0.8}])
    used = advance(target, 120)
    assert (target.state == DONE).all()
    assert sum(used) / TICKS == pytest.approx(target.population.work.sum(), rel=0.02)


def test_a_serving_pod_demands_its_cores_on_average_and_slows_down_with_its_neighbours() -> None:
    target = cluster([{"name": "s", "kind": "serving", "count": 4, "cores": 0.4, "seconds": 500}])
    used = advance(target, 400)
    assert np.mean(used) == pytest.approx(1.6, rel=0.05)
    assert (target.state == RUNNING).all()


@pytest.mark.parametrize(("cores", "share"), [(0.2, 0.0), (0.32, 0.0), (0.35, 1.0), (0.5, 1.0)])
def test_a_node_whose_services_demand_more_than_it_has_is_beyond_the_policy(cores: float, share: float) -> None:
    pods = [{"name": "s", "kind": "serving", "count": 10, "cores": cores, "seconds": 120}]
    run = asyncio.run(engine.run(made(nodes=[{"count": 1, "cpus": 4}], pods=pods), "kube", 1))
    assert run.over_seconds / run.busy_seconds == pytest.approx(share, abs=0.05)


def test_a_pod_of_several_threads_waits_for_a_cpu_whenever_one_of_them_does() -> None:
    target = cluster([{"name": "p", "count": 1, "work": 99, "threads": 6}, {"name": "q", "count": 2, "work": 99}])
    advance(target, 1)
    assert target.waited == pytest.approx([1 - 0.5**6, 0.5, 0.5])


def test_too_little_memory_kills_the_youngest_which_begins_again() -> None:
    pods = [{"name": "p", "count": 3, "work": 4, "spread": 0, "memory": "2Gi"}]
    target = cluster(pods, {"restart_seconds": 5}, memory="5Gi", system_memory="512Mi")
    advance(target, 30)
    assert target.kills == 1
    assert np.sort(target.ended)[:2] == pytest.approx(4, abs=0.2)
    assert np.sort(target.ended)[2] == pytest.approx(5 + 4, abs=0.4)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", scenario.SCHEDULERS)
def test_the_same_seed_gives_the_same_run_and_another_one_another(scheduler: str) -> None:
    first, again, other = (asyncio.run(engine.run(made(), scheduler, seed)) for seed in (1, 1, 2))
    assert first.ended.tobytes() == again.ended.tobytes()
    assert (first.refusals, first.utilization) == (again.refusals, again.utilization)
    assert first.ended.tobytes() != other.ended.tobytes()
    assert np.isfinite(first.ended).all()


def test_requests_bound_what_kube_scheduler_puts_on_a_node() -> None:
    wanted = made(pods=[{"name": "p", "count": 9, "work": 6, "spread": 0, "cpu_request": 1}])
    run = asyncio.run(engine.run(wanted, "kube", 1))
    first = np.sort(run.bound)[:6]
    assert first.max() - first.min() < 1
    assert run.over_seconds == 0
    assert np.sort(run.bound)[6] - first.min() > 5


@pytest.mark.parametrize(
    ("memory", "request_each", "count"),
    [("8Gi", "2Gi", 4), ("8Gi", "4Gi", 2), ("16Gi", "16Gi", 1), ("64Gi", "32Gi", 2)],
)
def test_pods_whose_requests_fill_a_node_to_the_byte_are_all_placed(memory: str, request_each: str, count: int) -> None:
    pods = [{"name": "s", "kind": "serving", "count": count, "cores": 0.01, "memory_request": request_each}]
    wanted = made(nodes=[{"count": 1, "cpus": 4, "memory": memory}], pods=pods, seconds=5)
    assert np.isfinite(asyncio.run(engine.run(wanted, "kube", 1)).bound).all()


def test_a_refused_pod_is_tried_before_its_backoff_ends_where_no_other_is_ready() -> None:
    """Twelve pods, one at a time, each of a second: a pod that was refused often would back off for ten."""
    alone = {"nodes": [{"count": 1, "cpus": 4}], "physics": {"start_seconds": 0, "spike_seconds": 0}}
    pods = [{"name": "p", "count": 12, "threads": 4, "work": 4, "spread": 0, "cpu_request": 4}]
    run = asyncio.run(engine.run(made(pods=pods, **alone), "kube", 1))
    gaps = np.sort(run.bound)[1:] - np.sort(run.ended)[:-1]
    assert gaps.max() < 0.15
    assert run.refusals > 12


@pytest.mark.slow
def test_spazio_holds_the_policy_where_requests_say_nothing() -> None:
    heavy = made(pods=[{"name": "p", "count": 60, "per_second": 4, "work": 6}])
    runs = {name: asyncio.run(engine.run(heavy, name, 1)) for name in ("kube", "spazio")}
    figures = {name: outcome.of(run, heavy) for name, run in runs.items()}
    assert figures["kube"]["over_node_seconds"] > 50
    assert figures["spazio"]["over_node_seconds"] == 0
    assert figures["spazio"]["pod_seconds_p99"] < 0.5 * figures["kube"]["pod_seconds_p99"]
    assert figures["spazio"]["unfinished"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), [("morning-herd", 7), ("noisy-neighbour", 8)])
def test_the_best_of_many_nodes_with_little_evidence_gets_no_more_than_it_can_bear(name: str, seed: int) -> None:
    wanted = scenario.load(name)
    figures = outcome.of(asyncio.run(engine.run(wanted, "spazio", seed)), wanted)
    assert figures["over_node_seconds"] == 0
    assert figures["unfinished"] == 0


def test_it_is_the_product_that_folds_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without telemetry, the extender lets everything pass, and says so; with it, nothing is beyond the policy."""
    heavy = made(pods=[{"name": "p", "count": 60, "per_second": 4, "work": 6}])
    monkeypatch.setattr(Product, "observe", lambda *_: None)
    assert asyncio.run(engine.run(heavy, "spazio", 1)).over_seconds > 50


@pytest.mark.slow
def test_pods_of_a_lost_node_run_elsewhere() -> None:
    wanted = made(losses=[{"at": 3, "nodes": 1}], pods=[{"name": "p", "count": 12, "work": 6}])
    for scheduler in ("kube", "spazio"):
        engine_run = asyncio.run(engine.run(wanted, scheduler, 1))
        assert np.isfinite(engine_run.ended).all()
        assert (engine_run.bound > engine.SETTLED_SECONDS + 2.9).any()


@pytest.mark.parametrize("name", scenario.packaged())
def test_every_packaged_scenario_can_be_read(name: str) -> None:
    assert scenario.load(name).about


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nodes = [", "is no TOML"),
        ("nodes = " + "[" * 5000, "nested too deeply"),
        (".".join("n" * 4000) + " = 1", "more than 32 parts"),
        ("[[nodes]]\ncount = 0\n[[pods]]\nname = 'a'\ncount = 1", "nodes.0.count"),
        ("[[nodes]]\ncount = 1\n[[pods]]\nname = 'a'\ncount = 1\nmemory = 'much'", "pods.0.memory"),
        ("[[nodes]]\ncount = 1\n[[pods]]\nname = 'a'\ncount = 1\ncpu = 1", "pods.0.cpu: Extra inputs"),
        ("[[nodes]]\ncount = 1\n[[pods]]\nname = 'a'\ncount = 60000", "pods.0.count"),
        (
            "[[nodes]]\ncount = 1\n[[pods]]\nname = 'a'\ncount = 1\ncores = 3\nseconds = 9",
            "pods.0: .*cores and seconds: only pods of kind serving have that, and kind is 'batch'",
        ),
        (
            "[[nodes]]\ncount = 1\n[[pods]]\nname = 'a'\ncount = 1\nkind = 'serving'\nthreads = 8",
            "pods.0: .*threads: only pods of kind batch have that, and kind is 'serving'",
        ),
        (
            "[[nodes]]\ncount = 1\nreserved_memory = '9Gi'\n[[pods]]\nname = 'a'\ncount = 1",
            "nodes.0: .*reserved_memory",
        ),
        ("[[nodes]]\ncount = 1\nreserved_cpu = 3\nrequested_cpu = 2\n[[pods]]\nname = 'a'\ncount = 1", "requested_cpu"),
        ("[[nodes]]\ncount = 1\n[[losses]]\nat = 1\n[[pods]]\nname = 'a'\ncount = 1", "losses leave no node"),
        ("[[nodes]]\ncount = 1\n[[pods]]\nname = 'a'\ncount = 9\nper_second = 0.005", "pods a come until 1600 s"),
        ("slowdown = 1\n[[nodes]]\ncount = 1\n[[pods]]\nname = 'a'\ncount = 1", "slowdown: Input should be greater"),
        ("slowdown = 11\n[[nodes]]\ncount = 1\n[[pods]]\nname = 'a'\ncount = 1", "slowdown: Input should be less"),
        ("schedulers = ['best']\n[[nodes]]\ncount = 1\n[[pods]]\nname = 'a'\ncount = 1", "schedulers.0"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_reported_with_its_place(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(Unreadable, match=reason) as refused:
        scenario.load(str(file))
    assert str(file) in str(refused.value)


@pytest.mark.parametrize(
    ("file", "name"), [("My_Scenario", "my-scenario"), ("mine v2", "mine-v2"), ("Опыт", "scenario"), ("mine", "mine")]
)
def test_a_scenario_without_a_name_has_that_of_its_file(tmp_path: Path, file: str, name: str) -> None:
    path = tmp_path / f"{file}.toml"
    path.write_text("[[nodes]]\ncount = 1\n[[pods]]\nname = 'a'\ncount = 1")
    assert scenario.load(str(path)).name == name


def test_pods_of_one_workload_in_several_groups_have_their_figures_together() -> None:
    pods = [{"name": name, "count": 2, "work": work, "spread": 0} for name, work in (("a", 1), ("b", 2), ("a", 3))]
    physics = {"start_seconds": 0, "spike_seconds": 0, "loss": 0}
    wanted = made(nodes=[{"count": 6, "cpus": 4, "system_cpu": 0}], pods=pods, physics=physics)
    figures = outcome.of(asyncio.run(engine.run(wanted, "kube", 1)), wanted)
    assert figures["pod_seconds_mean.a"] == pytest.approx(2, abs=0.1)
    assert figures["pod_seconds_std.a"] == pytest.approx(1, abs=0.1)
    assert figures["pod_seconds_mean.b"] == pytest.approx(2, abs=0.1)
    assert figures["pod_seconds_min"] == pytest.approx(1, abs=0.15)


def test_pods_of_a_lost_node_that_find_no_other_are_without_a_node_and_others_wait_from_then_on() -> None:
    pods = [{"name": "s", "kind": "serving", "count": 8, "cores": 0.1, "cpu_request": 0.9}]
    lost = {"seconds": 60, "losses": [{"at": 30, "nodes": 1}]}
    for nodes, unbound in ((2, 4), (4, 0)):
        wanted = made(nodes=[{"count": nodes, "cpus": 4}], pods=pods, **lost)
        figures = outcome.of(asyncio.run(engine.run(wanted, "kube", 1)), wanted)
        assert figures["unbound"] == unbound
        assert figures["wait_seconds_max"] < 2


def test_a_scenario_that_was_written_can_be_read(tmp_path: Path) -> None:
    wanted = made(about='Encoders \U0001f3ac "a\\b" \x7f\n')
    path = tmp_path / "scenario.toml"
    path.write_text(scenario.text(wanted))
    assert scenario.load(str(path)) == wanted


def test_a_mean_says_of_how_many_seeds_it_is() -> None:
    seeds = [{"job_seconds": 130.0}, {"job_seconds": 132.0, "kills": 1.0}, {"job_seconds": float("nan")}]
    figures = outcome.together(seeds)
    assert compare.cell(figures["job_seconds"]) == "131.0 ±12.7 (2 of 3)"
    assert compare.cell(figures["kills"]) == "1.00 (1 of 3)"
    assert compare.cell(outcome.together(seeds[:2])["job_seconds"]) == "131.0 ±12.7"
    assert compare.cell(outcome.together(seeds[2:])["job_seconds"]) == "-"


def test_intervals_are_students() -> None:
    runs = [{"a": value, "b": float("nan")} for value in (1.0, 2.0, 3.0)]
    together = outcome.together(runs)
    assert together["a"].mean == 2.0
    assert together["a"].half == pytest.approx(4.303 / 3**0.5)
    assert outcome.together(runs[:1])["a"].half is None


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[[nodes]]\ncount = 2\n[[pods]]\nname = 'a'\ncount = 6\nwork = 2\n")
    command = [*SPAZIO, "simulate", str(file), "--seeds", "2", "--only", "kube", "--out", str(tmp_path), "--json"]
    document = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert document["schedulers"]["kube"]["unfinished"] == {"mean": 0.0, "half": 0.0, "seeds": 2, "lacking": 0}
    rows = pl.read_parquet(tmp_path / "runs.parquet")
    assert set(rows["seed"]) == {1, 2}
    refused = subprocess.run(
        [*SPAZIO, "simulate", str(file), "--only", "best"], capture_output=True, check=False, text=True
    )
    assert refused.returncode == 2
    assert "schedulers are kube" in refused.stderr
    assert "Traceback" not in refused.stderr
