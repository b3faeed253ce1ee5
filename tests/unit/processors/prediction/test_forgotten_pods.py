"""Pods and nodes that end or fall silent are forgotten, and nothing of them piles up."""

import pytest

from processors.prediction.fold import PredictionPartition
from processors.rows import snapshot
from schemas.messages.telemetry import MAXIMUM_PODS
from tests.support.processors.telemetry import START
from tests.unit.processors.prediction.fold.recordings import BEGIN, Stream, calm, configured, predictions
from tests.unit.processors.prediction.seconds import SETTINGS, by_second, facts, second_of


def rows(partition: PredictionPartition) -> tuple[int, int]:
    """Return how many nodes and how many pods have statistics."""
    _, arrays = snapshot.unpack(partition.snapshot())
    return len(arrays["node.windows"]), len(arrays["pods.moments.at_us"])


def steps(nodes: dict[str, list[str]], begin: int, end: int) -> Stream:
    """Return a second of each node in every 20."""
    return [
        message
        for second in range(begin, end, 20)
        for node, pods in nodes.items()
        for message in second_of(second, pods, node=node)
    ]


@pytest.mark.slow
def test_a_pod_without_facts_is_forgotten_when_it_was_not_used_for_half_an_hour() -> None:
    partition = PredictionPartition(configured(), 0)
    partition.fold(steps({"n": ["ends", "stays"]}, 0, 300))
    partition.fold(steps({"n": ["stays"]}, 300, 2000))
    assert rows(partition) == (1, 2)
    partition.fold(steps({"n": ["stays"]}, 2000, 2200))
    assert rows(partition) == (1, 1)


@pytest.mark.slow
def test_a_pod_of_which_kubernetes_has_reported_stays_as_long_as_its_node_is_known() -> None:
    """Facts come once per change; a pod that waits, or whose node is cut off, must not lose them."""
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


@pytest.mark.slow
def test_a_node_that_sends_only_pods_is_forgotten_too() -> None:
    partition = PredictionPartition(configured(), 0)
    partition.fold(steps({"n": []}, 0, 40))
    partition.fold([second_of(second, ["p"], node="only")[1] for second in range(40)])
    assert rows(partition) == (1, 1)
    partition.fold(steps({"n": []}, 40, 2200))
    header, _ = snapshot.unpack(partition.snapshot())
    assert header["used"].keys() == {"n"}
    assert rows(partition) == (1, 0)


@pytest.mark.slow
def test_a_node_whose_clock_is_hours_behind_keeps_its_pods() -> None:
    messages = [facts("p", -100_000, node="late"), *calm("n", range(0))]
    for second in range(200):
        messages += second_of(second, ["x"]) + second_of(second, ["p", "q"], node="late", behind=20_000)
    partition = PredictionPartition(configured(**SETTINGS), 0)
    predicted = [prediction for prediction in predictions(partition.fold(messages)) if prediction.node == "late"]
    assert predicted[-1].requested.cpu == 1.0
    assert predicted[-1].peaks["none"]["resource_central"].cpu > 0.2
    assert rows(partition) == (2, 3)


@pytest.mark.slow
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


@pytest.mark.slow
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
