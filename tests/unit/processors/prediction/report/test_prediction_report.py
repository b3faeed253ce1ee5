"""What is published, against a plain recomputation; when it is published; and what a change of settings does to it."""

import math
from typing import Any

import numpy as np
import pytest

from processors.prediction.fold import PredictionPartition
from schemas.messages.prediction import Prediction, Resources
from tests.support.processors.telemetry import START, block, stored
from tests.unit.processors.prediction.fold.recordings import BEGIN, FAST, configured, predictions
from tests.unit.processors.prediction.report.script import (
    ALLOCATABLE,
    CORES,
    MEMORY,
    PODS,
    SECONDS,
    WINDOWS,
    last,
    used,
    wavering,
)

FIRST, HALF = (0.025, float(5 << 20)), (12 * 3600.0, 24 * 3600.0)
GROUPS = ("node", "prod", "mid", "batch", "free", "none", "system")


def ninetieths(usage: np.ndarray[Any, Any]) -> list[list[float]]:
    """Return, per resource, the sample of each window."""
    windows = usage.reshape(WINDOWS, SECONDS, 2)
    return [[sorted(each[:, column])[int(SECONDS * 0.9) - 1] for each in windows] for column in range(2)]


def weights(half: float) -> list[float]:
    return [2 ** (-(WINDOWS - 1 - index) * SECONDS / half) for index in range(WINDOWS)]


def percentile(samples: list[float], column: int) -> float:
    """Return the end of the bucket at which the running weight reaches 95 % of CPU, 98 % of memory."""
    first, held = FIRST[column], weights(HALF[column])
    result = [int(math.log(v * 0.05 / first + 1) / math.log(1.05)) if v >= first else 0 for v in samples]
    for bucket in sorted(result):
        if sum(w for b, w in zip(result, held, strict=True) if b <= bucket) >= (0.95, 0.98)[column] * sum(held):
            return first * (1.05 ** (bucket + 1) - 1) / 0.05
    raise AssertionError


def five_sigma(samples: list[float], column: int) -> float:
    held = weights(HALF[column])
    mean = sum(w * v for w, v in zip(held, samples, strict=True)) / sum(held)
    variance = sum(w * (v - mean) ** 2 for w, v in zip(held, samples, strict=True)) / sum(held)
    return mean + 5 * math.sqrt(variance)


def groups() -> dict[str, list[list[float]]]:
    """Return the windows' samples of each group, per resource."""
    node, pods = used()
    whole = ninetieths(node)
    made = {group: [[0.0] * WINDOWS for _ in range(2)] for group in GROUPS[1:]}
    for name, messages in PODS.items():
        for column, samples in enumerate(ninetieths(pods[name])):
            made[messages.group][column] = [a + b for a, b in zip(made[messages.group][column], samples, strict=True)]
    for column in range(2):
        sums = [sum(made[group][column][index] for group in GROUPS[1:-1]) for index in range(WINDOWS)]
        made["system"][column] = [max(a - b, 0.0) for a, b in zip(whole[column], sums, strict=True)]
    return {"node": whole, **made}


def units(value: float, column: int) -> int:
    """Return milli-cores or bytes, the rest dropped."""
    return int(value * (1000, 1)[column])


def koordinator(column: int) -> float:
    """Return reclaimable as Koordinator's two predictors say it together, in cores or bytes."""
    _, pods = used()
    unit = (1000, 1)[column]
    allocatable = round(ALLOCATABLE[column] * unit)
    needed = spare = asked = 0
    for name, messages in PODS.items():
        if messages.group not in ("prod", "none"):
            continue
        request = round(messages.request[column] * unit)
        asked += 0 if messages.ending else request
        if not (messages.cold or messages.ending):
            high = int(units(percentile(ninetieths(pods[name])[column], column), column) * 1.1)
            needed += high
            spare += max(request - high, 0)
    by_class = int(
        sum(units(percentile(groups()[part][column], column), column) for part in ("system", "prod", "none")) * 1.1
    )
    first = min(max(allocatable - needed, 0), spare)
    other = min(max(allocatable - by_class, 0), max(asked - by_class, 0))
    return min(first, other) / unit


