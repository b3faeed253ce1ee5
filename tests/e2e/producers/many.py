"""Accounts of many containers, and when the set of those that run is right."""

import time
from collections.abc import Callable, Sequence

import pytest

from tests.e2e.pipeline import until
from tests.e2e.producers.hearing import LIFE, Bus


def assert_whole(bus: Bus, names: Sequence[str], containers: Sequence[str]) -> None:
    """Every agent has reported the life of every container: all of it, in order, each event once."""
    unfinished = [(name, container) for name in names for container in containers]

    def all_reported() -> bool:
        unfinished[:] = [(name, container) for name, container in unfinished if len(bus.life(name, container)) < 4]
        return not unfinished

    try:
        until(all_reported, 10, "all to be reported")
    except AssertionError:
        pytest.fail(str([(name, container[:12], bus.life(name, container)) for name, container in unfinished][:5]))
    time.sleep(3)  # what is reported twice comes with a listing, which is real time here
    wrong = [(name, each) for name in names for each in containers if bus.life(name, each) != LIFE]
    assert not wrong, "; ".join(f"{name} {each[:12]}: {bus.story(name, each)}" for name, each in wrong)
    for name in names:
        for container in containers:
            times = [each.event.boottime_us for each in bus.of(name, container)]
            assert times == sorted(times)


def right_within(
    bus: Bus, names: Sequence[str], truth: Callable[[], set[str]], others: set[str], seconds: float
) -> float:
    """Wait until the running set of all agents is the truth; returns how long it took."""
    began = time.monotonic()

    def right() -> bool:
        real = truth()
        return all(bus.running(name) & (real | others) == real for name in names)

    try:
        until(right, seconds, "the running set")
    except AssertionError:
        real = truth()
        wrong = {name: (len(real - bus.running(name)), len(bus.running(name) & others - real)) for name in names}
        pytest.fail(f"(missing, too many) after {seconds} s: {wrong} of {len(real)}")
    return time.monotonic() - began
