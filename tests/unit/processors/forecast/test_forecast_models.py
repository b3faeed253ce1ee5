"""Models as functions of series: what a line promises, what a fading trend promises, and which are there."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.forecast import desired, holt, linear, model, smoothing

Array = NDArray[np.float64]

PERIOD = 15.0


def ago(count: int) -> Array:
    return np.arange(1.0 - count, 1.0) * PERIOD


amounts = st.lists(st.floats(0, 1e3), min_size=2, max_size=40)


@given(level=st.floats(100, 1e3), slope=st.floats(-0.1, 0.1), count=st.integers(2, 60), horizon=st.floats(0, 600))
def test_a_line_is_carried_on_exactly(level: float, slope: float, count: int, horizon: float) -> None:
    times = ago(count)
    (result,) = linear.forecast(times, (level + slope * times)[None], np.array([horizon]))
    assert result == pytest.approx(level + slope * horizon, rel=1e-9)


@given(values=amounts, horizon=st.floats(0, 600))
def test_the_line_is_that_of_numpy(values: list[float], horizon: float) -> None:
    times = ago(len(values))
    (result,) = linear.forecast(times, np.array([values]), np.array([horizon]))
    expected = np.polynomial.Polynomial.fit(times, values, 1)(horizon)
    assert result == pytest.approx(max(0.0, expected), abs=1e-6)


@given(values=amounts, scale=st.floats(1e-3, 1e9))
def test_a_line_does_not_mind_the_unit(values: list[float], scale: float) -> None:
    times, horizon = ago(len(values)), np.array([300.0])
    (result,) = linear.forecast(times, np.array([values]), horizon)
    (scaled,) = linear.forecast(times, np.array([values]) * scale, horizon)
    assert scaled == pytest.approx(result * scale, rel=1e-6, abs=1e-6 * scale)


@pytest.mark.cases
@pytest.mark.parametrize("ahead", [model.MODELS[name] for name in model.available()], ids=model.available())
def test_series_do_not_look_at_each_other_and_a_gap_is_no_zero(ahead: model.Model) -> None:
    chance = np.random.default_rng(1)
    values = chance.uniform(5, 6, (4, 40)) + np.arange(4)[:, None]
    values[1, 5:9] = np.nan
    values[2] = np.nan
    horizon = np.array([60.0, 120.0, 120.0, 240.0])
    together = ahead(ago(40), values, horizon)
    alone = [ahead(ago(40), values[[row]], horizon[[row]])[0] for row in range(4)]
    assert np.array_equal(together, alone, equal_nan=True)
    assert 5.5 < together[1] < 7.5
    assert np.isnan(together).tolist() == [False, False, True, False]


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [model.MODELS[name] for name in model.available()], ids=model.available())
def test_a_forecast_is_never_below_zero_and_of_an_idle_workload_is_zero(ahead: model.Model) -> None:
    falling = np.maximum(20.0 - np.arange(40.0), 0.1)
    result = ahead(ago(40), np.array([falling, np.zeros(40)]), np.array([600.0, 600.0]))
    assert result[0] >= 0
    assert result[1] == 0


def test_one_observation_is_carried_on_level() -> None:
    assert linear.forecast(np.zeros(1), np.array([[3.0]]), np.array([600.0])).tolist() == [3.0]


def relative_error(series: Array, horizon: int, window: int) -> float:
    """Return the mean absolute error at several times of series (series, points), as a multiple of the last value's."""
    own, last = [], []
    for now in range(window, series.shape[1] - horizon, window // 2):
        result = smoothing.forecast(
            ago(window), series[:, now - window + 1 : now + 1], np.full(len(series), horizon * PERIOD)
        )
        truth = series[:, now + horizon]
        own.append(np.abs(result - truth).mean())
        last.append(np.abs(series[:, now] - truth).mean())
    return float(np.mean(own) / np.mean(last))


class TestSmoothing:
    noise = np.random.default_rng(3).normal(0, 1, (80, 400))

    @pytest.mark.parametrize(("horizon", "window"), [(4, 20), (20, 40), (40, 80)])
    def test_it_is_better_than_the_last_value_on_noise_and_little_worse_on_a_random_walk(
        self, horizon: int, window: int
    ) -> None:
        assert relative_error(50 + self.noise, horizon, window) < 0.82
        assert relative_error(200 + np.cumsum(self.noise, axis=1), horizon, window) <= 1.06

    def test_a_ramp_under_noise_is_carried_on(self) -> None:
        assert relative_error(20 + 0.5 * np.arange(400) + self.noise, 20, 60) < 0.45

    def test_a_step_is_no_slope(self) -> None:
        values = np.where(np.arange(80) < 60, 5.0, 10.0)[None]
        (result,) = smoothing.forecast(ago(80), values, np.array([600.0]))
        assert result == pytest.approx(10, rel=0.1)

    @given(values=amounts, horizon=st.floats(0, 600), scale=st.floats(1e-3, 1e9))
    @example(values=[2.0, 2.0, 2.0, 1.0], horizon=0.0, scale=1.5)  # all candidates have erred alike
    def test_the_unit_does_not_matter(self, values: list[float], horizon: float, scale: float) -> None:
        given = np.array([values])
        (result,) = smoothing.forecast(ago(len(values)), given, np.array([horizon]))
        (scaled,) = smoothing.forecast(ago(len(values)), given * scale, np.array([horizon]))
        assert scaled == pytest.approx(result * scale, rel=1e-6, abs=1e-9 * scale)

    def test_levels_and_trends_are_those_of_the_recursion(self) -> None:
        values = np.random.default_rng(4).uniform(1, 2, (3, 30))
        values[1, 7:12] = np.nan
        run = smoothing._run(values)
        for row, series in enumerate(values):
            for column, (alpha, beta, phi) in enumerate(smoothing._CANDIDATES):
                level, trend = series[0], 0.0
                for value in series[1:]:
                    expected = level + phi * trend
                    if np.isnan(value):
                        level, trend = expected, phi * trend
                        continue
                    before, level = level, expected + alpha * (value - expected)
                    trend = beta * (level - before) + (1 - beta) * phi * trend
                assert run.level[-1, row, column] == pytest.approx(level)
                assert run.trend[-1, row, column] == pytest.approx(trend)

    def test_where_it_has_done_worse_than_the_last_value_that_one_counts(self) -> None:
        """A wave whose half period is the horizon: what was level or rising is always wrong, the last value least."""
        values = 10 + np.sign(np.sin(2 * np.pi * np.arange(64) / 16 + 0.1))[None]
        run = smoothing._run(values)
        (result,) = smoothing.forecast(ago(64), values, np.array([16 * PERIOD]))
        assert result == run.level[-1, 0, 0] == values[0, -1]

    @pytest.mark.parametrize("count", [9, 12, 15])
    def test_a_young_ramp_beside_an_older_workload_is_carried_on_as_it_is_alone(self, count: int) -> None:
        ramp, horizon = 10 + np.arange(float(count)), np.array([8 * PERIOD])
        beside = np.stack([np.full(80, 5.0), np.pad(ramp, (80 - count, 0), constant_values=np.nan)])
        (alone,) = smoothing.forecast(ago(count), ramp[None], horizon)
        _, result = smoothing.forecast(ago(80), beside, np.repeat(horizon, 2))
        assert result == pytest.approx(alone, rel=1e-12)
        assert result > ramp[-1] + 3

    def test_many_series_are_what_they_are_alone(self) -> None:
        values = np.random.default_rng(5).uniform(1, 2, (600, 40))
        horizon = np.full(600, 120.0)
        together = smoothing.forecast(ago(40), values, horizon)
        assert together[[0, 255, 256, 599]].tolist() == [
            smoothing.forecast(ago(40), values[[row]], horizon[[row]])[0] for row in (0, 255, 256, 599)
        ]


@pytest.mark.skipif("holt" not in model.available(), reason="statsmodels is not installed")
class TestHolt:
    @pytest.mark.slow
    def test_a_steady_rise_is_carried_on_and_at_most_fades(self) -> None:
        values: Array = 10 + np.arange(160.0) * 0.05
        (result,) = holt.forecast(ago(160), values[None], np.array([600.0]))
        assert values[-1] + 0.8 * 40 * 0.05 < result <= values[-1] + 1.01 * 40 * 0.05

    def test_a_step_is_no_slope_for_ever(self) -> None:
        """A line through a step that is over goes on rising; the trend fades."""
        values = np.where(np.arange(160) < 80, 5.0, 10.0)[None]
        horizon = np.array([600.0])
        (result,), (line,) = holt.forecast(ago(160), values, horizon), linear.forecast(ago(160), values, horizon)
        assert result == pytest.approx(10, rel=0.05)
        assert line > 13

    def test_the_unit_does_not_matter(self) -> None:
        values = np.random.default_rng(2).uniform(1, 2, (1, 80))
        horizon = np.array([300.0])
        cores, nanocores = holt.forecast(ago(80), values, horizon), holt.forecast(ago(80), values * 2.0**30, horizon)
        assert nanocores[0] == pytest.approx(cores[0] * 2.0**30, rel=1e-9)

    def test_it_says_nothing_of_fewer_observations_than_it_fits(self) -> None:
        values = np.ones((1, 40))
        assert np.isnan(holt.forecast(ago(9), values[:, :9], np.array([15.0]))).all()
        for horizon in (1.0, 15.0, 120.0, 1e5):
            assert holt.forecast(ago(40), values, np.array([horizon])) == pytest.approx(1)


def test_blocks_end_with_the_newest_observation_and_an_empty_one_lies_between_its_neighbours() -> None:
    times = np.array([-105.0, -90.0, -45.0, -30.0, -15.0, 0.0])
    means, newest = holt.blocks(times, np.array([1.0, 3.0, 6.0, 6.0, 7.0, 9.0]), 30.0)
    assert means.tolist() == [2.0, 4.0, 6.0, 8.0]
    assert newest == -7.5


def test_a_model_that_is_not_there_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "find_spec", lambda _name: None)
    assert model.available() == ("smoothing", "linear")
    assert model.missing("linear") is None
    assert model.missing("holt") == (
        "forecast model holt needs statsmodels, which is not installed (pip install '.[forecast]' in a checkout); "
        "smoothing is used"
    )


@given(usage=st.floats(0, 1e6), running=st.integers(1, 1000), request=st.floats(0.01, 64), target=st.floats(0.05, 1))
def test_desired_pods_hold_the_target_and_one_less_would_not(
    usage: float, running: int, request: float, target: float
) -> None:
    (wanted,) = desired.pods(
        np.array([usage]), np.array([request * running]), np.array([float(running)]), target=target
    ).tolist()
    if 1 < wanted < 1_000_000:
        assert usage / (wanted * request) <= target * (1 + 1e-6)
        assert usage / ((wanted - 1) * request) > target * (1 - 1e-6)
    assert 1 <= wanted <= 1_000_000


def test_without_a_request_what_runs_is_what_is_desired() -> None:
    wanted = desired.pods(
        np.array([5.0, np.nan, 0.0]), np.array([0.0, 1.0, 4.0]), np.array([3.0, 2.0, 4.0]), target=0.8
    )
    assert wanted.tolist() == [3, 2, 1]
