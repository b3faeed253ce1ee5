"""The controller of lower tiers: what it promises whatever is measured, and numbers worked out by hand."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.governing import controller
from processors.governing.controller import Input, Output, Params, State

PARAMS = Params(
    reserve=0.2,
    floor=0.02,
    pressure_high=0.2,
    pressure_low=0.1,
    release=0.02,
    memory_low=0.05,
    evict=True,
    evict_after_seconds=30,
    evict_seconds=60,
)
CALM = Input(
    elapsed_seconds=1,
    cores=10,
    production_cores=2,
    pressure=0,
    memory_available=0.5,
    mid_cores=None,
    batch=True,
)

shares = st.floats(0, 1)
inputs = st.builds(
    Input,
    elapsed_seconds=st.floats(0.1, 10),
    cores=st.just(10.0),
    production_cores=st.none() | st.floats(0, 20),
    pressure=st.none() | shares,
    memory_available=st.none() | shares,
    mid_cores=st.none() | st.floats(0, 10),
    batch=st.booleans(),
)
states = st.builds(
    State,
    lent_cores=st.none() | st.floats(0.2, 10),
    strained_seconds=st.floats(0, 100),
    evicted_seconds=st.floats(0, 100) | st.just(math.inf),
)


START = State()


def step(state: State = START, **changes: Any) -> tuple[State, Output]:
    return controller.update(state, replace(CALM, **changes), params=PARAMS)


@given(states, inputs)
def test_limits_lie_within_the_floor_and_the_node_and_add_up(state: State, seen: Input) -> None:
    floor = PARAMS.floor * seen.cores
    _, output = controller.update(state, seen, params=PARAMS)
    assert floor <= output.lent_cores <= seen.cores
    assert min(output.mid_cores, output.batch_cores) >= floor
    assert output.mid_cores + output.batch_cores <= output.lent_cores + floor + 1e-9


@given(states, inputs, st.floats(0, 20), st.floats(0, 1))
def test_more_use_by_production_or_more_pressure_never_gives_a_higher_limit(
    state: State, seen: Input, cores: float, pressure: float
) -> None:
    more = replace(
        seen,
        production_cores=None if seen.production_cores is None else seen.production_cores + cores,
        pressure=max(seen.pressure or 0.0, pressure),
    )
    lent, less = (controller.update(state, each, params=PARAMS)[1].lent_cores for each in (seen, more))
    assert less <= lent


@given(states, inputs)
def test_a_limit_rises_by_a_bounded_step_and_never_while_usage_is_unknown(state: State, seen: Input) -> None:
    _, output = controller.update(state, seen, params=PARAMS)
    if state.lent_cores is not None:
        most = state.lent_cores + PARAMS.release * seen.cores * seen.elapsed_seconds
        assert output.lent_cores <= most + 1e-9
        if seen.production_cores is None:
            assert output.lent_cores <= state.lent_cores


@given(states, inputs, st.floats(PARAMS.pressure_low, 1))
def test_between_the_marks_a_limit_does_not_rise(state: State, seen: Input, pressure: float) -> None:
    _, output = controller.update(state, replace(seen, pressure=pressure), params=PARAMS)
    if state.lent_cores is not None:
        assert output.lent_cores <= state.lent_cores


@pytest.mark.slow
@given(states, st.lists(inputs, max_size=200))
def test_evictions_are_apart_and_none_comes_unless_it_is_asked_for(state: State, seen: list[Input]) -> None:
    since, cautious = state.evicted_seconds, replace(PARAMS, evict=False)
    for each in seen:
        assert controller.update(state, each, params=cautious)[1].evict is None
        state, output = controller.update(state, each, params=PARAMS)
        since += each.elapsed_seconds
        if output.evict:
            assert since >= PARAMS.evict_seconds
            since = 0.0


def test_what_production_and_the_reserve_leave_is_lent() -> None:
    assert step()[1].lent_cores == pytest.approx(6)  # 10 less 2 in reserve and 2 used
    assert step(production_cores=9)[1].lent_cores == pytest.approx(0.2)  # the floor


def test_a_rise_of_production_suppresses_within_one_step() -> None:
    state, _ = step()
    assert step(state, production_cores=7)[1].lent_cores == pytest.approx(1)


def test_pressure_halves_the_limit_each_second_down_to_the_floor_whatever_usage_says() -> None:
    state, lent = State(), []
    for _ in range(6):
        state, output = step(state, pressure=0.5)
        lent.append(output.lent_cores)
    assert lent == pytest.approx([5, 2.5, 1.25, 0.625, 0.3125, 0.2])
    assert output.at_floor


def test_one_long_step_suppresses_as_much_as_many_short_ones() -> None:
    state = State(lent_cores=8)
    whole, _ = step(state, pressure=0.5, elapsed_seconds=2)
    for _ in range(4):
        state, _ = step(state, pressure=0.5, elapsed_seconds=0.5)
    assert state.lent_cores == pytest.approx(whole.lent_cores)


def test_a_calm_node_is_released_slowly_and_completely() -> None:
    state, lent = State(lent_cores=0.2), []
    for _ in range(31):
        state, output = step(state)
        lent.append(output.lent_cores)
    assert lent[:2] == pytest.approx([0.4, 0.6])
    assert lent[28:] == pytest.approx([6, 6, 6])


def test_mid_pods_come_before_batch_pods_and_each_keeps_its_floor() -> None:
    _, both = step(mid_cores=2.0)
    assert (both.mid_cores, both.batch_cores) == pytest.approx((3, 3))
    _, full = step(mid_cores=6.0)
    assert (full.mid_cores, full.batch_cores) == pytest.approx((5.8, 0.2))
    _, alone = step(mid_cores=0.0, batch=False)
    assert alone.mid_cores == pytest.approx(6)
    assert step()[1].batch_cores == pytest.approx(6)


def test_production_that_waits_at_the_floor_costs_a_pod_and_not_before() -> None:
    state, seconds = State(lent_cores=0.2), []
    for second in range(1, 101):
        state, output = step(state, pressure=0.5)
        if output.evict:
            assert output.evict == "cpu"
            seconds.append(second)
    assert seconds == [30, 90]


def test_pressure_that_ends_is_forgotten() -> None:
    state = State(lent_cores=0.2, strained_seconds=29)
    state, _ = step(state, pressure=0.15)
    assert step(state, pressure=0.5)[1].evict is None


def test_a_shortage_of_memory_is_not_waited_for() -> None:
    assert step(memory_available=0.04)[1].evict == "memory"
    assert step(memory_available=0.05)[1].evict is None
    assert step(memory_available=0.04, batch=False)[1].evict is None
