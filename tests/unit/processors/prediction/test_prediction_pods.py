"""Pods that are young, known by their workload, over or gone; and how long they and their nodes are remembered."""

from dataclasses import asdict

import pytest

from processors.prediction.pod import Pods
from processors.rows.quota import NodeQuota
from schemas.messages.prediction import Prediction, Resources
from schemas.sections.prediction import PEAK_MODELS
from schemas.sections.service import Process
from tests.support.processors import telemetry
from tests.support.processors.telemetry import block, stored
from tests.unit.processors.prediction.fold.recordings import BEGIN, Stream, node_facts
from tests.unit.processors.prediction.seconds import by_second, facts, second_of

NOTHING = Resources(cpu=0.0, memory=0.0)


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


@pytest.mark.cases
@pytest.mark.parametrize("model", PEAK_MODELS)
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


@pytest.mark.cases
@pytest.mark.parametrize("model", ["koordinator", "resource_central"])
def test_of_more_memory_than_histograms_tell_apart_nothing_is_lent(model: str) -> None:
    tebibyte = 1 << 40
    messages = [facts("p", -1000, requests={"cpu": 2.0, "memory": 3.5 * tebibyte})]
    for second in range(100):
        made = block("n", BEGIN + second, seq=second, cpu_util=0.2, memory_util=0.75)
        pod = {"pod": "p", "cpu_cores": 0.5, "memory_bytes": 3.0 * tebibyte}
        messages.append(stored(made.model_copy(update={"memory_bytes": 4 * tebibyte})))
        messages.append(stored(telemetry.usage("n", BEGIN + second + 1, [pod], seq=second)))
    predicted = by_second(messages, predict_model=model)
    newest = predicted[max(predicted)]
    assert newest.peak.memory >= 4 * tebibyte
    assert newest.reclaimable.memory == 0.0
    assert newest.reclaimable.cpu > 0.2


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


@pytest.mark.slow
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


def test_pods_that_are_reported_before_any_block_are_known_with_the_first_window() -> None:
    messages = [facts("p", -1000)]
    for second in range(60):
        own = second_of(second, ["p"])
        messages += own if second >= 25 else own[1:]
    assert by_second(messages)[30].requested.cpu == 1.0


def test_a_pod_is_dumped_with_all_its_fields() -> None:
    pods = Pods(NodeQuota(Process()))
    usage = telemetry.usage("n", BEGIN, [{"pod": "used", "cpu_cores": 0.25, "memory_bytes": 5e8}], seq=0)
    assert [pod.uid for pod, _, _ in pods.use(usage, 5)] == ["used"]
    pods.learn(telemetry.facts("n", "known", "shop/web", 1, requests={"cpu": 1.0}), 6)
    assert pods.dump() == {"n": [asdict(pod) for pod in pods.of("n").values()]}
    assert len(pods.dump()["n"]) == 2