def by_group(result: Prediction) -> dict[str, dict[str, Resources]]:
    return {str(group): models for group, models in result.peaks.items()}


def same(result: Resources, wanted: list[float]) -> None:
    assert result.cpu == pytest.approx(wanted[0], abs=6e-5)
    assert result.memory == pytest.approx(wanted[1], rel=1e-12, abs=1.0)


def test_histograms_and_n_sigma_of_every_group_are_those_of_a_plain_recomputation() -> None:
    result = last()
    assert (result.windows, result.at_us) == (WINDOWS, (START + BEGIN + 150) * 1_000_000 + 900_000)
    for group, samples in groups().items():
        same(by_group(result)[group]["n_sigma"], [five_sigma(samples[column], column) for column in range(2)])
        wanted = [percentile(samples[column], column) * 1.1 for column in range(2)]
        same(by_group(result)[group]["koordinator"], wanted)


def test_sums_over_pods_are_those_of_a_plain_recomputation() -> None:
    result, (_, pods), samples = last(), used(), groups()
    highs, sums, rates = ({group: [0.0, 0.0] for group in GROUPS} for _ in range(3))
    for name, messages in PODS.items():
        for group in ("node", messages.group):
            for column, own in enumerate(ninetieths(pods[name])):
                highs[group][column] += percentile(own, column)
                sums[group][column] += five_sigma(own, column)
                rates[group][column] += messages.request[column] / 1.1
    for column in range(2):
        for per_pod, outside in ((highs, percentile), (sums, five_sigma)):
            per_pod["system"][column] = outside(samples["system"][column], column)
            per_pod["node"][column] += per_pod["system"][column]
    for group in GROUPS:
        own_sigma = [five_sigma(samples[group][column], column) for column in range(2)]
        same(by_group(result)[group]["resource_central"], highs[group])
        same(by_group(result)[group]["pods_n_sigma"], [max(a, b) for a, b in zip(own_sigma, sums[group], strict=True)])
        if group != "system":
            same(by_group(result)[group]["borg_default"], rates[group])
        both = zip(highs[group], rates[group], strict=True)
        same(by_group(result)[group]["max"], [max(each) for each in both])
    assert "borg_default" not in result.peaks["system"]


def test_what_was_learned_of_nothing_yet_is_the_whole_machine() -> None:
    result = last()
    assert result.model == "calibrated"
    same(result.peak, [CORES, MEMORY])
    assert (result.violation, result.assumed) == (1.0, ["cpu", "memory"])
    assert last(predict_model="n_sigma").assumed is None
    same(result.reclaimable, [0.0, 0.0])


def asked(*, cold: bool = True) -> list[float]:
    production = [messages for messages in PODS.values() if messages.group in ("prod", "none") and not messages.ending]
    counted = [messages for messages in production if cold or not messages.cold]
    return [sum(messages.request[column] for messages in counted) for column in range(2)]


@pytest.mark.parametrize("model", ["calibrated", "n_sigma"])
def test_a_peak_that_nothing_supports_is_not_counted_as_a_prediction_that_held(model: str) -> None:
    partition = PredictionPartition(configured(**FAST | {"predict_force_seconds": "1", "predict_model": model}), 0)
    scored = [made.accuracy for made in predictions(partition.fold(wavering(300))) if made.accuracy]
    assert "n_sigma" in scored[0]
    assert "calibrated" not in scored[0]
    counted = [made["calibrated"] for made in scored if "calibrated" in made]
    assert counted
    assert counted[-1].settled < scored[-1]["n_sigma"].settled
    assert all(each.savings > 0 for each in counted)


def test_requests_and_capacity_are_those_of_the_facts() -> None:
    result = last()
    same(result.capacity, list(ALLOCATABLE))
    same(result.requested, asked())
    same(result.unpredicted, list(PODS["cold"].request))


