"""Slowdown of work is relative to the work of a pod of the same kind alone."""

import pytest

from spazio.truth.pod import Pod, Work
from spazio.truth.recording import Step
from spazio.truth.slowdown import Baseline, correct

# A pod takes two fifths more time alone in the end: one in the middle, in the second step, half of which counts.
# No work ended in the third.
SLOWER = [(1, 0, 1.0), (3, 50, 1.65), (5, 70, None)]


def working(took_us: int, alone_us: int, *program: str, quota: float | None = None) -> Pod:
    """Return a pod that has finished one piece of work after another, each in the same time."""
    pod = Pod("class", program, quota)
    pod.work.extend(Work(f"{number * took_us} {took_us} {alone_us}".encode()) for number in range(2, 12))
    return pod


def test_endless_work_is_compared_with_the_first_pod_of_its_kind() -> None:
    baseline = Baseline()
    assert baseline.slowdown([working(50_000, 50_000, "burn", "--work", "0.05")], 0) == 1.0
    assert baseline.slowdown([working(30_000, 10_000, "burn", "--work", "0.01")], 0) == 3.0


def test_a_pod_that_is_alone_again_shows_what_its_kind_takes_now() -> None:
    baseline = Baseline()
    baseline.slowdown([working(50_000, 50_000, "burn")], 0)
    assert baseline.slowdown([working(60_000, 50_000, "burn")], 0, alone=True) == 1.0
    assert baseline.slowdown([working(90_000, 50_000, "burn")], 0) == 1.5


def test_a_machine_that_gets_slower_does_not_slow_its_pods_down() -> None:
    steps = [Step("burn", "cpu", pods, "burn", start, start + 20, slowdown) for pods, start, slowdown in SLOWER]
    correct(steps, 1.4, 110)
    assert [step.slowdown for step in steps] == [1.0, pytest.approx(1.5), None]


def test_a_quota_slows_nothing_down_that_had_the_same_quota_alone() -> None:
    baseline = Baseline()
    baseline.slowdown([working(50_000, 50_000, "burn")], 0)
    first = working(32_000, 10_000, "burn", quota=0.3)
    assert baseline.slowdown([first], 0) == 1.0
    both = baseline.slowdown([first, working(64_000, 10_000, "burn", quota=0.3)], 0)
    assert both == pytest.approx(1.5)


def test_timed_work_says_itself_what_it_takes_alone_and_work_before_the_step_does_not_count() -> None:
    baseline = Baseline()
    assert baseline.slowdown([working(20_000, 10_000, "serve")], 0) == 2.0
    assert baseline.slowdown([working(20_000, 10_000, "serve")], 1e9) is None
