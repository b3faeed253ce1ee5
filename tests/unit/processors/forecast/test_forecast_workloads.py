"""Forecasts as a fold: ahead of a ramp, one for each workload and period, the same after a restore, bounded."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from processors.forecast import history, model, series, workload
from processors.forecast.forecast import Forecast
from processors.forecast.sums import Sum, Workload
from processors.forecast.workloads import Forecasts, Params
from schemas import codec

START = 1_700_000_010
WEB = Workload("shop", "Deployment", "web")

Message = tuple[int, int, dict[Workload, Sum]]


def at(period: int) -> int:
    return (START + 15 * period) * 1_000_000


def of(cores: float, *, pods: int = 10, initialization: float | None = 60.0, request: float = 1.0) -> Sum:
    """Return a workload whose pods ask for a core each."""
    given = 0 if initialization is None else pods
    return Sum(pods, pods, (cores, 1e9 * pods), (request * pods, 2e9 * pods), given, (initialization or 0.0) * given)


def folded(forecasts: Forecasts, messages: Sequence[Message]) -> list[Forecast]:
    return [made for message in messages for made in forecasts.fold(*message)]


def single(**fields: object) -> Forecasts:
    return Forecasts(1, Params()._replace(**fields))  # type: ignore[arg-type]


def steady(periods: range, cores: float = 5.0, name: Workload = WEB, **fields: float) -> list[Message]:
    return [(0, at(period), {name: of(cores, **fields)}) for period in periods]  # type: ignore[arg-type]


def lead(chosen: str, flat: int, rise: float) -> int:
    """Return how many periods before the load the forecast is above the target; the load is level, then it rises."""
    load = [3.0 + rise * max(0, period - flat) for period in range(flat + 180)]
    messages = [(0, at(period), {WEB: of(cores, initialization=600.0)}) for period, cores in enumerate(load)]
    made = folded(single(model=chosen, fitted=1), messages)
    crossed = next(period for period, cores in enumerate(load) if cores > 8)
    first = next(each for each in made if each.model == chosen and each.forecasts[chosen][0] > 8)
    assert (first.horizon_seconds, first.raises) == (600.0, True)
    assert first.desired > first.now.pods
    return crossed - (first.at_us - at(0)) // 15_000_000


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize(("chosen", "least"), [("smoothing", 38), ("linear", 40), ("holt", 32)])
def test_on_a_visible_ramp_the_forecast_crosses_the_target_an_initialization_time_ahead(
    chosen: str, least: int
) -> None:
    """The proposal's example: pods take 10 minutes, 40 periods; what is needed at 6:10 is to be created at 6:00."""
    if chosen not in model.available():
        pytest.skip("statsmodels is not installed")
    assert least <= lead(chosen, 0, 0.06) <= 44


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize(("chosen", "least"), [("smoothing", 3), ("linear", 3), ("holt", 28)])
def test_a_ramp_out_of_a_level_load_is_still_seen_before_it_crosses_the_target(chosen: str, least: int) -> None:
    """Level for 50 minutes, then to the target within 10: less than the time that pods take."""
    if chosen not in model.available():
        pytest.skip("statsmodels is not installed")
    assert least <= lead(chosen, 200, 0.12) <= 44


def test_a_falling_load_is_not_acted_on() -> None:
    made = folded(single(), [(0, at(period), {WEB: of(9 - 0.02 * period)}) for period in range(100)])
    assert made
    assert not any(each.raises for each in made)


@pytest.mark.parametrize("used", [3.2, 0.1 + 0.2, 7.7])
def test_a_level_load_is_not_acted_on_although_its_mean_differs_in_the_last_digits(used: float) -> None:
    made = folded(single(), [(0, at(period), {WEB: of(used)}) for period in range(100)])
    assert made
    assert not any(each.raises for each in made)


def test_more_pods_under_the_same_load_are_no_fall() -> None:
    """Utilisation halves, and what all pods need together stays."""
    grown = [(0, at(period), {WEB: of(8.0, pods=10 if period < 30 else 20)}) for period in range(60)]
    (last,) = folded(single(), grown)[-1:]
    assert last.forecasts["smoothing"][0] == pytest.approx(8.0)
    assert last.desired == 10


