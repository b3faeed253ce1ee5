"""A node without pods on which the first of a class start that others have run for long."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from processors.partition.aggregate import Aggregate
from processors.partition.partition import Partition
from schemas import codec
from schemas.messages.estimate import Availability, Model
from schemas.settings import load
from tests.support.processors import telemetry
from tests.unit.processors.workload.nodes.small_node import GIB, Stream, by_cores, pod, seconds

BEGIN = 60
SYSTEM = 0.1  # cores, and half a GiB

Pod = dict[str, Any]


def rows(last: int, older: Pod, younger: Callable[[int], Pod]) -> list[Availability]:
    """Return the availability of a node, second by second, from the one before three pods start there on.

    Three other nodes each run three pods like `older`; `younger` says what those that start are at an age.
    """
    partition, whole = (
        Partition(load({"estimate_report_seconds": "0.5"}, environ={}), 0),
        Aggregate(1, silent_seconds=10),
    )
    listed = list[Availability]()
    for second in range(BEGIN + last):
        batch: Stream = []
        for number in range(3):
            batch += next(seconds(f"n{number}", second, second + 1, [older | {"pod": f"p{each}"} for each in range(3)]))
        age = second - BEGIN
        starting = [younger(age) | {"pod": f"p{9 + each}"} for each in range(3 if age >= 0 else 0)]
        batch += next(seconds("empty", second, second + 1, starting, ages=[age] * len(starting)))
        for each in partition.fold(batch)[0]:
            if isinstance(each.message, Availability) and each.message.node == "empty":
                listed.append(each.message)
            if isinstance(each.message, Model) and (merged := whole.fold(each.subject, codec.encode(each.message))):
                partition.fold([(telemetry.NAMES.model, codec.encode(merged))])
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
