"""The grid of sample moments."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers import clock

RATES = st.sampled_from([1, 2, 3, 7, 10, 100])
MOMENTS = st.integers(0, 10**18)


class Stopped(clock.System):
    """Clocks that stand still."""

    def __init__(self, boottime: int, realtime: int) -> None:
        self._boottime, self._realtime = boottime, realtime

    def boottime(self) -> int:
        return self._boottime

    def realtime(self) -> int:
        return self._realtime


@given(MOMENTS, RATES)
def test_the_latest_tick_has_come_and_the_one_after_it_has_not(now: int, samples: int) -> None:
    tick = clock.latest(now, samples)
    assert clock.deadline(tick, samples) <= now < clock.deadline(tick + 1, samples)


@given(st.integers(0, 10**10), RATES)
def test_each_tick_is_the_latest_at_its_own_moment(tick: int, samples: int) -> None:
    assert clock.latest(clock.deadline(tick, samples), samples) == tick


@given(st.integers(0, 10**8), RATES)
def test_the_first_tick_of_a_block_lies_on_a_whole_second(second: int, samples: int) -> None:
    assert clock.deadline(second * samples, samples) == second * clock.SECOND


def test_ticks_of_a_rate_that_does_not_divide_nanoseconds_do_not_drift() -> None:
    assert [clock.deadline(tick, 3) for tick in (3, 4, 5, 6)] == [10**9, 1_333_333_333, 1_666_666_666, 2 * 10**9]


@given(st.integers(0, 10**18), st.integers(0, 10**18), st.integers(0, 2 * 10**18), st.integers(0, 10**18))
def test_what_another_program_dates_by_the_wall_clock_lies_between_the_question_and_now(
    boottime: int, realtime: int, wall: int, asked: int
) -> None:
    stopped = Stopped(boottime, realtime)
    earliest = min(asked, boottime)
    moment = clock.boottime_of(wall, stopped, earliest=earliest)
    assert earliest <= moment <= boottime
    if earliest <= boottime - (realtime - wall) <= boottime:
        assert realtime - wall == boottime - moment


def test_lateness_is_in_seconds_and_negative_before_the_tick() -> None:
    assert clock.lateness(57, 5_725_000_000, 10) == pytest.approx(0.025)
    assert clock.lateness(57, 5_690_000_000, 10) == pytest.approx(-0.01)


def test_a_tick_within_whose_interval_one_wakes_is_not_missed() -> None:
    assert clock.missed(57, 5_799_999_999, 10) == 0


def test_ticks_that_were_slept_through_are_missed() -> None:
    assert clock.missed(57, 5_800_000_000, 10) == 1
    assert clock.missed(57, 6_050_000_000, 10) == 3


def test_before_the_tick_that_is_due_none_is_missed() -> None:
    assert clock.missed(57, 5_699_999_999, 10) == 0


def test_the_wall_clock_at_a_whole_second_is_in_microseconds() -> None:
    epoch = 1_795_242_556_123_456_789
    assert clock.wall_us(5, 5_000_000_000, epoch) == 1_795_242_556_123_456
    assert clock.wall_us(5, 5_700_000_000, epoch) == 1_795_242_555_423_456


def test_the_machines_clocks_are_in_nanoseconds_and_move() -> None:
    system = clock.System()
    for read in (system.boottime, system.monotonic, system.realtime):
        before = read()
        assert 0 < before <= read()
    assert system.boottime() >= system.monotonic() - clock.SECOND
