"""Pods that take much more than others of their class did, from one second to the next: the bound follows at once."""

from collections.abc import Iterator

import numpy as np
import pytest

from processors.partition.partition import Partition
from schemas.messages.estimate import Availability
from schemas.settings import load
from tests.unit.processors.workload.nodes.small_node import Stream, by_cores, folded, pod, seconds

CHANGE = 90
SYSTEM = 0.1  # cores


def share(cores: float) -> float:
    """Return the share of 4 CPUs that one service of so many cores takes."""
    return float(by_cores(np.array([cores]))[0])


def rows(stream: Iterator[Stream]) -> list[Availability]:
    partition = Partition(load({"model_global_weight": "0", "estimate_report_seconds": "0.5"}, environ={}), 0)
    return [row for batch in stream for row in folded(partition, iter([batch])).values()][CHANGE:]


def test_what_young_pods_take_beyond_others_of_their_class_is_in_use() -> None:
    """Four services of 0.05 cores run, and four come that take 0.7 each: then nothing more fits on 4 CPUs."""
    older = [pod(number, "shop/web", 0.05) for number in range(4)]

    def stream() -> Iterator[Stream]:
        for second in range(CHANGE + 40):
            came = [pod(10 + number, "shop/web", 0.7) for number in range(4 if second >= CHANGE else 0)]
            ages = [600] * 4 + [second - CHANGE] * len(came)
            yield from seconds("n", second, second + 1, older + came, ages=ages)

    after = rows(stream())[5:]
    assert max(row.lower for row in after) <= 2
    assert max(row.available for row in after) < 7  # of 50 before


@pytest.mark.parametrize(("before", "then"), [(0.01, 0.04), (0.02, 0.05)])
def test_a_change_of_many_small_pods_is_a_change(before: float, then: float) -> None:
    def stream() -> Iterator[Stream]:
        for second in range(CHANGE + 20):
            cores = then if second >= CHANGE else before
            yield from seconds("n", second, second + 1, [pod(number, "shop/web", cores) for number in range(40)])

    holds = (1 - share(SYSTEM)) / share(then) - 40
    after = rows(stream())[5:]
    assert max(row.lower for row in after) <= holds
    assert all(row.available == pytest.approx(holds, rel=0.1) for row in after)
