"""How far a task is behind: by its clock, or by what it has read over some seconds, since messages come in bursts."""

import pytest

from bus.folding.overload.lag import Lag
from bus.folding.overload.shedding import NONE, Shedding
from bus.health import Health
from bus.reading.progress import Received


def stored(*milliseconds: int) -> list[Received]:
    return [Received("s", number, b"", 1000 * at) for number, at in enumerate(milliseconds, 1)]


def test_what_waits_is_as_far_apart_as_what_was_read() -> None:
    lag, messages = Lag(), stored(0, 1000, 2000, 3000)
    lag.take(messages)
    assert lag.seconds(messages, -1) == 3
    assert lag.seconds(messages, 8) == 3 + 8 * 0.75


def test_a_burst_does_not_make_it_look_near() -> None:
    """A thousand messages of a second come at once each second, and ten seconds of them wait."""
    lag = Lag()
    for second in range(4):
        burst = stored(*[1000 * second + number // 100 for number in range(1000)])
        lag.take(burst)
    assert 7 < lag.seconds(burst, 10_000) < 11


def test_it_looks_back_some_seconds_only_and_not_over_what_was_skipped() -> None:
    lag = Lag()
    lag.take(stored(*range(0, 60_000, 1000)))
    fast = stored(*range(60_000, 70_000, 10))
    for begin in range(0, 1000, 100):
        lag.take(fast[begin : begin + 100])
    assert lag.seconds(fast[-100:], 1000) < 12
    lag.skip()
    later = stored(100_000, 100_100)
    lag.take(later)
    assert lag.seconds(later, 10) == 0.1 + 10 * 0.05


def test_a_clock_of_the_server_that_is_set_back_is_no_delay() -> None:
    lag, messages = Lag(), stored(5000, 4000)
    lag.take(messages)
    assert lag.seconds(messages, 5) == 0
    lag.take([])


class InTime:
    """A task that has read a message each second, a quarter of a second after it was stored, and nothing waited."""

    def __init__(self) -> None:
        self.now = 0.0
        self.lag = Lag(lambda: self.now)
        for second in range(5):
            assert self.read(0, 1000 * second, now=second + 0.25) == 0

    def read(self, pending: int, *times: int, now: float) -> float:
        """Read messages that were stored at these times in milliseconds; returns how far it is behind."""
        self.now = now
        self.lag.take(messages := stored(*times))
        return self.lag.seconds(messages, pending)


def test_what_it_read_when_nothing_waited_tells_how_old_later_messages_are() -> None:
    """A message came each second, and suddenly a hundred do; by the pace before, what waits took minutes to come."""
    task = InTime()
    assert task.read(900, *range(5000, 5100), now=6.25) == pytest.approx(1.0, abs=0.01)
    assert task.read(4000, *range(5100, 5200), now=9.25) == pytest.approx(3.9, abs=0.01)


@pytest.mark.parametrize("step", [-3_600_000, 3_600_000])
def test_a_clock_of_the_server_that_is_set_is_compared_again(step: int) -> None:
    now = 10.0
    lag = Lag(lambda: now)
    lag.take(before := stored(10_000))
    lag.seconds(before, 0)
    lag.take(after := stored(10_100 + step, 10_200 + step))
    assert lag.seconds(after, 0) == pytest.approx(0.1)
    now = 12.0
    lag.take(later := stored(11_200 + step))
    assert lag.seconds(later, 50) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("back", "at_once"), [(2.5, 2.5), (4, 4), (6, 6), (10, 0.083)])
def test_while_nothing_waits_a_clock_of_the_server_that_goes_back_or_slowly_leaves_nothing_out(
    back: float, at_once: float
) -> None:
    now = 1000.0
    lag, shedding = Lag(lambda: now), Shedding(("samples",), lambda: now)
    for second in range(300):
        now += 1
        apart = 1000.3 + min(back, max(0, second - 60) * at_once)
        lag.take(read := stored(round(1000 * (now - apart))))
        behind = lag.seconds(read, 0)
        shedding.observe("0", behind, Health(), patient=False)
        assert shedding.level == NONE
    assert behind < 0.01


def test_a_clock_of_the_server_that_is_set_back_while_something_waits_is_no_delay_either() -> None:
    now = 10.0
    lag = Lag(lambda: now)
    lag.take(before := stored(9900))
    assert lag.seconds(before, 0) == 0
    for number in range(100):
        now += 0.1
        lag.take(read := stored(*range(5900 + 100 * number, 6000 + 100 * number, 10)))
        assert lag.seconds(read, 7) == pytest.approx(0.2, abs=0.05)


def test_what_came_during_folds_is_old_although_nothing_waited_when_the_server_sent_it() -> None:
    task = InTime()
    assert task.read(0, *range(5000, 6000, 100), now=14.25) == pytest.approx(9, abs=0.1)
    assert task.read(900, *range(6000, 7000, 100), now=24.25) == pytest.approx(18, abs=0.1)
