"""A node without pods on which the first of a class start that others have run for long."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from schemas.messages.estimate import MOSTLY_ASSUMED, Availability, ClassRoom
from tests.unit.processors.workload.nodes.small_node import GIB, Cluster, Stream, by_cores, pod, seconds

BEGIN = 60
SYSTEM = 0.1  # cores, and half a GiB

Pod = dict[str, Any]


def rows(last: int, older: Pod, younger: Callable[[int], Pod]) -> list[Availability]:
    """Return the availability of a node, second by second, from the one before three pods start there on.

    Three other nodes each run three pods like `older`; `younger` says what those that start are at an age.
    """
    cluster, listed = Cluster(), list[Availability]()
    for second in range(BEGIN + last):
        batch: Stream = []
        for number in range(3):
            batch += next(seconds(f"n{number}", second, second + 1, [older | {"pod": f"p{each}"} for each in range(3)]))
        age = second - BEGIN
        starting = [younger(age) | {"pod": f"p{9 + each}"} for each in range(3 if age >= 0 else 0)]
        batch += next(seconds("empty", second, second + 1, starting, ages=[age] * len(starting)))
        listed += [row for name, row in cluster.fold(batch).items() if name == "empty"]
    return listed[-last - 1 :]


def test_from_the_first_second_they_count_with_what_others_of_their_class_take() -> None:
    service = pod(0, "shop/web", 0.5)
    holds = float((1 - by_cores(np.array([SYSTEM]))[0]) / by_cores(np.array([0.5]))[0])
    before, _, *after = rows(12, service, lambda _: service)
    assert holds - 1 <= before.available <= holds + 0.1
    for row in after:
        assert row.mix == {"shop/web": 1.0}
        assert holds - 4 <= row.available <= holds - 2.9
        assert row.lower <= holds - 3


@pytest.mark.parametrize(
    ("older", "younger", "holds"),
    [
        (
            pod(0, "shop/web", 0.5),
            lambda age: pod(0, "shop/web", 0.5 if age >= 40 else 0.02),
            float((1 - by_cores(np.array([SYSTEM]))[0]) / by_cores(np.array([0.5]))[0]),
        ),
        (
            pod(0, "shop/db", 0.05, 1.2 * GIB),
            lambda age: pod(0, "shop/db", 0.05, min(0.2 + 0.025 * age, 1.2) * GIB),
            (8 - 0.1 - 0.5) / 1.2,
        ),
    ],
    ids=["no request reaches them yet", "they have yet to allocate their memory"],
)
def test_what_they_do_not_take_yet_is_no_room(older: Pod, younger: Callable[[int], Pod], holds: float) -> None:
    _, _, *after = rows(70, older, younger)
    for row in after:
        assert row.lower <= holds - 3 + 0.1
        assert row.available <= 1.3 * (holds - 3) + 0.5


def test_what_one_node_alone_says_of_a_class_takes_no_room_of_those_that_start_it() -> None:
    """It says that a pod takes all of its memory; pods of 0.05 GiB start on another node, where others hold 0.6 GiB."""
    cluster = Cluster()
    web, seen = [pod(each, "shop/web", 0.05) for each in range(3)], list[Availability]()
    false = pod(9, "shop/new", 3.0, 6.5 * GIB)
    for second in range(BEGIN + 30):
        batch: Stream = []
        for number in range(5):
            batch += next(seconds(f"n{number}", second, second + 1, web))
        batch += next(seconds("liar", second, second + 1, [false]))
        age = second - BEGIN
        new = [pod(20 + each, "shop/new", 0.05) for each in range(3 if age >= 0 else 0)]
        batch += next(seconds("empty", second, second + 1, web + new, ages=[600] * 3 + [age] * len(new)))
        seen += [row for name, row in cluster.fold(batch).items() if name == "empty"]
    assert all((row.classes or {})["shop/web"].lower > 40 for row in seen[BEGIN + 9 :])
    assert all(row.lower > 25 for row in seen[BEGIN + 11 :])


def assumed_of_first(cores: Callable[[int], float]) -> list[float]:
    """Return the share of the cost that is assumed, second by second, of a class of which one pod starts somewhere."""
    cluster, shares = Cluster(), list[float]()
    for second in range(BEGIN + 12):
        age = second - BEGIN
        first = [pod(0, "lab/job", cores(age))] if age >= 0 else []
        seen = cluster.fold(next(seconds("empty", second, second + 1, first, ages=[age] * len(first))))
        if "lab/job" in (row := seen["empty"].classes or {}):
            shares.append(row["lab/job"].prior or 0.0)
    return shares


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_that_go_on_as_they_started_are_evidence_from_their_first_whole_second_on(threads: int) -> None:
    shares = assumed_of_first(lambda _: float(threads))
    assert min(shares[:3]) > MOSTLY_ASSUMED
    assert shares[5] < MOSTLY_ASSUMED


@pytest.mark.parametrize(
    "cores",
    [lambda age: 0.0 if age < 9 else 1.0, lambda age: 2.0 if age < 4 else 1.0, lambda _: 0.3],
    ids=["idle at first", "two threads while they start", "a service"],
)
def test_what_may_be_their_start_alone_is_no_evidence(cores: Callable[[int], float]) -> None:
    assert assumed_of_first(cores)[5] > MOSTLY_ASSUMED


def test_pods_that_load_with_one_thread_and_then_serve_are_not_taken_for_threads_for_long() -> None:
    cluster, rooms = Cluster(), dict[int, ClassRoom]()
    for second in range(BEGIN + 50):
        age = second - BEGIN
        service = [pod(0, "shop/web", 1.0 if age < 6 else 0.1)] if age >= 0 else []
        row = cluster.fold(next(seconds("empty", second, second + 1, service, ages=[age] * len(service)))).get("empty")
        if row is not None and "shop/web" in (row.classes or {}):
            rooms[age] = (row.classes or {})["shop/web"]
    assert min(rooms[age].available for age in range(8, 50)) > 9, "it was 2.7 here as late as half a minute on"
    assert rooms[40].lower > 10
    steps = [abs(rooms[age].available - rooms[age - 1].available) for age in range(25, 50)]
    assert max(steps) < 2, "it does not come and go with the evidence of half a pod"
