"""What is published, against a plain recomputation; when it is published; and what a change of settings does to it."""

import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from processors.prediction import statistic
from processors.prediction.fold import PredictionPartition
from schemas.live import Live
from schemas.messages.prediction import Prediction, Resources
from schemas.sections.prediction import PEAK_MODELS
from tests.support import telemetry
from tests.support.telemetry import METRICS, START, block, stored
from tests.unit.processors.prediction.test_prediction_fold import (
    BEGIN,
    Stream,
    calm,
    configured,
    node_facts,
    predictions,
)

DAY_US = 86_400 * 1_000_000
GIB = float(1 << 30)
CORES, MEMORY = 4.0, 8 * GIB
ALLOCATABLE = (3.5, 7.5 * GIB)
WINDOWS, SECONDS = 5, 30
FIRST, HALF = (0.025, float(5 << 20)), (12 * 3600.0, 24 * 3600.0)


class PodFixture(NamedTuple):
    """A pod as the script has it: its group, what it asks for, and whether it is young, ends, or owns its cores."""

    group: str
    request: tuple[float, float]
    priority: int | None
    cold: bool = False
    ending: bool = False
    exclusive: bool = False


PODS = {
    "warm": PodFixture("prod", (2.0, 2 * GIB), 9500),
    "cold": PodFixture("prod", (0.5, 1 * GIB), 9000, cold=True),
    "ending": PodFixture("prod", (0.4, 0.5 * GIB), 9999, ending=True),
    "own": PodFixture("prod", (0.6, 0.25 * GIB), 9100, exclusive=True),
    "plain": PodFixture("none", (0.3, 0.5 * GIB), None),
    "middle": PodFixture("mid", (0.2, 0.25 * GIB), 7000),
    "lot": PodFixture("batch", (1.0, 1 * GIB), 5500),
}
GROUPS = ("node", "prod", "mid", "batch", "free", "none", "system")


def used() -> tuple[np.ndarray[Any, Any], dict[str, np.ndarray[Any, Any]]]:
    """Return usage of the node and of each pod, (seconds, resources)."""
    random = np.random.default_rng(4)
    length = WINDOWS * SECONDS
    pods = {
        name: np.stack([random.uniform(0, messages.request[0] / 2, length), random.uniform(1e8, 4e8, length)], axis=1)
        for name, messages in PODS.items()
    }
    outside = np.stack([random.uniform(0.1, 0.3, length), random.uniform(5e8, 6e8, length)], axis=1)
    return sum(pods.values(), outside), pods


def script() -> Stream:
    """Return the windows second by second, and the one block that ends the last."""
    node, pods = used()
    messages = [stored(node_facts("n", 1, *ALLOCATABLE))]
    for name, reports in PODS.items():
        fields = {
            "requests": dict(zip(("cpu", "memory"), reports.request, strict=True)),
            "priority": reports.priority,
            "terminating": reports.ending,
            "labels": {"koordinator.sh/qosClass": "LSE"} if reports.exclusive else {},
            "created_us": START * 1_000_000 - (0 if reports.cold else 2 * DAY_US),
        }
        messages.append(stored(telemetry.facts("n", name, f"shop/{name}", 1, **fields)))
    for second in range(WINDOWS * SECONDS + 1):
        share = node[min(second, len(node) - 1)] / (CORES, MEMORY)
        made = block("n", BEGIN + second)
        values = np.zeros((10, len(METRICS)))
        values[:, [METRICS.index("cpu_util"), METRICS.index("memory_util")]] = share
        messages.append(stored(made.model_copy(update={"values": values.ravel().tolist()})))
        if second < WINDOWS * SECONDS:
            columns = [
                {"pod": name, "cpu_cores": float(each[second, 0]), "memory_bytes": float(each[second, 1])}
                for name, each in pods.items()
            ]
            messages.append(stored(telemetry.usage("n", BEGIN + second + 1, columns)))
    return messages


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


