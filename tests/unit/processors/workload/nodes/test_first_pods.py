"""A node without pods on which the first of a class start that others have run for long."""

import numpy as np

from processors.partition.aggregate import Aggregate
from processors.partition.partition import Partition
from schemas import codec
from schemas.messages.estimate import Availability, Model
from schemas.settings import load
from tests.support.processors import telemetry
from tests.unit.processors.workload.nodes.small_node import Stream, by_cores, pod, seconds

CORES, BEGIN = 0.5, 60
HOLD = float((1 - by_cores(np.array([0.1]))[0]) / by_cores(np.array([CORES]))[0])  # on a node that runs nothing


def rows(last: int, started: int) -> list[Availability]:
    """Return the availability of a node, second by second, that runs nothing until so many pods start there."""
    partition, whole = (
        Partition(load({"estimate_report_seconds": "0.5"}, environ={}), 0),
        Aggregate(1, silent_seconds=10),
    )
    listed = list[Availability]()
    for second in range(last):
        batch: Stream = []
        for number in range(3):
            batch += next(
                seconds(f"n{number}", second, second + 1, [pod(each, "shop/web", CORES) for each in range(3)])
            )
        starting = [pod(9 + each, "shop/web", CORES) for each in range(started if second >= BEGIN else 0)]
        batch += next(seconds("empty", second, second + 1, starting, ages=[second - BEGIN] * len(starting)))
        for each in partition.fold(batch)[0]:
            if isinstance(each.message, Availability) and each.message.node == "empty":
                listed.append(each.message)
            if isinstance(each.message, Model) and (merged := whole.fold(each.subject, codec.encode(each.message))):
                partition.fold([(telemetry.NAMES.model, codec.encode(merged))])
    return listed


def test_from_the_first_second_they_count_with_what_others_of_their_class_take() -> None:
    _, before, *after = rows(BEGIN + 12, 3)[-14:]
    assert HOLD - 1 <= before.available <= HOLD + 0.1
    for row in after[1:]:
        assert row.mix == {"shop/web": 1.0}
        assert HOLD - 4 <= row.available <= HOLD - 2.9
        assert row.lower <= HOLD - 3
