"""Pods that start together or not at all, of a class that has never run, on fewer nodes than they are."""

from typing import Any

import pytest

from sinks.extender.evaluator import PLACEMENT, STRATEGY
from sinks.extender.strategy.availability import LEARNING
from tests.support.extender.placement import GIB, SECOND, START, Clock, Replica, given, node, pod, report

_NODES = [f"n{number}" for number in range(4)]
_MEMBERS = [f"g{number}" for number in range(8)]
_CLASS = "train"


def roomy() -> Replica:
    """Return a replica whose nodes have room for many of them."""
    replica = Replica(given(), Clock())
    for name in _NODES:
        replica.cluster_state.describe(node(name))
    for number, uid in enumerate(_MEMBERS):
        replica.cluster_state.pods.hear(pod(uid, 1 + number, workload=_CLASS))
    reported(replica)
    return replica


def reported(replica: Replica) -> None:
    for name in _NODES:
        free = {"cpu": 30.0, "memory": 200.0 * GIB}
        replica.cluster_state.report(report(name, replica.clock.now_us, 60.0, lower=50.0, free=free))


async def placed(replica: Replica, **about: Any) -> list[str]:
    answers = [await replica.place(uid, _NODES, workload=_CLASS, cpu="1", **about) for uid in _MEMBERS]
    return [answer for answer in answers if answer is not None]


async def test_a_crowd_of_a_class_that_has_never_run_gets_one_pod_on_each_node_also_as_a_gang() -> None:
    replica = roomy()
    assert sorted(await placed(replica)) == _NODES
    assert replica.decisions[-1].refused == {LEARNING: 4}


@pytest.mark.parametrize("annotations", [{STRATEGY: "least_allocated"}, {PLACEMENT: "off"}], ids=str)
async def test_a_gang_that_asks_to_be_placed_by_requests_starts(annotations: dict[str, str]) -> None:
    replica = roomy()
    assert len(await placed(replica, annotations=annotations)) == len(_MEMBERS)
    assert len(replica.cluster_state.reservations) == (len(_MEMBERS) if STRATEGY in annotations else 0)


async def test_a_gang_of_a_class_of_which_a_pod_has_run_for_a_minute_starts() -> None:
    replica = roomy()
    began = START - 61 * SECOND
    replica.cluster_state.pods.hear(pod("first", 20, node="n0", phase="Running", ready_us=began, workload=_CLASS))
    reported(replica)
    assert len(await placed(replica)) == len(_MEMBERS)
