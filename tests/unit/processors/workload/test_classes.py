"""Room by workload class is right: for a mix of classes that changes, in churn, and where CPUs are fought over."""

import json
from typing import Any, NamedTuple

import numpy as np
import pytest

from processors.partition.partition import Partition
from processors.workload import usage as usages
from processors.workload.pod_class import Facts, PodClass
from processors.workload.pods import pods_of
from schemas.messages.estimate import Availability
from schemas.messages.telemetry import PodUsageBlock
from tests.support.processors.mix import ALLOWED, CORES, FREE_MEMORY, configured, pod, rows_of, sampled, share_of
from tests.support.processors.telemetry import event, facts, stored, usage

COST = {"shop/web": (0.2, 100e6), "shop/ml": (1.5, 2e9)}
MIX = [(5, 1), (5, 4), (12, 4), (12, 2), (20, 2), (20, 6), (8, 6), (8, 1), (15, 3)]
STEP = 30


def scripted(seed: int = 1) -> tuple[list[tuple[str, bytes]], list[tuple[float, float]]]:
    """Return the stream of a node whose mix of two classes changes, and usage (cores, bytes) of each second."""
    random = np.random.default_rng(seed)
    messages: list[tuple[str, bytes]] = []
    truth: list[tuple[float, float]] = []
    before: set[str] = set()
    for second in range(len(MIX) * STEP):
        counts = dict(zip(COST, MIX[second // STEP], strict=True))
        listed, cores, memory = [], 0.4, 3e9
        for name, count in counts.items():
            for number in range(count):
                used = COST[name][0] * float(random.normal(1, 0.02)), COST[name][1] * float(random.normal(1, 0.002))
                identity = f"{name}-{number}"
                given = identity in before
                listed.append(pod(identity, name, used[0] if given else None, used[1]))
                cores, memory = cores + used[0], memory + used[1]
        pods = {item["pod"] for item in listed}
        messages += [stored(event("n", second + 0.02, container=name)) for name in sorted(pods - before)]
        messages += [stored(event("n", second + 0.02, "exited", container=name)) for name in sorted(before - pods)]
        before = pods
        beside = [
            stored(sampled("n", second, cores, memory, len(pods), noise=random.normal(0, 0.001, 10))),
            stored(usage("n", second + 1, listed, system_cpu_cores=0.4)),
        ]
        messages += beside if random.random() < 0.5 else beside[::-1]
        truth.append((cores, memory))
    return messages, truth


class Mixed(NamedTuple):
    """What was published of the scripted node, and its usage (cores, bytes) of each second."""

    rows: list[Availability]
    truth: list[tuple[float, float]]


@pytest.fixture(scope="module")
def mixed() -> Mixed:
    messages, truth = scripted()
    outputs, refusals = Partition(configured(estimate_max_pods="500"), 0).fold(messages)
    assert not refusals
    return Mixed(rows_of(outputs), truth)


def fit(name: str, second: int, cores: float, memory: float) -> float:
    """Return how many pods of a class fit on the scripted node: CPU is full at what serving pods may demand."""
    lines = zip(COST.values(), MIX[second // STEP], strict=True)
    waiting = sum(count * (share_of(each) - each / ALLOWED) for (each, _), count in lines)
    free = 1 - cores / ALLOWED - waiting
    return max(0.0, min(free / share_of(COST[name][0]), (FREE_MEMORY - memory) / COST[name][1]))


@pytest.mark.slow
def test_room_by_class_is_right_for_a_scripted_mix_of_two_classes(mixed: Mixed) -> None:
    errors: dict[str, list[float]] = {name: [] for name in (*COST, *(f"scalar {name}" for name in COST))}
    safe: list[bool] = []
    for row in mixed.rows:
        second = row.seq - 1000
        if second < 2 * STEP or row.churn:
            continue
        assert row.classes is not None
        assert {name: item.pods for name, item in row.classes.items()} == dict(
            zip(COST, MIX[second // STEP], strict=True)
        )
        for name in COST:
            right = fit(name, second, *mixed.truth[second])
            errors[name].append(row.classes[name].available - right)
            errors[f"scalar {name}"].append(row.available - right)
            safe.append(row.classes[name].lower <= right)
    for name, result in errors.items():
        print(f"{name}: rmse {np.sqrt(np.mean(np.square(result))):.2f}, worst {np.abs(result).max():.2f} pods")
    assert len(errors["shop/web"]) > 180
    for name in COST:
        assert np.sqrt(np.mean(np.square(errors[name]))) < 0.5
        assert np.abs(errors[name]).max() < 2.0  # of up to 70
        assert np.abs(errors[f"scalar {name}"]).max() > 5
    assert np.mean(safe) > 0.9


@pytest.mark.slow
def test_in_churn_room_by_class_rests_on_what_was_learned(mixed: Mixed) -> None:
    shaken = [row for row in mixed.rows if row.churn and row.seq - 1000 > 4 * STEP and (row.seq - 1000) % STEP > 1]
    assert len(shaken) >= 4
    for row in shaken:
        assert row.classes is not None
        for name in COST:
            assert row.classes[name].available == pytest.approx(
                fit(name, row.seq - 1000, *mixed.truth[row.seq - 1000]), abs=1.5
            )


@pytest.mark.slow
def test_the_share_that_a_pod_takes_is_that_of_the_allowed_slowdown(mixed: Mixed) -> None:
    row = mixed.rows[-1]
    assert row.classes is not None
    for name, (cores, memory) in COST.items():
        assert row.classes[name].cpu == pytest.approx(share_of(cores), rel=0.02)
        assert row.classes[name].memory == pytest.approx(memory / FREE_MEMORY, rel=0.01)
    assert row.limits == pytest.approx({"cpu": ALLOWED, "memory": FREE_MEMORY}, rel=1e-4)
    assert row.free is not None
    for name in COST:
        room = row.classes[name]
        assert room.available == pytest.approx(
            min(row.free["cpu"] / room.cpu, row.free["memory"] / room.memory), rel=0.01
        )


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("pressure", [True, False])
def test_pods_that_fight_over_the_cpus_cost_what_they_want_and_not_what_they_get(pressure: bool) -> None:
    partition = Partition(configured(), 0)
    for second in range(120):
        threads = 24  # busy threads, one a pod, on 16 cores
        waited = 1 - CORES / threads if pressure else None
        listed = [pod(f"p{number}", "a/busy", CORES / threads, 1e8, cpu_pressure=waited) for number in range(threads)]
        outputs, _ = partition.fold(
            [stored(sampled("n", second, threads, 1e10, threads)), stored(usage("n", second + 1, listed))]
        )
    (row,) = rows_of(outputs)
    assert row.classes is not None
    assert row.classes["a/busy"].cpu == pytest.approx(1 / (2 * CORES), rel=0.02)
    assert row.classes["a/busy"].available == pytest.approx(2 * CORES - threads, abs=0.3)


def test_a_pod_that_only_its_own_quota_holds_back_is_not_taken_to_want_a_cpu() -> None:
    listed = [
        pod("q", "a/tight", 0.3, 1e8, cpu_pressure=0.7, throttled=0.7),
        pod("b", "a/busy", 2.0, 1e8, cpu_pressure=0.5),
    ]
    assert pods_of([usage("n", 1, listed)], np.ones(1), np.ones(1)).waiting.tolist() == [0.0, 1.0]


@pytest.mark.slow
def test_a_full_node_stays_full_while_pods_come_and_go() -> None:
    """Nine pods that want 1.6 cores each on 16: one is replaced every second, which is churn without an end."""
    partition = Partition(configured(), 0)
    reports: list[Availability] = []
    for second in range(90):
        first = max(0, second - 30)
        listed = [pod(f"p{number}", "shop/web", 1.6, 1e8, cpu_pressure=0.1) for number in range(first, first + 9)]
        messages = [] if second < 30 else [stored(event("n", second + 0.3, container=f"p{first + 8}"))]
        ages = [min(second - max(0, number + 22), 600) if number > 8 else 100 for number in range(first, first + 9)]
        published = usage("n", second + 1, listed, system_cpu_cores=0.2, ages=ages)
        messages += [stored(sampled("n", second, 14.6, 3e9, 9)), stored(published)]
        reports += rows_of(partition.fold(messages)[0])
    assert reports[-1].churn
    for row in reports[30:]:
        assert row.available < 1.0
        assert row.lower == 0.0


def kinds(declared: str | None, *, by: str, cores: float) -> list[str | None]:
    """Return the kind of a class, block by block, whose one pod declares one and uses so many cores."""
    partition = Partition(configured(), 0)
    facts_of = [stored(facts("n", "p", "a", kind=declared))] if by == "facts" else []
    fields: dict[str, Any] = {} if declared is None or by == "facts" else {"kinds": [declared]}
    messages = [*facts_of, stored(sampled("n", 0, cores, 1e9, 1))]
    for second in range(1, 60):
        messages.append(stored(usage("n", second, [pod("p", "a", cores, 1e9)], **fields)))
        messages.append(stored(sampled("n", second, cores, 1e9, 1)))
    result = [(row.classes or {}).get("a") for row in rows_of(partition.fold(messages)[0])]
    return [room.kind for room in result if room is not None]


@pytest.mark.slow
@pytest.mark.parametrize("by", ["facts", "agent"])
def test_a_class_is_of_the_kind_that_its_pods_declare_from_the_first_block_on(by: str) -> None:
    assert set(kinds("serving", by=by, cores=1.0)) == {"serving"}
    assert set(kinds("batch", by=by, cores=0.31)) == {"soaking"}
    assert set(kinds("batch", by=by, cores=1.0)) == {"soaking"}
    seen = kinds(None, by=by, cores=1.0)
    assert (seen[0], seen[-1]) == ("serving", "soaking")
    assert set(kinds(None, by=by, cores=0.31)) == {"serving"}


@pytest.mark.slow
def test_a_declared_kind_is_what_room_is_computed_by() -> None:
    rooms = {}
    for kind in ("serving", "batch"):
        listed = [pod("p", "a", 1.0, 1e8)]
        messages = [stored(facts("n", "p", "a", kind=kind)), stored(sampled("n", 0, 1.0, 1e9, 1))]
        for second in range(1, 60):
            messages += [stored(usage("n", second, listed)), stored(sampled("n", second, 1.0, 1e9, 1))]
        row = rows_of(Partition(configured(), 0).fold(messages)[0])[-1]
        rooms[kind] = (row.classes or {})["a"]
    assert rooms["batch"].cpu == pytest.approx(1 / (2 * CORES), rel=0.02)
    assert rooms["serving"].cpu == pytest.approx(share_of(1.0), rel=0.02)


def test_of_pods_that_declare_different_kinds_most_decide_and_ties_are_serving() -> None:
    block = usage(
        "n", 1, [pod(name, "a", 1.0, 1e8) for name in "pqrs"], kinds=["batch", "batch", "serving", None]
    )  # fmt: skip

    def declared(block: PodUsageBlock, facts: Facts) -> float:
        """Return what the pods of the only class declare together: 1, 0, or NaN for nothing."""
        ones, grouping = np.ones(1), facts.group(block)
        table = np.ones((1, 2))
        beside = usages.Beside(
            table, ones, table[:, :1], table[:, :1], table, ones, ones, ones > 0, np.ones(1, np.int64), ones, ones
        )
        sums = usages.add_up(
            pods_of([block], ones, ones), grouping.number, grouping.declared, grouping.recurring, 1, beside
        )
        return float(sums.declared[0, 0])

    assert declared(block, Facts()) == 1
    given = Facts()
    assert declared(block, given) == 1
    given.learn(facts("n", "q", "a", kind="serving"))
    assert declared(block, given) == 0
    given.learn(facts("n", "p", "a"))  # Kubernetes knows of no kind, the container's label stands
    assert declared(block.model_copy(update={"kinds": ["batch", "serving", None, None]}), given) == 0
    assert np.isnan(declared(block.model_copy(update={"kinds": None}), Facts()))


def test_facts_of_an_older_program_have_no_kinds_and_are_taken_over() -> None:
    given = Facts()
    given.learn(facts("n", "p", "a", kind="batch"))
    again = Facts()
    again.load(json.loads(json.dumps(given.dump())))
    assert again.pods("n")["p"] == PodClass(1, "a", "batch")
    old = Facts()
    old.load({"nodes": {"n": {"p": [1, "a"]}}, "newest_us": {"n": 1}})
    assert old.pods("n")["p"] == PodClass(1, "a")
