"""Pods that work for some seconds of each minute: between two bursts `lower` is what holds in the next one."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from processors.partition.partition import Partition
from processors.workload.capacity import bursts
from schemas.messages.estimate import Availability
from schemas.settings import load
from tests.unit.processors.workload.nodes.small_node import Stream, by_cores, folded, pod, seconds

pytestmark = pytest.mark.slow

SYSTEM = 0.1  # cores
KNOWN = 145  # seconds, at which the third burst of each minute is at its end


def share(cores: float) -> float:
    """Return the share of 4 CPUs that one service of so many cores takes."""
    return float(by_cores(np.array([cores]))[0])


def reports(pods: Callable[[int], tuple[list[dict[str, Any]], list[int]]], last: int) -> list[Availability]:
    """Return the availability of each second of a node that has these pods of these ages then."""

    def stream(second: int) -> Iterator[Stream]:
        running, ages = pods(second)
        return seconds("n", second, second + 1, running, ages=ages)

    settings = load({"model_global_weight": "0", "estimate_report_seconds": "0.5"}, environ={})
    partition = Partition(settings, 0)
    return [row for second in range(last) for row in folded(partition, stream(second)).values()]


def rows(pods: int, cores: Callable[[int], float], last: int) -> list[Availability]:
    """Return the availability of each second of a node whose pods use so many cores then."""

    def running(second: int) -> tuple[list[dict[str, Any]], list[int]]:
        return [pod(each, "shop/web", cores(second)) for each in range(pods)], [600] * pods

    return reports(running, last)


def bursting(demands: Iterable[float]) -> bool:
    """Tell whether a pod that demands so many cores from second to second ever counts as working in bursts."""
    state, single, never = bursts.init(1, 1), np.ones((1, 1)), np.zeros((1, 1), dtype=np.bool_)
    none = np.zeros((1, 1, 7))
    block: Any = SimpleNamespace(span=np.ones(1), gap=np.ones(1), pods=single, starting=none, brief=none)
    seen = False
    for demand in demands:
        state = bursts.update(state, np.full((1, 1), demand), never, 0.0 * single, block, single)
        seen |= bool(bursts.of(state, np.zeros((1, 1)), never)[0].any())
    return seen


@pytest.mark.parametrize(("pods", "cores", "noise"), [(1, 0.5, 0.0), (3, 0.2, 0.0), (3, 0.5, 0.3), (3, 0.4, 0.1)])
def test_between_bursts_lower_is_what_holds_in_the_next_one(pods: int, cores: float, noise: float) -> None:
    random = np.random.default_rng(7)

    def used(second: int) -> float:
        return float(max(0.0, 1 + noise * random.standard_normal()) * (cores if second % 60 < 20 else 0.01))

    holds = (1 - share(SYSTEM)) / share(cores) - pods
    later = rows(pods, used, 360)[KNOWN:]
    assert np.mean([row.lower <= holds for row in later]) >= 0.9
    assert max(row.lower for row in later) <= holds + 1
    assert np.median([row.lower for row in later]) >= 0.25 * holds


def test_pods_that_compute_in_bursts_count_as_such_between_them() -> None:
    """Of pods that never sleep while they work eight fit on 4 CPUs, of services of a whole core hardly three."""
    later = rows(2, lambda second: 1.0 if second % 60 < 20 else 0.01, 300)[KNOWN:]
    assert np.mean([4 <= row.lower <= 6 for row in later]) > 0.8


def test_bursts_of_several_classes_that_come_in_turn_are_not_added_up() -> None:
    """Eight pods of eight classes, of which at most three work at a time."""

    def running(second: int) -> tuple[list[dict[str, Any]], list[int]]:
        working = [(second + 7 * each) % 60 < 20 for each in range(8)]
        return [pod(each, f"shop/app{each}", 0.5 if works else 0.01) for each, works in enumerate(working)], [600] * 8

    later = reports(running, 300)[KNOWN:]
    holds = (1 - share(SYSTEM)) / share(0.5) - 3
    assert {row.excess for row in later} <= {0.0, None}
    assert 0 < np.mean([row.lower for row in later]) <= holds


def test_a_node_whose_pods_are_too_many_in_their_bursts_has_no_room_between_them() -> None:
    later = rows(8, lambda second: 0.6 if second % 60 < 20 else 0.1, 300)[KNOWN:]
    assert {row.lower for row in later} == {0.0}
    assert {part.lower for row in later for part in (row.classes or {}).values()} == {0.0}


def test_changes_that_happen_once_are_no_bursts() -> None:
    """Also long after them, and where the height of what came before is nearly forgotten."""
    for less in (0.05, 0.2, 0.4):
        assert not bursting(chain(repeat(1.0, 60), repeat(less, 10_000), repeat(float("nan"), 1000), repeat(less, 100)))
    assert not bursting(chain(repeat(0.1, 100), repeat(1.0, 100), repeat(0.1, 5000)))
    assert bursting(chain.from_iterable(chain(repeat(0.5, 20), repeat(0.01, 40)) for _ in range(3)))


def test_starts_of_pods_are_no_bursts() -> None:
    """A service that takes two cores for its first forty seconds is replaced again and again."""

    def running(second: int) -> tuple[list[dict[str, Any]], list[int]]:
        age = second % 120
        return [pod(second // 120, "shop/web", 2.0 if age < 40 else 0.05)], [age]

    assert reports(running, 600)[-1].lower > 30


def test_a_load_that_more_pods_share_is_no_burst() -> None:
    def running(second: int) -> tuple[list[dict[str, Any]], list[int]]:
        count = 4 if second // 90 % 2 else 1
        return [pod(each, "shop/web", 1 / count) for each in range(count)], [600] * count

    assert reports(running, 720)[-1].lower >= 5


def test_a_class_that_no_longer_works_in_bursts_is_believed_after_a_quarter_of_an_hour() -> None:
    def used(second: int) -> float:
        return 0.5 if second % 60 < 20 and second < 180 else 0.01

    later = rows(3, used, 1100)
    assert later[300].lower < 5
    assert later[-1].lower > 50


def test_noise_of_seconds_is_no_burst() -> None:
    random = np.random.default_rng(7)
    assert not bursting(0.3 * random.lognormal(-0.125, 0.5) for _ in range(5000))


def test_a_burst_that_takes_no_more_than_now_says_nothing_of_the_kind_either() -> None:
    ones = np.ones((1, 1))
    state = bursts.init(1, 1)._replace(seen=2 * ones, taken=0.9 * ones, soaking=0 * ones)
    cores, soaking = bursts.of(state, ones, ones > 0)
    assert (cores[0, 0], soaking[0, 0]) == (1.0, True)
