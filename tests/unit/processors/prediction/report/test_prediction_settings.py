"""Settings of predictions that change while a processor runs."""

from typing import Any

import numpy as np
import pytest

from processors.prediction import statistic
from processors.prediction.fold import PredictionPartition
from schemas.live import Live
from schemas.messages.prediction import Prediction, Resources
from schemas.sections.prediction import PEAK_MODELS
from tests.support.processors import telemetry
from tests.support.processors.telemetry import START, stored
from tests.unit.processors.prediction.fold.recordings import BEGIN, configured, predictions
from tests.unit.processors.prediction.report.script import CORES, GIB, MEMORY, last, wavering

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    before, after = (statistic.read(each, np.arange(3), new).percentile for each in (state, turned))
    np.testing.assert_array_equal(after, before)
    assert 0.7 < turned.cpu.newest[0] < 1.42  # its reference is the multiple of the new half-life that is nearest
    assert np.isnan(after[2]).all()
    held = turned.cpu.total[0] / turned.cpu.newest[0]
    assert held == pytest.approx(state.cpu.total[0] / state.cpu.newest[0], rel=1e-9)
    weight = float(state.moments.weight[0, 0])
    later = at + 99 * 30_000_000 + int(3 * then * 1e6)
    statistic.add(turned, rows, np.array([[2.0, 2e9]] * 2), later, new)
    after = turned.cpu.total[0] / turned.cpu.newest[0]
    assert after == pytest.approx(held / 8 + 1, rel=1e-9)
    assert turned.moments.weight[0, 0] == pytest.approx(weight / 8 + 1, rel=1e-9)


@pytest.mark.slow
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
