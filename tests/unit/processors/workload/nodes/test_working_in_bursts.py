"""Pods that work for some seconds of each minute: between two bursts no more of them fit than hold in the next one."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from processors.estimation import slowdown
from processors.partition.partition import Partition
from schemas.messages.estimate import Availability
from schemas.settings import load
from tests.unit.processors.workload.nodes.small_node import Stream, folded, pod, seconds

pytestmark = pytest.mark.slow

CPUS = np.array([4.0])
SYSTEM = 0.1  # cores
KNOWN = 85  # seconds, at which the second burst of each minute is at its end


def share(cores: float) -> float:
    """Return the share of 4 CPUs that a service of so many cores takes by the policy."""
    weight = slowdown.weight(np.array([cores]), slowdown.queueing(2.0, CPUS)[0])[0]
    return float(cores / slowdown.cores(2.0, CPUS)[0] * weight)


def rows(pods: int, cores: Callable[[int], float], last: int) -> list[Availability]:
    """Return the availability of each second of a node whose pods use so many cores then."""

    def stream(second: int) -> Iterator[Stream]:
        return seconds("n", second, second + 1, [pod(each, "shop/web", cores(second)) for each in range(pods)])

    settings = load({"model_global_weight": "0", "estimate_report_seconds": "0.5"}, environ={})
    partition = Partition(settings, 0)
    return [row for second in range(last) for row in folded(partition, stream(second)).values()]


@pytest.mark.parametrize(("pods", "cores", "noise"), [(1, 0.5, 0.0), (3, 0.2, 0.0), (3, 0.5, 0.3), (3, 0.4, 0.1)])
def test_between_bursts_no_more_pods_fit_than_hold_in_the_next_one(pods: int, cores: float, noise: float) -> None:
    random = np.random.default_rng(7)

    def used(second: int) -> float:
        return float(max(0.0, 1 + noise * random.standard_normal()) * (cores if second % 60 < 20 else 0.01))

    holds = (1 - share(SYSTEM)) / share(cores) - pods
    later = rows(pods, used, 300)[KNOWN:]
    assert np.mean([row.lower <= holds for row in later]) >= 0.9
    assert max(row.lower for row in later) <= holds + 1
    assert max(row.available for row in later) <= 2 * holds + 1
    assert np.mean([abs(row.available - holds) <= max(1.0, 0.15 * holds) for row in later]) > 0.5
    assert np.median([row.lower for row in later]) >= 0.25 * holds


def test_a_node_whose_pods_are_too_many_in_their_bursts_has_no_room_between_them() -> None:
    later = rows(8, lambda second: 0.6 if second % 60 < 20 else 0.1, 240)[KNOWN:]
    assert {row.lower for row in later} == {0.0}
    assert {part.lower for row in later for part in (row.classes or {}).values()} == {0.0}
    random = np.random.default_rng(7)

    def most_of_the_time(second: int) -> float:
        return float(max(0.0, 1 + 0.3 * random.standard_normal()) * (0.5 if second % 60 < 40 else 0.1))

    assert max(row.lower for row in rows(7, most_of_the_time, 180)[KNOWN + 20 :]) <= 1


def test_pods_that_compute_in_bursts_count_as_such_between_them() -> None:
    """Of pods that never sleep while they work eight fit on 4 CPUs, of services of a whole core hardly three."""
    later = rows(2, lambda second: 1.0 if second % 60 < 20 else 0.01, 240)[KNOWN:]
    assert np.mean([5 <= row.available <= 7.5 for row in later]) > 0.9


def test_a_change_that_happens_once_is_no_burst() -> None:
    """Pods begin to work, and end with it: what they took is forgotten within seconds."""

    def used(second: int) -> float:
        return 0.5 if 30 <= second < 90 else 0.01

    assert rows(3, used, 90)[-1].available < 5
    assert rows(3, used, 180)[-1].lower > 50


def test_a_class_that_no_longer_works_in_bursts_is_believed_after_a_while() -> None:
    def used(second: int) -> float:
        return 0.5 if second % 60 < 20 and second < 120 else 0.01

    reports = rows(3, used, 1300)
    assert reports[300].lower < 5
    assert reports[-1].lower > 50


@pytest.mark.parametrize("cores", [0.05, 0.3])
def test_noise_of_seconds_is_no_burst(cores: float) -> None:
    random = np.random.default_rng(7)
    settings = load({"model_global_weight": "0", "estimate_report_seconds": "0.5"}, environ={})
    partition = Partition(settings, 0)
    for second in range(200):
        noisy = [pod(each, "shop/web", float(cores * random.lognormal(-0.125, 0.5))) for each in range(4)]
        folded(partition, seconds("n", second, second + 1, noisy))
    assert not partition._state.workloads._state.bursts.returns.any()
