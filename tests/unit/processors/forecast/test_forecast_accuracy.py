"""Accuracy of forecasts against a list in Python, on every prefix; what is late, young or forgotten does not count."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from processors.forecast.scoring.accuracy import Accuracy, Scores
from processors.forecast.sums import Sum, Workload
from processors.forecast.workloads import Forecasts, Params
from processors.rows import snapshot

START_US = 1_700_000_010_000_000
PERIOD_US = 15_000_000
WEB, OTHER = Workload("shop", "Deployment", "web"), Workload("shop", "Deployment", "other")
NOTHING = (0.0, 0.0)

Pair = tuple[float, float]


def naive(forecasts: Sequence[Pair], used: Sequence[Pair], until: int, ahead: int) -> Scores | None:
    """Return the scores after an observation, one forecast a period, each of so many periods ahead."""
    half_life = max(24.0 * 15 * ahead, 3600.0)
    sums = np.zeros((4, 2))
    for made in range(until - ahead + 1):
        fade = 2.0 ** -(15 * (until - made - ahead) / half_life)
        for resource in range(2):
            wanted, was = forecasts[made][resource], used[made + ahead][resource]
            over = max(0.0, was - wanted)
            figures = (over > 0, over / was if was else 0.0, max(0.0, wanted - was) / wanted if wanted else 0.0, 1.0)
            sums[:, resource] += fade * np.array(figures)
    return None if not sums[3, 0] else Scores._make((*(sums[:3] / sums[3]).max(axis=1).tolist(), float(sums[3, 0])))


@pytest.mark.parametrize("ahead", [1, 4, 8])
def test_scores_are_those_of_a_list_on_every_prefix(ahead: int) -> None:
    random = np.random.default_rng(7)
    used = [(float(cpu), float(memory)) for cpu, memory in random.gamma(2.0, 1.0, (60, 2))]
    forecasts = [(float(cpu), float(memory)) for cpu, memory in random.gamma(2.0, 1.0, (60, 2))]
    used[11], forecasts[13] = NOTHING, NOTHING
    accuracy = Accuracy(15.0)
    for period in range(60):
        at_us = START_US + period * PERIOD_US
        accuracy.score(at_us, {WEB: used[period], OTHER: (1.0, 1.0)})
        accuracy.wait(at_us, [15.0 * ahead], {WEB: {"smoothing": forecasts[period]}})
        expected = naive(forecasts, used, period, ahead)
        if expected is None:
            assert accuracy.of(WEB) == {}
        else:
            assert accuracy.of(WEB)["smoothing"] == pytest.approx(expected)
        assert accuracy.of(OTHER) == {}


def test_each_model_has_its_own_and_one_without_a_forecast_has_none() -> None:
    accuracy = Accuracy(15.0)
    accuracy.wait(START_US, [15.0], {WEB: {"smoothing": (2.0, 8.0), "linear": (4.0, 1.0)}})
    accuracy.score(START_US + PERIOD_US, {WEB: (3.0, 4.0)})
    scores = accuracy.of(WEB)
    assert scores["smoothing"] == pytest.approx((1.0, 1 / 3, 0.5, 1.0))
    assert scores["linear"] == (1.0, 0.75, 0.25, 1.0)
    assert "holt" not in scores


@pytest.mark.parametrize(("horizon", "periods"), [(15.0, 1), (16.0, 1), (22.0, 1), (23.0, 2), (44.0, 3), (61.0, 4)])
def test_the_observation_nearest_to_the_time_of_a_forecast_counts(horizon: float, periods: int) -> None:
    accuracy = Accuracy(15.0)
    accuracy.wait(START_US, [horizon], {WEB: {"smoothing": (10.0 + periods, 10.0 + periods)}})
    for period in range(1, 10):
        accuracy.score(START_US + period * PERIOD_US, {WEB: (10.0 + period, 10.0 + period)})
        assert len(accuracy.of(WEB)) == (period >= periods)
    assert accuracy.of(WEB)["smoothing"][:3] == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("cores", [10.095, 4.72, 0.57, 7.7])
def test_a_forecast_of_a_level_load_is_not_exceeded_although_it_differs_in_the_last_digits(cores: float) -> None:
    forecasts = Forecasts(1, Params())
    own = Sum(10, 10, (cores, 1e9 * cores), (10.0, 2e10), 10, 600.0)
    made = [each for period in range(60) for each in forecasts.fold(0, START_US + period * PERIOD_US, {WEB: own})]
    assert made[-1].accuracy["smoothing"].violations == 0.0


def test_what_is_used_above_a_forecast_by_more_than_the_last_digits_counts() -> None:
    accuracy = Accuracy(15.0)
    accuracy.wait(START_US, [15.0], {WEB: {"smoothing": (3.0, 4e9), "linear": (0.0, 0.0)}})
    accuracy.score(START_US + PERIOD_US, {WEB: (3.0 * (1 + 1e-5), 4e9)})
    assert {name: each.violations for name, each in accuracy.of(WEB).items()} == {"smoothing": 1.0, "linear": 1.0}


def test_an_observation_that_comes_late_judges_nothing() -> None:
    accuracy = Accuracy(15.0)
    accuracy.wait(START_US, [15.0], {WEB: {"smoothing": (2.0, 2.0)}})
    accuracy.score(START_US + 4 * PERIOD_US, {WEB: (3.0, 3.0)})
    assert accuracy.of(WEB) == {}
    accuracy.wait(START_US + 4 * PERIOD_US, [15.0], {WEB: {"smoothing": (2.0, 2.0)}})
    accuracy.score(START_US + 5 * PERIOD_US, {WEB: (3.0, 3.0)})
    assert accuracy.of(WEB)["smoothing"].settled == 1.0


def test_after_a_clock_that_was_set_back_forecasts_are_judged_again() -> None:
    accuracy = Accuracy(15.0)
    accuracy.wait(START_US + 7200 * 1_000_000, [15.0], {WEB: {"smoothing": (9.0, 9.0)}})
    accuracy.score(START_US, {WEB: (3.0, 3.0)})
    accuracy.wait(START_US, [15.0], {WEB: {"smoothing": (2.0, 2.0)}})
    accuracy.score(START_US + PERIOD_US, {WEB: (3.0, 3.0)})
    assert accuracy.of(WEB)["smoothing"].settled == pytest.approx(1.0)
    assert accuracy.of(WEB)["smoothing"].violations == 1.0


def test_a_workload_that_is_gone_for_long_begins_again_and_others_keep_theirs() -> None:
    accuracy = Accuracy(15.0)
    horizons, made = [15.0, 15.0], {WEB: {"smoothing": (2.0, 2.0)}, OTHER: {"smoothing": (4.0, 4.0)}}
    accuracy.wait(START_US, horizons, made)
    accuracy.score(START_US + PERIOD_US, {WEB: (3.0, 3.0), OTHER: (3.0, 3.0)})
    later_us = START_US + 7 * 3600 * 1_000_000
    accuracy.score(later_us - PERIOD_US, {OTHER: (3.0, 3.0)})
    accuracy.score(later_us, {OTHER: (3.0, 3.0)})
    assert accuracy.of(WEB) == {}
    assert accuracy.of(OTHER)["smoothing"].overprovision == 0.25


def folded(forecasts: Forecasts, periods: range) -> list[dict[str, Scores]]:
    """Return the accuracy in each forecast of a workload that rises and falls."""
    made = []
    for period in periods:
        cores = 5.0 + 3.0 * math.sin(period / 9)
        own = Sum(10, 10, (cores, 1e10), (10.0, 2e10), 10, 600.0)
        made += forecasts.fold(0, START_US + period * PERIOD_US, {WEB: own})
    return [dict(each.accuracy) for each in made]


@pytest.mark.slow
def test_forecasts_carry_their_accuracy_and_a_restored_state_goes_on_with_it() -> None:
    whole = folded(Forecasts(1, Params()), range(120))
    first, second = Forecasts(1, Params()), Forecasts(1, Params())
    split = folded(first, range(70))
    second.restore(first.snapshot())
    assert split + folded(second, range(70, 120)) == whole
    assert whole[0] == {}
    last = whole[-1]["smoothing"]
    assert last.settled > 40
    assert 0 < last.violations < 1
    assert 0 < last.severity < last.violations
    assert 0 < last.overprovision < 0.5


def test_a_state_of_before_has_no_accuracy_and_gets_some() -> None:

    old, new = Forecasts(1, Params()), Forecasts(1, Params())
    folded(old, range(40))
    header, arrays = snapshot.unpack(old.snapshot())
    del header["judged"]
    new.restore(snapshot.pack(header, {name: part for name, part in arrays.items() if "accuracy" not in name}))
    made = folded(new, range(40, 60))
    assert made[0] == {}
    assert made[-1].keys() == {"smoothing"}
