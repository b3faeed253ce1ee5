"""What is in no pod: pods that end, and jobs of a moment, are not taken for it; and starts are not taken for costs."""

import numpy as np
import pytest

from processors.partition.partition import Partition
from schemas.messages.estimate import Availability
from tests.support.processors.mix import CORES, configured, pod, rows_of, sampled, share_of
from tests.support.processors.telemetry import event, stored, usage

SYSTEM = 0.4


def published(seconds: list[tuple[list[tuple[str, float, int]], float]]) -> list[Availability]:
    """Return what a node says whose pods (name, cores, age) and other use (cores) are these, second by second."""
    partition, rows = Partition(configured(), 0), list[Availability]()
    before: set[str] = set()
    for second, (pods, system) in enumerate(seconds):
        names = {name for name, _, _ in pods}
        listed = [pod(name, "a", cores, 1e8) for name, cores, _ in pods]
        messages = [stored(event("n", second - 0.5, "exited", container=name)) for name in sorted(before - names)]
        messages += [stored(event("n", second - 0.5, container=name)) for name in sorted(names - before)]
        messages.append(stored(usage("n", second + 1, listed, system_cpu_cores=system, ages=[age for *_, age in pods])))
        cores = system + sum(cores for _, cores, _ in pods)
        messages.append(stored(sampled("n", second, cores, 2e9, len(pods))))
        rows += rows_of(partition.fold(messages)[0])
        before = names
    return rows


def free(rows: list[Availability]) -> float:
    return (rows[-1].free or {})["cpu"]


def running(count: int, age: int, cores: float = 0.5) -> list[tuple[str, float, int]]:
    return [(f"p{number}", cores, age) for number in range(count)]


@pytest.mark.slow
def test_what_pods_took_in_the_second_in_which_they_ended_is_not_taken_for_the_hosts() -> None:
    calm = [(running(12, second), SYSTEM) for second in range(40)]
    fewer = published(
        [*calm, (running(2, 40), SYSTEM + 10 * 0.45), *[(running(2, 41 + more), SYSTEM) for more in range(3)]]
    )
    always = published([(running(2, second), SYSTEM) for second in range(44)])
    assert abs(free(fewer) - free(always)) < 0.01


@pytest.mark.slow
def test_a_pod_that_is_replaced_each_second_is_not_taken_for_the_hosts() -> None:
    random = np.random.default_rng(1)
    seconds: list[tuple[list[tuple[str, float, int]], float]] = []
    for second in range(90):
        # The third pod is a new one each second; it has run for a part of it, and the one before for the other part.
        part = float(random.uniform(0, 1))
        pods = [*running(2, second + 5), (f"new{second}", 0.5 * part, 1)]
        seconds.append((pods, SYSTEM + 0.5 * (1 - part)))
    taken = 1 - free(published(seconds))
    expected = 3 * share_of(0.5) + SYSTEM / share_of(1.0) * share_of(1.0) / CORES
    assert taken < expected + 0.3 * share_of(0.5)
    assert taken > expected - 0.3 * share_of(0.5)


@pytest.mark.slow
def test_a_job_of_one_second_takes_no_room() -> None:
    calm = [(running(4, second), SYSTEM) for second in range(40)]
    assert free(published([*calm, (running(4, 40), SYSTEM + 6.0)])) > free(published(calm)) - 0.03


def test_what_the_first_pod_took_while_it_started_is_forgotten_once_it_runs() -> None:
    start = [([("p0", cores, age)], SYSTEM) for age, cores in ((1, 6.0), (2, 8.0), (2, 4.0))]
    rows = published([*start, *[([("p0", 0.5, age)], SYSTEM) for age in range(3, 9)]])
    classes = rows[-1].classes
    assert classes is not None
    assert classes["a"].cpu < 1.3 * share_of(0.5)


@pytest.mark.slow
def test_a_node_says_by_how_much_its_pods_demand_more_than_the_policy_admits() -> None:
    within = published([(running(16, second), SYSTEM) for second in range(30)])[-1]
    beyond = published([(running(31, second), SYSTEM) for second in range(30)])[-1]
    assert within.excess == 0.0
    assert beyond.available == 0.0
    taken = 31 * share_of(0.5) + SYSTEM / CORES
    assert beyond.excess == pytest.approx(taken - 1, abs=0.03)
