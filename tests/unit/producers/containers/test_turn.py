"""Sources of containers look around at the same moments, however they were started."""

from hypothesis import given
from hypothesis import strategies as st

from producers.containers.sources import turn

TIMES = st.floats(0, 1e7)
PERIODS = st.sampled_from([0.1, 0.5, 1.0, 3.0, 60.0])


@given(TIMES, TIMES, PERIODS)
def test_sources_that_start_at_different_times_meet_at_common_turns(first: float, second: float, period: float) -> None:
    turns = [now + turn.pause(now, period) for now in (first, second)]
    apart = (turns[1] - turns[0]) % period
    assert min(apart, period - apart) < 1e-6 * period + 1e-8


@given(TIMES, PERIODS)
def test_a_pause_is_neither_much_shorter_nor_much_longer_than_the_period(now: float, period: float) -> None:
    pause = turn.pause(now, period)
    assert 0.1 * period <= pause <= 1.1 * period + 1e-9
    # A timer that ends a little early must not cause a second look at the same turn.
    assert turn.pause(now + pause - 1e-6 * period, period) > 0.9 * period