def last(**flags: str) -> Prediction:
    return predictions(PredictionPartition(configured(predict_force_seconds="1", **flags), 0).fold(script()))[-1]


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


def times(messages: Stream, **flags: str) -> list[tuple[int, str]]:
    """Return second and reason of each prediction; N sigma moves with usage from the first window on."""
    predicted = predictions(PredictionPartition(configured(predict_model="n_sigma", **flags), 0).fold(messages))
    return [(each.at_us // 1_000_000 - START - BEGIN, each.reason) for each in predicted]


def test_the_first_prediction_comes_once_the_first_window_is_over() -> None:
    assert times(calm("n", range(59))) == [(30, "report")]
    assert times(calm("n", range(17, 59))) == [(30, "report")]
    assert times(calm("n", range(29))) == []


@pytest.mark.slow
def test_what_stays_the_same_is_told_every_ten_minutes() -> None:
    messages = times(calm("n", range(1300)))
    assert messages == [(30, "report"), (630, "force"), (1230, "force")]
    assert times(calm("n", range(200)), predict_force_seconds="90") == [(30, "report"), (120, "force")]


def wavering(seconds: int, jitter_us: int = 0, swing: float = 0.001) -> Stream:
    """Return a node whose usage changes a little with every window."""
    random = np.random.default_rng(3)
    messages: Stream = []
    for second in range(seconds):
        wave = swing * math.sin(second // 30)
        made = block("n", BEGIN + second, cpu_util=0.25 + wave, memory_util=0.5 + wave)
        at_us = made.at_us + int(random.integers(0, jitter_us + 1))
        messages.append(stored(made.model_copy(update={"at_us": at_us})))
    return messages


@pytest.mark.parametrize("jitter_us", [0, 20_000])
def test_what_changes_a_little_is_told_every_minute_though_blocks_come_a_little_early_or_late(jitter_us: int) -> None:
    messages = times(wavering(400, jitter_us))
    assert messages == [(second, "report") for second in range(30, 400, 60)]


@pytest.mark.parametrize(("change", "reports"), [("0.05", (40, "change")), ("1", (90, "report"))])
def test_a_large_change_is_told_at_the_next_check(change: str, reports: tuple[int, str]) -> None:
    messages = calm("n", range(130))
    for second, cores in ((35, 2.0), (0, 3.0)):
        asked = telemetry.facts(
            "n", "n-pod", "w", 1 + second, requests={"cpu": cores}, priority=9000, created_us=START * 1_000_000 - DAY_US
        )
        messages.insert(2 * second, stored(asked))
    assert times(messages, predict_change=change)[:2] == [(30, "report"), reports]


def test_a_clock_that_was_set_back_is_told_at_once_and_predictions_go_on() -> None:
    ahead = [(second + 400_000, second) for second in range(200)]
    after = [(second, second) for second in range(200, 600)]
    messages = [
        stored(block("n", BEGIN + at, seq=second, cpu_util=0.25 if second < 300 else 0.5, memory_util=0.5))
        for at, second in ahead + after
    ]
    predicted = predictions(
        PredictionPartition(configured(predict_model="n_sigma", predict_force_seconds="1"), 0).fold(messages)
    )
    reasons = [(each.at_us // 1_000_000 - START - BEGIN, each.reason) for each in predicted]
    assert reasons[-1][0] > 500
    assert any(second < 1000 and reason == "change" for second, reason in reasons)
    # What was learned since counts in full, and does not weigh nothing beside what seems to come from the future.
    assert predicted[-1].peaks["node"]["koordinator"].cpu > 2.2
    assert predicted[-1].peaks["node"]["n_sigma"].cpu > 1.8


STEADY = {
    "predict_force_seconds": "1",
    "predict_horizon_seconds": "60",
    "predict_cold_start_seconds": "0",
    "predict_model": "n_sigma",
    "predict_sigma": "2",  # five of the pod and five of the system exceed the node
}


def changed(**then: str) -> list[Prediction]:
    """Fold a node with a pod that asks for much, with other settings from second 100 on."""
    live, outputs = Live(configured(**STEADY)), []
    partition = PredictionPartition(live.current, 0)
    requests = {"cpu": 3.0, "memory": 6 * GIB}
    partition.fold([stored(telemetry.facts("n", "p", "w", 1, requests=requests, priority=9000))])
    for second, message in enumerate(wavering(240, swing=0.1)):
        if second == 100:
            assert not live.apply(configured(**STEADY | then)).waiting
        partition.settings = live.current
        pod = {"pod": "p", "cpu_cores": 0.5 + second // 30 / 10, "memory_bytes": 1e9 + second // 30 * 1e8}
        outputs += partition.fold([message, stored(telemetry.usage("n", BEGIN + second + 1, [pod]))])
    return predictions(outputs)


def node(prediction: Prediction, model: str) -> Resources:
    return prediction.peaks["node"][model]


@pytest.mark.cases
@pytest.mark.parametrize(
    ("flag", "value", "differs"),
    [
        ("model", "koordinator", lambda now, was: now.peak == node(now, "koordinator") != was.peak),
        ("violation", "0.9", lambda now, was: node(now, "calibrated").cpu < node(was, "calibrated").cpu),
        ("sigma", "0", lambda now, was: node(now, "n_sigma").cpu < node(was, "n_sigma").cpu),
        ("margin", "1", lambda now, was: node(now, "koordinator").cpu > 1.5 * node(was, "koordinator").cpu),
        ("percentile_cpu", "0", lambda now, was: node(now, "koordinator").cpu < node(was, "koordinator").cpu),
        ("percentile_memory", "0", lambda now, was: node(now, "koordinator").memory < node(was, "koordinator").memory),
        ("half_life_cpu_seconds", "9", lambda now, was: node(now, "n_sigma").cpu != node(was, "n_sigma").cpu),
        ("half_life_memory_seconds", "9", lambda now, was: node(now, "n_sigma").memory != node(was, "n_sigma").memory),
        ("overcommit", "2", lambda now, was: node(now, "borg_default").cpu == 1.5 < node(was, "borg_default").cpu),
        ("cold_start_seconds", "9000", lambda now, was: (now.unpredicted.cpu, was.unpredicted.cpu) == (3.0, 0.0)),
        ("formula", "mixed", lambda now, was: (now.formula, was.formula) == ("mixed", "reclaim")),
        ("reclaim_ratio", "0.8", lambda now, was: 0 < now.reclaimable.cpu < was.reclaimable.cpu),
        ("threshold_cpu", "0.1", lambda now, was: now.mid["reclaim"].cpu == 0.4 < was.mid["reclaim"].cpu),
        ("threshold_memory", "0.01", lambda now, was: now.mid["reclaim"].memory < was.mid["reclaim"].memory),
        ("unallocated_ratio", "1", lambda now, was: now.mid["shipped"].cpu > was.mid["shipped"].cpu),
    ],
)
def test_settings_that_change_while_it_runs_count_from_then_on_and_lose_nothing(
    flag: str, value: str, differs: Any
) -> None:
    predicted, plain = changed(**{f"predict_{flag}": value}), changed()
    assert len(predicted) == len(plain)
    until = (START + BEGIN + 100) * 1_000_000
    assert [each for each in predicted if each.at_us < until] == [each for each in plain if each.at_us < until]
    assert differs(predicted[-1], plain[-1])
    assert predicted[-1].windows == plain[-1].windows == 7


@pytest.mark.cases
@pytest.mark.parametrize("model", PEAK_MODELS)
def test_a_margin_raises_the_peaks_of_every_model_but_not_above_the_machine(model: str) -> None:
    flags = {"predict_violation": "0.5", "predict_cold_start_seconds": "0"}
    if model == "koordinator":
        flags["predict_margin"] = "0"
    plain, raised = last(**flags).peaks, last(**flags | {"predict_margin": "0.2"}).peaks
    whole = Resources(cpu=CORES, memory=MEMORY)
    assert (model in raised["system"]) == (model != "borg_default")
    for group, models in raised.items():
        for resource in ("cpu", "memory") if model in models else ():
            before, after, most = (getattr(each, resource) for each in (plain[group][model], models[model], whole))
            assert after == pytest.approx(min(1.2 * before, max(before, most)), rel=1e-3), (group, resource)
    assert last(**flags | {"predict_margin": "10"}).peaks["node"]["n_sigma"].cpu == CORES


def test_a_margin_leaves_less_to_reclaim() -> None:
    flags = {"predict_model": "n_sigma", "predict_sigma": "1"}
    plain, raised = last(**flags), last(**flags, predict_margin="0.2")
    assert 0 < raised.reclaimable.cpu < plain.reclaimable.cpu


@pytest.mark.parametrize(("first", "then"), [(43_200.0, 600.0), (600.0, 43_200.0), (3600.0, 5000.0)])
def test_other_half_lives_change_no_percentile_at_once_and_fade_as_they_say(first: float, then: float) -> None:
    old, new = (
        configured(predict_half_life_cpu_seconds=str(life), predict_half_life_memory_seconds=str(life)).predict
        for life in (first, then)
    )
    state, rows = statistic.init(3), np.arange(2)
    at = np.array([1, 1]) * START * 1_000_000
    for step in range(100):
        usage = np.array([[1.0, 1e9], [step / 10, 1e8 * step]])
        statistic.add(state, rows, usage, at + step * 30_000_000, old)
    turned = statistic.turn(state, statistic.half_lives(old), statistic.half_lives(new))
    np.testing.assert_array_equal(statistic.percentile(turned, new), statistic.percentile(state, new))
    assert 0.7 < turned.cpu.newest[0] < 1.42  # its reference is the multiple of the new half-life that is nearest
    assert np.isnan(statistic.percentile(turned, new)[2]).all()
    held = turned.cpu.total[0] / turned.cpu.newest[0]
    assert held == pytest.approx(state.cpu.total[0] / state.cpu.newest[0], rel=1e-9)
    weight = float(state.moments.weight[0, 0])
    later = at + 99 * 30_000_000 + int(3 * then * 1e6)
    statistic.add(turned, rows, np.array([[2.0, 2e9]] * 2), later, new)
    after = turned.cpu.total[0] / turned.cpu.newest[0]
    assert after == pytest.approx(held / 8 + 1, rel=1e-9)
    assert turned.moments.weight[0, 0] == pytest.approx(weight / 8 + 1, rel=1e-9)


def test_half_lives_that_were_changed_survive_a_restart() -> None:
    wanted = configured(predict_half_life_cpu_seconds="60")
    messages = wavering(300)
    first = PredictionPartition(configured(), 0)
    first.fold(messages[:150])
    body = first.snapshot()
    partition = PredictionPartition(wanted, 0)
    partition.restore(body)
    first.settings = wanted
    assert [output.message for output in partition.fold(messages[150:])] == [
        output.message for output in first.fold(messages[150:])
    ]


def test_where_nobody_tells_pods_only_the_node_is_predicted() -> None:
    messages = [stored(block("n", BEGIN + second, cpu_util=0.5, memory_util=0.5)) for second in range(40)]
    predicted = predictions(PredictionPartition(configured(), 0).fold(messages))
    assert {"calibrated", "n_sigma", "pods_n_sigma", "koordinator"} <= predicted[0].peaks["node"].keys()
    # A sum over pods that nobody has told is not a peak of 0, of which everything could be given away.
    assert not {"resource_central", "max"} & predicted[0].peaks["node"].keys()
    assert predicted[0].mid["reclaim"] == predicted[0].reclaimable == Resources(cpu=0.0, memory=0.0)
