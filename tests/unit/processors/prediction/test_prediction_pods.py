"""Pods that are young, known by their workload, over or gone; and how long they and their nodes are remembered."""

from typing import Any

import pytest

from processors.prediction.fold import PredictionPartition
from processors.rows import snapshot
from schemas.messages.base import Message
from schemas.messages.prediction import Prediction, Resources
from schemas.messages.telemetry import MAXIMUM_PODS
from schemas.sections.prediction import PEAK_MODELS
from tests.support import telemetry
from tests.support.telemetry import START, block, stored
from tests.unit.processors.prediction.test_prediction_fold import (
    BEGIN,
    Stream,
    calm,
    configured,
    node_facts,
    predictions,
)

SETTINGS = {"predict_cold_start_seconds": "60", "predict_force_seconds": "1", "predict_model": "n_sigma"}
NOTHING = Resources(cpu=0.0, memory=0.0)


def facts(pod: str, second: int, workload: str = "shop/web", *, node: str = "n", **fields: Any) -> tuple[str, bytes]:
    """Return a prod pod that asks for a core, created in a second."""
    made = {
        "requests": {"cpu": 1.0, "memory": 1e9},
        "priority": 9500,
        "created_us": (START + BEGIN + second) * 1_000_000,
        "at_us": (START + BEGIN + second) * 1_000_000,
        **fields,
    }
    return stored(telemetry.facts(node, pod, workload, max(1 + second, 0), **made))


def second_of(
    second: int, pods: list[str], *, node: str = "n", behind: int = 0, cpu: float = 0.5, **fields: Any
) -> Stream:
    """Return a second of a node on which some pods run."""
    at, used = BEGIN + second - behind, {"cpu_cores": 0.25, "memory_bytes": 5e8, **fields}
    own: list[Message] = [block(node, at, seq=second, cpu_util=cpu, memory_util=0.5)]
    own.append(telemetry.usage(node, at + 1, [{"pod": pod, **used} for pod in pods], seq=second))
    return [stored(each) for each in own]


