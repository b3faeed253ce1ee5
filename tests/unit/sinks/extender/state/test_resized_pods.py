"""A running pod whose requests or class change takes its room again until a report shows what it takes now."""

from typing import Any

import pytest

from tests.support.extender.placement import SECOND, START, Clock, Replica, given, node, pod, report

SMALL, LARGE = {"cpu": 0.1, "memory": 2.0**27}, {"cpu": 8.0, "memory": 2.0**27}
FREE = {"cpu": 16.0, "memory": 2.0**36}


def replica_with_a_running_pod() -> Replica:
    replica = Replica(given(), Clock())
    replica.cluster_state.describe(node("a", created_us=START - 1000 * SECOND))
    began = START - 100 * SECOND
    replica.cluster_state.pods.hear(
        pod("p", 1, node="a", phase="Running", at_us=began, ready_us=began, requests=SMALL, workload="shop/app")
    )
    tell(replica)
    return replica


def tell(replica: Replica) -> None:
    replica.cluster_state.report(report("a", replica.clock.now_us, 160.0, classes={"big": (4.0, 4.0)}, free=FREE))


def change(replica: Replica, **changed: Any) -> None:
    replica.clock.pass_seconds(1)
    about = {"requests": SMALL, "workload": "shop/app"} | changed
    began, at_us = START - 100 * SECOND, replica.clock.now_us
    replica.cluster_state.pods.hear(pod("p", 2, node="a", phase="Running", at_us=at_us, ready_us=began, **about))


@pytest.mark.parametrize(
    ("changed", "stated", "kind"), [({"requests": LARGE}, 8.0, ""), ({"workload": "big"}, 0.0, "big")]
)
def test_its_growth_is_held_until_a_report_that_is_later_by_the_settling_time(
    changed: dict[str, Any], stated: float, kind: str
) -> None:
    replica = replica_with_a_running_pod()
    rows, reserved = replica.cluster_state.rows, replica.cluster_state.reserved
    assert list(reserved.columns()) == []
    change(replica, **changed)
    for seconds in (0, 1):
        replica.clock.pass_seconds(seconds)
        tell(replica)
        assert [name for name, column in reserved.columns() if column.any()] == [kind]
        assert rows["stated:cpu"].max() == stated
    replica.clock.pass_seconds(1)
    tell(replica)
    assert list(reserved.columns()) == []
    assert rows["stated:cpu"].max() == 0.0


def test_its_class_stays_one_that_was_seen() -> None:
    replica = replica_with_a_running_pod()
    pods, clock = replica.cluster_state.pods, replica.clock
    assert pods.is_seen("shop/app", clock.now_us)
    change(replica, requests=LARGE)
    assert pods.is_seen("shop/app", clock.now_us)
    pods.hear(pod("p", 3, node="a", deleted=True, workload="shop/app"))
    assert not pods.is_seen("shop/app", clock.now_us)