@pytest.mark.parametrize(("ratio", "threshold"), [("1", "1"), ("0.9", "0.1")])
def test_reclaimable_and_mid_are_the_proposals_formulas_of_the_chosen_model(ratio: str, threshold: str) -> None:
    flags = {"predict_reclaim_ratio": ratio, "predict_threshold_cpu": threshold, "predict_threshold_memory": threshold}
    result = last(predict_model="n_sigma", **flags)
    reclaimable, lent, mixed = [], [], []
    for column, requested in enumerate(asked(cold=False)):
        by_class = sum(five_sigma(groups()[group][column], column) for group in ("prod", "none"))
        by_pod = sum(
            percentile(ninetieths(used()[1][name])[column], column)
            for name, messages in PODS.items()
            if messages.group in ("prod", "none") and not (messages.cold or messages.ending)
        )
        peak, system = max(by_class, by_pod), five_sigma(groups()["system"][column], column)
        room = max(ALLOCATABLE[column] - peak - system, 0.0)
        reclaimable.append(min(max(float(ratio) * requested - peak, 0.0), room))
        lent.append(min(reclaimable[-1], ALLOCATABLE[column] * float(threshold)))
        mixed.append(lent[-1] + max(ALLOCATABLE[column] - asked()[column] - system, 0.0))
    assert any(reclaimable)
    same(result.reclaimable, reclaimable)
    same(result.mid["reclaim"], lent)
    same(result.mid["mixed"], mixed)


@pytest.mark.parametrize("share", ["0", "0.5"])
def test_koordinators_reclaimable_its_mid_and_batch_are_those_of_a_plain_recomputation(share: str) -> None:
    result, (node, pods) = last(predict_model="koordinator", predict_unallocated_ratio=share), used()
    same(result.reclaimable, [koordinator(column) for column in range(2)])
    newest = {name: each[-1] for name, each in pods.items()}
    mid, batch = [], []
    for column, capacity in enumerate((CORES, MEMORY)):
        unit = (1000, 1)[column]
        whole = round(capacity * unit)
        outside = round((node[:, column].mean() - sum(each[:, column].mean() for each in pods.values())) * unit)
        reserved = max(round((capacity - ALLOCATABLE[column]) * unit), outside)
        unused = max(whole - round(node[:, column].mean() * unit), 0)
        free = max(whole - reserved - round(asked()[column] * unit), 0)
        mid.append((min(round(koordinator(column) * unit), unused) + int(free * float(share))) / unit)
        held = 0
        for name, messages in PODS.items():
            owned = messages.exclusive and column == 0
            held += round((messages.request[column] if owned else newest[name][column]) * unit) * (
                messages.group != "batch"
            )
        batch.append(max(whole - int(whole * (0.4, 0.35)[column]) - reserved - held, 0) / unit)
    assert result.mid["shipped"].cpu == pytest.approx(mid[0], abs=1.5e-3)
    assert result.mid["shipped"].memory == pytest.approx(mid[1], abs=2)
    assert result.batch.cpu == pytest.approx(batch[0], abs=1.5e-3)
    assert result.batch.memory == pytest.approx(batch[1], abs=2)
    assert batch[0] > 0


def test_where_nobody_tells_pods_only_the_node_is_predicted() -> None:
    messages = [stored(block("n", BEGIN + second, cpu_util=0.5, memory_util=0.5)) for second in range(40)]
    predicted = predictions(PredictionPartition(configured(), 0).fold(messages))
    assert {"calibrated", "n_sigma", "pods_n_sigma", "koordinator"} <= predicted[0].peaks["node"].keys()
    # A sum over pods that nobody has reported is not a peak of 0, of which everything could be given away.
    assert not {"resource_central", "max"} & predicted[0].peaks["node"].keys()
    assert predicted[0].mid["reclaim"] == predicted[0].reclaimable == Resources(cpu=0.0, memory=0.0)
    # Half of 4 cores is in use by what is not known, and Batch pods may have 60 % less that.
    assert predicted[0].batch is not None
    assert predicted[0].batch.cpu == pytest.approx(0.4)