def test_partitions_are_added_up_once_all_were_heard_and_the_next_period_has_begun() -> None:
    forecasts = Forecasts(3, Params())
    messages = [
        (number, at(period), {WEB: of(number + 1.0)})
        for period in range(20)
        for number in (0, 1, 2)
        if period or number
    ]
    made = folded(forecasts, messages)
    assert {each.now.used[0] for each in made} == {6.0}
    assert {each.now.pods for each in made} == {30}
    assert [each.at_us for each in made] == [at(period) for period in range(5, 19)]


def test_a_partition_that_is_silent_is_left_out_after_a_while() -> None:
    """Not at once: its pods run on while another processor takes it over."""
    messages = [(1, at(0), {WEB: of(3.0)}), *((0, at(period), {WEB: of(2.0)}) for period in range(30))]
    made = {each.at_us: each.now.used[0] for each in folded(Forecasts(2, Params()), messages)}
    assert {used for at_us, used in made.items() if at_us <= at(20)} == {5.0}
    assert {used for at_us, used in made.items() if at_us > at(20)} == {2.0}
    never = folded(Forecasts(2, Params()), messages[1:11])
    assert [each.at_us for each in never] == [at(6), at(7), at(8)]


def test_several_messages_of_one_period_are_put_together_and_a_repetition_counts_once() -> None:
    right = Workload("shop", "Deployment", "other")
    messages: list[Message] = []
    for period in range(10):
        chunks: list[Message] = [(0, at(period), {WEB: of(2.0)}), (0, at(period), {right: of(3.0)})]
        messages += [*chunks, chunks[0]]
    made = folded(single(), messages)
    assert {(left.workload, left.now.used[0]) for left in made} == {(WEB, 2.0), (right, 3.0)}