def by_second(messages: Stream, node: str = "n", **flags: str) -> dict[int, Prediction]:
    """Return what is said of a node, by second."""
    predicted = predictions(PredictionPartition(configured(**SETTINGS | flags), 0).fold(messages))
    return {each.at_us // 1_000_000 - START - BEGIN: each for each in predicted if each.node == node}


def rows(partition: PredictionPartition) -> tuple[int, int]:
    """Return how many nodes and how many pods have statistics."""
    _, arrays = snapshot.unpack(partition.snapshot())
    return len(arrays["node.windows"]), len(arrays["pods.moments.at_us"])


def test_the_request_of_a_young_pod_is_unpredicted_until_its_cold_start_is_over() -> None:
    messages = [facts("p", 10)]
    for second in range(100):
        messages += second_of(second, ["p"])
    reports = by_second(messages)
    assert {second: first.unpredicted.cpu for second, first in reports.items()} == {30: 1, 40: 1, 60: 1, 80: 0, 90: 0}
    assert reports[60].requested == reports[90].requested == Resources(cpu=1.0, memory=1e9)
    assert reports[60].reclaimable == NOTHING
    assert reports[90].reclaimable.cpu == pytest.approx(0.75, abs=0.03)


@pytest.mark.cases
@pytest.mark.parametrize("sibling", ["alive", "gone", "of another workload"])
@pytest.mark.parametrize("behind", [0, 5])
def test_a_new_pod_of_a_known_workload_starts_warm(sibling: str, behind: int) -> None:
    messages = [facts("old", -1000, "shop/web", node="first")]
    for second in range(160):
        if second == 95 and sibling == "gone":
            messages.append(facts("old", 95, node="first", deleted=True))
        if second == 122:
            workload = "shop/else" if sibling == "of another workload" else "shop/web"
            messages.append(facts("new", 122, workload, node="second"))
        messages += second_of(second, [] if second >= 95 and sibling == "gone" else ["old"], node="first")
        # The pod comes just after a window of the first node has ended, and before that of the second ends.
        messages += second_of(second, ["new"] if second >= 122 else [], node="second", behind=behind)
    reports = by_second(messages, "second")
    newest = reports[max(reports)]
    cold = sibling == "of another workload"
    assert newest.requested.cpu == 1.0
    assert newest.unpredicted.cpu == (1.0 if cold else 0.0)
    assert (newest.reclaimable.cpu > 0.3) != cold


@pytest.mark.parametrize("model", ["calibrated", "n_sigma", "pods_n_sigma", "resource_central", "koordinator"])
def test_what_a_newcomer_with_a_past_will_use_is_not_given_away(model: str) -> None:
    messages = [facts("old", -1000, node="first", requests={"cpu": 1.0, "memory": 1e9})]
    for second in range(160):
        if second == 122:
            messages.append(facts("new", 122, node="second"))
        messages += second_of(second, ["old"], node="first", cpu_cores=0.9)
        messages += second_of(second, ["new"] if second >= 122 else [], node="second", cpu=0.05, cpu_cores=0.9)
    newest = by_second(messages, "second", predict_model=model)[150]
    assert newest.unpredicted.cpu == 0.0
    assert newest.reclaimable.cpu <= 0.1


def lent(cores: float, model: str) -> Prediction:
    """Return the last prediction of a node on which a Mid pod begins to use what was lent to it."""
    messages = [facts("prod", -1000, requests={"cpu": 3.0, "memory": 1e9})]
    messages += [facts("mid", -1000, "shop/batch", requests={}, priority=7500)]
    for second in range(100):
        used = cores if second > 20 else 0.0
        pods = [{"pod": "prod", "cpu_cores": 0.5, "memory_bytes": 1e8}]
        pods += [{"pod": "mid", "cpu_cores": used, "memory_bytes": 1e6}]
        messages.append(stored(block("n", BEGIN + second, seq=second, cpu_util=(0.9 + used) / 4, memory_util=0.1)))
        messages.append(stored(telemetry.usage("n", BEGIN + second + 1, pods, seq=second)))
    predicted = by_second(messages, predict_model=model)
    return predicted[max(predicted)]


@pytest.mark.cases
@pytest.mark.parametrize("model", sorted({*PEAK_MODELS} - {"calibrated", "koordinator"}))
def test_usage_by_mid_pods_does_not_change_what_the_mid_tier_gets(model: str) -> None:
    idle, busy = lent(0.0, model), lent(2.5, model)
    assert busy.peaks["mid"]["n_sigma"].cpu > 2.4
    assert idle.reclaimable.cpu == pytest.approx(busy.reclaimable.cpu, abs=0.02)
    for formula in ("reclaim", "mixed"):
        assert busy.mid[formula].cpu == pytest.approx(idle.mid[formula].cpu, abs=0.02)
    assert busy.mid["reclaim"].cpu > 0.2


def test_what_the_system_uses_is_not_lent() -> None:
    messages = lent(0.0, "resource_central")
    system = messages.peaks["system"]["resource_central"].cpu
    assert system == pytest.approx(0.4, abs=0.05)
    # The node has 4 cores, and the peaks of the prod pod and the system are kept back.
    assert messages.mid["mixed"].cpu == pytest.approx(
        4 - messages.peaks["prod"]["resource_central"].cpu - system, abs=0.02
    )


def test_what_a_pod_used_that_is_gone_when_the_window_ends_is_not_the_systems() -> None:
    messages = [facts("job", -100)]
    for second in range(70):
        messages += [facts("job", 25, deleted=True)] if second == 25 else []
        messages += second_of(second, ["job"] if second < 25 else [], cpu=0.5, cpu_cores=1.5)
    assert telemetry.block("n", 0).cpus * 0.5 == 2.0
    first = by_second(messages)[30].peaks
    assert first["system"]["n_sigma"].cpu == pytest.approx(0.5)
    assert first["prod"]["n_sigma"].cpu == pytest.approx(1.5)


def test_of_an_old_pod_nothing_is_reclaimed_before_it_was_seen_for_a_while() -> None:
    messages = [facts("p", -100_000)]
    for second in range(130):
        messages += second_of(second, ["p"])
    predicted = by_second(messages, predict_evidence_seconds="60")
    assert predicted[60].unpredicted.cpu == 1.0
    assert predicted[120].unpredicted.cpu == 0.0


def test_no_past_is_kept_where_no_workload_may_be_remembered() -> None:
    messages = [facts("old", -1000)]
    for second in range(160):
        messages += [facts("old", 95, deleted=True), facts("new", 122)] if second == 122 else []
        messages += second_of(second, ["new" if second >= 122 else "old"] if not 95 <= second < 122 else [])
    assert by_second(messages)[150].unpredicted.cpu == 0.0
    assert by_second(messages, predict_workloads="0")[150].unpredicted.cpu == 1.0


def test_a_pod_without_facts_that_does_not_run_any_more_is_in_no_sum() -> None:
    messages: Stream = []
    for second in range(100):
        messages += second_of(second, ["ends", "stays"] if second < 45 else ["stays"])
    reports = by_second(messages)
    both, first = (reports[second].peaks["none"]["resource_central"].cpu for second in (40, 90))
    assert first == pytest.approx(both / 2, abs=1e-4)


def test_a_pod_with_facts_counts_its_request_before_it_runs() -> None:
    messages: Stream = []
    for second in range(100):
        messages += [facts("waits", 50, phase="Pending")] if second == 50 else []
        messages += second_of(second, [])
    reports = by_second(messages)
    assert (reports[40].requested.cpu, reports[60].requested.cpu) == (0.0, 1.0)
    assert reports[90].peaks["prod"]["resource_central"].cpu == 1.0


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_is_over_or_deleted_is_forgotten_at_once(phase: str) -> None:
    for fields in ({"phase": phase}, {"deleted": True}):
        messages = [facts("p", -1000)]
        for second in range(70):
            messages += [facts("p", 50, **fields), facts("p", 49)] if second == 50 else []
            messages += second_of(second, ["p"] if second < 50 else [])
        reports = by_second(messages[: messages.index(facts("p", 50, **fields)) + 1] + second_of(60, []))
        assert reports[40].requested.cpu == 1.0
        assert reports[60].requested.cpu == 0.0


def test_an_older_version_of_facts_changes_nothing() -> None:
    messages = [facts("p", 5, requests={"cpu": 2.0}), facts("p", 4, requests={"cpu": 1.0})]
    messages += [stored(node_facts("n", 5, 3.0, 6e9)), stored(node_facts("n", 4, 2.0, 5e9))]
    for second in range(35):
        messages += second_of(second, ["p"])
    reports = by_second(messages)[30]
    assert (reports.requested.cpu, reports.capacity.cpu) == (2.0, 3.0)


def test_a_pod_that_is_listed_on_two_nodes_counts_on_each() -> None:
    messages = [facts("p", -1000, node="a"), facts("p", -1000, node="b")]
    for second in range(35):
        messages += second_of(second, ["p"], node="a") + second_of(second, ["p"], node="b")
    assert [by_second(messages, node)[30].requested.cpu for node in ("a", "b")] == [1.0, 1.0]


def test_pods_that_are_told_before_any_block_are_known_with_the_first_window() -> None:
    messages = [facts("p", -1000)]
    for second in range(60):
        own = second_of(second, ["p"])
        messages += own if second >= 25 else own[1:]
    assert by_second(messages)[30].requested.cpu == 1.0


def steps(nodes: dict[str, list[str]], begin: int, end: int) -> Stream:
    """Return a second of each node in every 20."""
    return [
        message
        for second in range(begin, end, 20)
        for node, pods in nodes.items()
        for message in second_of(second, pods, node=node)
    ]


def test_a_pod_without_facts_is_forgotten_when_it_was_not_used_for_half_an_hour() -> None:
    partition = PredictionPartition(configured(), 0)
    partition.fold(steps({"n": ["ends", "stays"]}, 0, 300))
    partition.fold(steps({"n": ["stays"]}, 300, 2000))
    assert rows(partition) == (1, 2)
    partition.fold(steps({"n": ["stays"]}, 2000, 2200))
    assert rows(partition) == (1, 1)


def test_a_pod_of_which_kubernetes_has_told_stays_as_long_as_its_node_is_known() -> None:
    """Facts are told once per change; a pod that waits, or whose node is cut off, must not lose them."""
    partition = PredictionPartition(configured(**SETTINGS), 0)
    partition.fold([facts("waits", 0, node="n", phase="Pending"), facts("runs", 0, node="away")])
    partition.fold(steps({"n": [], "away": ["runs"]}, 0, 300))
    partition.fold(steps({"n": []}, 300, 3000))
    outputs = partition.fold(steps({"n": [], "away": ["runs"]}, 3000, 3100))
    predicted = {prediction.node: prediction for prediction in predictions(outputs)}
    assert predicted["n"].requested.cpu == predicted["away"].requested.cpu == 1.0


@pytest.mark.slow
def test_a_node_that_is_silent_for_an_hour_is_forgotten_with_its_pods_and_its_place_is_used_again() -> None:
    partition = PredictionPartition(configured(**SETTINGS), 0)
    partition.fold([facts("p", 0, node="away")])
    partition.fold(steps({"away": ["p", "q"], "n": ["r"]}, 0, 300))
    assert rows(partition) == (2, 3)
    partition.fold(steps({"n": ["r"]}, 300, 4200))
    assert (partition.nodes, rows(partition)) == (1, (1, 1))
    outputs = partition.fold(steps({"away": ["p"], "n": ["r"]}, 4200, 4300))
    assert rows(partition) == (2, 2)
    # Nothing is known of what comes back: it counts its windows again.
    assert next(prediction.windows for prediction in predictions(outputs) if prediction.node == "away") == 1
    assert min(prediction.windows for prediction in predictions(outputs) if prediction.node == "n") > 100


@pytest.mark.slow
def test_containers_that_come_and_go_leave_nothing_behind() -> None:
    partition, sizes = PredictionPartition(configured(), 0), []
    for second in range(0, 8000, 20):
        partition.fold(second_of(second, [f"p{second // 60}"], node="n"))
        partition.fold(second_of(second, [f"q{second}"], node="only-pods")[1:])
        sizes.append(rows(partition)[1])
    half = len(sizes) // 2
    assert max(sizes[half:]) <= max(sizes[:half]) + 2
    assert max(sizes) < 140


def test_a_node_that_sends_only_pods_is_forgotten_too() -> None:
    partition = PredictionPartition(configured(), 0)
    partition.fold(steps({"n": []}, 0, 40))
    partition.fold([second_of(second, ["p"], node="only")[1] for second in range(40)])
    assert rows(partition) == (1, 1)
    partition.fold(steps({"n": []}, 40, 2200))
    header, _ = snapshot.unpack(partition.snapshot())
    assert header["used"].keys() == {"n"}
    assert rows(partition) == (1, 0)


def test_a_node_whose_clock_is_hours_behind_keeps_its_pods() -> None:
    messages = [facts("p", -100_000, node="late"), *calm("n", range(0))]
    for second in range(200):
        messages += second_of(second, ["x"]) + second_of(second, ["p", "q"], node="late", behind=20_000)
    partition = PredictionPartition(configured(**SETTINGS), 0)
    predicted = [prediction for prediction in predictions(partition.fold(messages)) if prediction.node == "late"]
    assert predicted[-1].requested.cpu == 1.0
    assert predicted[-1].peaks["none"]["resource_central"].cpu > 0.2
    assert rows(partition) == (2, 3)


def test_usage_of_before_a_long_silence_is_not_taken_for_recent() -> None:
    messages = [facts("p", -100_000, requests={"cpu": 3.0})]
    for second in range(300):
        messages += second_of(second, ["p"], cpu=1.0)
    for second in range(2400, 2500):
        messages += second_of(second, ["p"], cpu=0.1)
    predicted = by_second(messages, predict_unallocated_ratio="0", predict_percentile_cpu="0")
    # Nothing was unused while the machine was full; now nine tenths are.
    assert predicted[270].mid["shipped"].cpu == 0.0
    assert predicted[2490].mid["shipped"].cpu > 1.0


def test_a_node_that_is_renamed_begins_again_and_its_pods_keep_their_workloads_past() -> None:
    messages = [facts("p", -1000, node="before")]
    for second in range(200):
        node = "before" if second < 95 else "after"
        messages += [facts("p", -1000, node="after")] if second == 95 else []
        messages += second_of(second, ["p"], node=node)
    predicted = by_second(messages, "after", predict_cold_start_seconds="9000")
    assert predicted[120].windows == 1
    assert max(by_second(messages, "before")) < 95
    partition = PredictionPartition(configured(), 0)
    partition.fold(messages)
    _, arrays = snapshot.unpack(partition.snapshot())
    # Three windows on the old name, three on the new one.
    assert arrays["pods.moments.weight"][:, 0].max() > 5.9


def test_on_a_node_with_thousands_of_short_containers_those_that_last_are_not_forgotten() -> None:
    partition = PredictionPartition(configured(), 0)
    for second in range(28):
        partition.fold(second_of(second, ["lasts", *(f"{second}-{number}" for number in range(100))]))
    header, _ = snapshot.unpack(partition.snapshot())
    pods = {pod["uid"]: pod for pod in header["pods"]["n"]}
    assert len(pods) == MAXIMUM_PODS
    assert pods["lasts"]["created_us"] == (START + BEGIN + 1) * 1_000_000
