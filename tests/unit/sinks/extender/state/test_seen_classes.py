"""Classes that reports do not name, since a node tells only a few apart: which of them have been seen."""

from schemas.messages.estimate import ClassRoom
from sinks.extender.strategy.availability import LEARNING
from tests.support.extender.placement import GIB, SECOND, START, Clock, Replica, given, node, pod, report
from tests.unit.sinks.extender.nodes import seen

_DAEMONS = {f"system/d{number}": (40.0, 30.0) for number in range(8)}
_FREE = {"cpu": 3.0, "memory": 12.0 * GIB}
_NAMES = ["a", "b"]


def ordinary(replica: Replica) -> None:
    """Report two nodes on which DaemonSets came first and that have run a service beside them."""
    state, now_us = replica.cluster_state, replica.clock.now_us
    for name in _NAMES:
        state.report(report(name, now_us, 40.0, lower=30.0, classes=_DAEMONS, free=_FREE))


def with_services(replica: Replica, running_seconds: int) -> None:
    state, began = replica.cluster_state, START - running_seconds * SECOND
    for name in _NAMES:
        state.describe(node(name))
    state.pods.hear(pod("old", 1, node="a", phase="Running", ready_us=began, at_us=began, workload="shop/app"))
    ordinary(replica)


async def test_beside_eight_daemon_sets_a_pod_that_starts_keeps_no_service_away_that_has_run_for_a_minute() -> None:
    replica = Replica(given(), Clock())
    with_services(replica, running_seconds=10)
    for name in _NAMES:
        replica.cluster_state.pods.hear(pod(f"d-{name}", 2, node=name, owner_kind="DaemonSet", workload="system/d0"))
    assert await replica.place("new", _NAMES, workload="shop/app") is None
    assert replica.decisions[-1].refused == {LEARNING: 2}
    replica.clock.pass_seconds(51)
    ordinary(replica)
    assert await replica.place("new", _NAMES, workload="shop/app") in _NAMES
    assert await replica.place("more", _NAMES, workload="shop/app") in _NAMES
    assert await replica.place("else", _NAMES, workload="shop/else") is None


async def test_a_class_is_seen_while_one_of_its_pods_runs() -> None:
    replica = Replica(given(), Clock())
    with_services(replica, running_seconds=61)
    assert not seen(replica, _NAMES, workload="shop/app").unseen.any()
    replica.cluster_state.pods.hear(pod("second", 2, node="b", phase="Running", ready_us=START, workload="shop/app"))
    replica.cluster_state.pods.hear(pod("old", 3, node="a", phase="Succeeded"))
    assert seen(replica, _NAMES, workload="shop/app").unseen.all()
    replica.clock.pass_seconds(62)
    ordinary(replica)
    assert not seen(replica, _NAMES, workload="shop/app").unseen.any()


def test_a_class_that_a_report_names_is_seen_elsewhere_once_it_is_measured_there() -> None:
    replica = Replica(given(), Clock())
    with_services(replica, running_seconds=61)
    for prior, unseen in ((0.9, [True, True]), (0.2, [False, False])):
        replica.clock.pass_seconds(1)
        named = report("a", replica.clock.now_us, 40.0, free=_FREE)
        room = ClassRoom(available=9, lower=9, binding="cpu", pods=1, cpu=0.1, memory=0.1, prior=prior)
        replica.cluster_state.report(named.model_copy(update={"classes": {"shop/app": room}}))
        assert seen(replica, _NAMES, workload="shop/app").unseen.tolist() == unseen


def test_a_seen_class_counts_by_its_requests_with_the_tail_of_any_other() -> None:
    replica = Replica(given(), Clock())
    with_services(replica, running_seconds=61)
    result, other = (seen(replica, _NAMES, workload=name) for name in ("shop/app", "shop/else"))
    assert result.room.tolist() == other.room.tolist()
    assert result.sure.tolist() == other.sure.tolist()
    assert other.unseen.all()
    assert not result.unseen.any()


def test_what_is_remembered_of_pods_ends_with_them_where_each_class_has_a_name() -> None:
    replica = Replica(given(), Clock())
    pods = replica.cluster_state.pods
    for number in range(100):
        began = replica.clock.now_us
        pods.hear(pod(f"p{number}", 1, node="a", phase="Running", ready_us=began - 9 * SECOND, at_us=began))
        replica.cluster_state.report(report("a", began, 9.0))
        pods.hear(pod(f"p{number}", 2, node="a", deleted=True, at_us=began))
        replica.clock.pass_seconds(10)
        pods.age(replica.clock.now_us)
    assert len(pods._showing) < 10