def mixed(seed: int) -> list[Message]:
    chance = random.Random(seed)
    names = [Workload("shop", "Deployment", name) for name in "abcd"]
    return [
        (
            chance.randrange(3),
            at(number // 4),
            {name: of(chance.random() * 9, initialization=chance.choice([None, 30.0, 90.0])) for name in names[:count]},
        )
        for number, count in enumerate(chance.choices(range(5), k=160))
    ]


@pytest.mark.parametrize("cut", range(0, 160, 37))
def test_a_restored_state_makes_the_same_forecasts(cut: int) -> None:
    messages = mixed(cut)
    whole = folded(Forecasts(3, Params(fitted=1)), messages)
    before, after = Forecasts(3, Params(fitted=1)), Forecasts(3, Params(fitted=1))
    made = folded(before, messages[:cut])
    after.restore(before.snapshot())
    assert after.snapshot() == before.snapshot()
    assert made + folded(after, messages[cut:]) == whole
    assert len(whole) > 50


@pytest.mark.parametrize("damage", ["empty", "no state", "short", "other period", "rows"])
def test_a_damaged_state_is_refused(damage: str) -> None:
    made, reader = single(), single()
    folded(made, steady(range(10)))
    bodies = {"empty": b"", "no state": b"[]", "short": made.snapshot()[:-200], "rows": b""}
    if damage == "other period":
        reader = single(observed=history.Params(seconds=30))
        bodies[damage] = made.snapshot()
    if damage == "rows":
        made._history._names.append(WEB)
        bodies[damage] = made.snapshot()
    with pytest.raises(ValueError, match=r"."):
        reader.restore(bodies[damage])


def test_what_says_nothing_is_missing_and_no_zero() -> None:
    bad = [np.nan, np.inf, -5.0]
    messages = [(0, at(period), {WEB: of(5.0 if period % 3 else bad[period // 3 % 3])}) for period in range(40)]
    made = folded(single(), messages)
    assert made
    assert all(each.forecasts["smoothing"][0] == pytest.approx(5.0) for each in made)


def test_without_requests_nothing_is_raised() -> None:
    messages = [(0, at(period), {WEB: of(0.1 * period, request=0.0)}) for period in range(30)]
    made = folded(single(), messages)
    assert {(each.desired, each.raises) for each in made} == {(10, False)}


def test_a_workload_without_name_or_running_pods_is_left_out() -> None:
    nameless, ending = Workload("shop", "Deployment", ""), Workload("shop", "Deployment", "ending")
    messages = [(0, at(period), {nameless: of(5.0), ending: of(5.0, pods=0)}) for period in range(30)]
    assert folded(single(), messages) == []


def test_a_renamed_workload_begins_again_and_the_old_name_is_dropped() -> None:
    forecasts, renamed = single(), Workload("shop", "Deployment", "renamed")
    made = folded(forecasts, [*steady(range(30)), *steady(range(30, 60), name=renamed)])
    assert next(each.at_us for each in made if each.workload == renamed) == at(34)
    assert forecasts._history.dump()[0] == [renamed]


def test_a_clock_that_is_set_back_does_not_mix_times() -> None:
    forecasts = single()
    made = folded(forecasts, [*steady(range(1000, 1040), 9.0), *steady(range(40), 5.0)])
    back = [each for each in made if each.at_us < at(1000)]
    assert len(back) > 20
    assert [each.forecasts["smoothing"][0] for each in back] == [pytest.approx(5.0)] * len(back)


@pytest.mark.slow
def test_the_initialization_time_is_remembered_and_bounded() -> None:
    forecasts = single()
    made = folded(forecasts, [*steady(range(20), initialization=45.0), *steady(range(20, 30), initialization=None)])  # type: ignore[arg-type]
    assert {each.horizon_seconds for each in made} == {45.0}
    (unknown,) = folded(single(), steady(range(30), initialization=None))[-1:]  # type: ignore[arg-type]
    assert unknown.horizon_seconds == unknown.initialization_seconds == 60.0
    (quick,) = folded(single(), steady(range(30), initialization=0.5))[-1:]
    assert (quick.initialization_seconds, quick.horizon_seconds) == (0.5, 15.0)
    (stuck,) = folded(single(), steady(range(300), initialization=1e9))[-1:]
    assert (stuck.initialization_seconds, stuck.horizon_seconds) == (1e9, 3600.0)


@pytest.mark.slow
def test_observations_reach_back_a_multiple_of_the_initialization_time_or_twenty_periods() -> None:
    (slow,) = folded(single(), steady(range(400), initialization=600.0))[-1:]
    assert slow.observations == 2 * 600 / 15
    (quick,) = folded(single(), steady(range(400), initialization=15.0))[-1:]
    assert quick.observations == 20


@pytest.mark.slow
def test_memory_is_bounded_however_many_workloads_there_are() -> None:
    bound = 1 << 20
    forecasts = single(observed=history.Params(memory_bytes=bound), fitted=0)
    names = [Workload("shop", "Deployment", f"w{number}") for number in range(5000)]
    big = {name: of(1.0, pods=1 + number % 7, initialization=3600.0) for number, name in enumerate(names)}
    for period in range(60):
        forecasts.fold(0, at(period), big)
    assert sum(array.nbytes for array in forecasts._history.dump()[1].values()) < 1.1 * bound
    kept = forecasts._history.dump()[0]
    assert 1000 < len(kept) < 5000
    assert {name for number, name in enumerate(names) if number % 7 == 6} <= set(kept)


@pytest.mark.slow
@pytest.mark.skipif("holt" not in model.available(), reason="statsmodels is not installed")
def test_only_the_largest_workloads_are_fitted_and_the_others_say_which_model_counts() -> None:
    names = [Workload("shop", "Deployment", f"w{number}") for number in range(6)]
    messages = [
        (0, at(period), {name: of(5.0, pods=number + 1) for number, name in enumerate(names)}) for period in range(24)
    ]
    made = [each for each in folded(single(model="holt", fitted=2), messages) if each.at_us == at(22)]
    assert {each.workload.name: each.model for each in made if each.model == "holt"} == {"w5": "holt", "w4": "holt"}
    assert {each.model for each in made} == {"holt", "smoothing"}
    assert all("smoothing" in each.forecasts for each in made)


def test_a_partition_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="partition: 3 of 3"):
        Forecasts(3, Params()).fold(3, at(0), {})


def test_an_observation_that_comes_again_replaces_the_first() -> None:
    state = series.extend(series.init(1), 1)
    for at_us, amount in ((1_000_000, 1.0), (2_000_000, 2.0), (2_000_000, 3.0)):
        state = series.update(state, at_us, np.array([[amount]]), np.array([60.0]), limit=10)
    assert state.values.tolist() == [[[1.0, 3.0]]]
    assert [part.tolist() for part in series.observed(state)] == [[2], [1.0]]


def test_sums_of_workloads_with_the_longest_names_go_out_in_messages_that_a_server_takes() -> None:
    sums = {
        Workload("\N{PINEAPPLE}" * 500, "Deployment", f"{number}" + "\x01" * 500): Sum(pods=1) for number in range(700)
    }
    made = list(workload.messages(3, 1, sums))
    assert [message.chunk for message in made] == list(range(len(made)))
    assert all(len(codec.encode(message)) < 1_000_000 for message in made)
    assert [owner for message in made for owner in workload.sums_of(message)] == list(sums)
