"""Nodes of a cluster on which pods of one class, or all pods, honestly take different amounts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from processors.partition.partition import Partition
from schemas import codec
from schemas.messages.estimate import MAXIMUM_CLASSES, Availability, ClassSum, Model
from schemas.settings import load
from tests.support.processors import telemetry
from tests.unit.processors.workload.nodes.small_node import GIB, Cluster, Stream, by_cores, pod, seconds

pytestmark = pytest.mark.slow

SYSTEM = 0.1  # cores
Pods = list[dict[str, Any]]


def fits(cores: float) -> float:
    """Return how many services of so many cores an empty node of 4 CPUs has room for."""
    return float(((1 - by_cores(np.array([SYSTEM]))) / by_cores(np.array([cores])))[0])


def folded(nodes: list[Pods], until: int, before: Sequence[tuple[str, bytes]] = ()) -> dict[str, Availability]:
    """Return the last availability of nodes that have run these pods for long, and of one that runs none."""
    cluster, last = Cluster(), dict[str, Availability]()
    cluster.fold(list(before))
    for second in range(until):
        batch: Stream = []
        for number, pods in enumerate([*nodes, []]):
            batch += next(seconds(f"n{number}", second, second + 1, pods))
        last |= cluster.fold(batch)
    return last


def services(cores: list[float]) -> list[Pods]:
    """Return nodes that run two pods of one class each, which use so many cores."""
    return [[pod(10 * number + each, "shop/web", used) for each in range(2)] for number, used in enumerate(cores)]


@pytest.mark.parametrize("busy", [3, 4, 5, 6])
def test_busy_and_idle_nodes_of_a_class_all_count_in_its_mean(busy: int) -> None:
    """Clipping to the mean made it that of the more frequent kind: 34 at least where 15 fit."""
    cores = [0.6] * busy + [0.06] * (10 - busy)
    last = folded(services(cores), 130)
    room, true = (last["n10"].classes or {})["shop/web"], fits(float(np.mean(cores)))
    assert room.available == pytest.approx(true, rel=0.2)
    assert room.lower <= true
    assert not any(each.outvoted for each in last.values())


def test_one_of_three_nodes_cannot_set_the_mean_of_a_class() -> None:
    """It was 2.5 cores, and the two others were outvoted."""
    honest = [[pod(number, "shop/db", 0.3)] for number in (1, 2)]
    others = [[pod(number, "shop/web", 0.1)] for number in (3, 4, 5, 6)]
    liar = [pod(90, "shop/db", 1.9), pod(91, "shop/db", 1.9)]
    last = folded([liar, *honest, *others], 150)
    room = (last["n7"].classes or {})["shop/db"]
    assert 0.6 * fits(0.3) < room.available < 1.2 * fits(0.3)
    assert not last["n1"].outvoted
    assert not last["n2"].outvoted


def test_the_mean_pod_of_the_cluster_is_known_though_nothing_has_started_since() -> None:
    """What pods of classes take is known; only the regression on the number of pods is not. It was 72, at least 68."""
    small = [[pod(10 * node + each, f"app/{node}-{each}", 0.05) for each in range(4)] for node in range(3)]
    large = [[pod(10 * node + each, f"app/{node}-{each}", 0.5, 0.1 * GIB) for each in range(4)] for node in range(3, 6)]
    empty, true = folded(small + large, 40)["n6"], fits((0.05 + 0.5) / 2)
    assert empty.available == pytest.approx(true, rel=0.25)
    assert empty.lower <= 0.9 * empty.available


def test_what_daemon_sets_take_is_not_what_the_next_pod_takes() -> None:
    daemons = [[pod(100 * node + each, f"kube-system/d{each}", 0.01) for each in range(3)] for node in range(6)]
    apps = [[pod(100 * node + 50 + each, f"app/{node}-{each}", 0.4) for each in range(2)] for node in range(6)]
    facts = [
        telemetry.stored(telemetry.facts(f"n{node}", each["pod"], each["workloads"], owner_kind="DaemonSet"))
        for node, pods in enumerate(daemons)
        for each in pods
    ]
    empty = folded([first + second for first, second in zip(daemons, apps, strict=True)], 60, facts)["n6"]
    assert empty.available == pytest.approx(fits(0.4), rel=0.25)
    assert empty.lower <= fits(0.4)


def test_a_node_whose_services_take_less_than_elsewhere_counts_what_they_take_for_as_long_as_it_is_full() -> None:
    """As their evidence faded they counted with what others of them take: no room, where 1.9 threads had some."""
    cluster, rooms = Cluster(), dict[int, Availability]()
    busy = [[pod(100 * node + each, "shop/web", 0.46) for each in range(4)] for node in range(4)]
    calm = [pod(900 + each, "shop/web", 0.1) for each in range(8)]
    batch = [pod(950 + each, "jobs/batch", 0.775) | {"cpu_pressure": 0.225} for each in range(4)]
    for second in range(135):
        full = second >= 75
        messages: Stream = []
        for number, pods in enumerate([*busy, calm + batch if full else calm]):
            ages = [600] * 8 + [second - 75] * 4 if pods[-1] is batch[-1] else None
            waiting = 0.9 if number == len(busy) and full else 0.0
            messages += next(seconds(f"n{number}", second, second + 1, pods, ages=ages, waiting=waiting))
        if (row := cluster.fold(messages).get("n4")) is not None:
            rooms[second] = row
    early, late = ((rooms[second].classes or {})["shop/web"].cpu or 0.0 for second in (85, 134))
    assert late == pytest.approx(early, rel=0.1)
    assert rooms[134].excess == 0


def test_classes_that_have_ended_displace_none_that_run() -> None:
    cluster, named = Partition(load({}, environ={}), 0), list[Model]()
    for second in range(40):
        batch: Stream = []
        for node in range(20):
            own = [pod(1000 * node + each, f"own/{node}-{each}", 0.05) for each in range(4)]
            jobs = [pod(1000 * node + 10 + each, f"job/{node}-{each}", 0.05) for each in range(4)]
            running = own + jobs if 10 <= second < 18 else own
            batch += next(
                seconds(f"n{node}", second, second + 1, running, ages=([600] * 4 + [second - 10] * 4)[: len(running)])
            )
        named += [each.message for each in cluster.fold(batch)[0] if isinstance(each.message, Model)]
    listed = named[-1].classes or {}
    assert len(listed) == MAXIMUM_CLASSES
    assert {name.split("/")[0] for name in listed} == {"own"}


def test_classes_that_one_node_names_displace_none_that_several_run() -> None:
    cluster, named = Partition(load({}, environ={}), 0), list[Model]()
    alone = [[pod(1000 * node + 10 * kind + each, f"own/{node}-{kind}", 0.01) for kind in range(8) for each in range(5)]
             for node in range(8)]  # fmt: skip
    common = [[pod(9000 + node, "shop/web", 0.1)] for node in range(3)]
    for second in range(20):
        batch: Stream = []
        for number, pods in enumerate([*alone, *common]):
            batch += next(seconds(f"n{number}", second, second + 1, pods))
        named += [each.message for each in cluster.fold(batch)[0] if isinstance(each.message, Model)]
    listed = named[-1].classes or {}
    assert len(listed) == MAXIMUM_CLASSES
    assert (listed["shop/web"].nodes or 0) == 3


@pytest.mark.parametrize("silent_seconds", [0, 7200])
def test_a_class_that_takes_more_on_a_full_machine_is_not_held_to_what_is_known_of_it(silent_seconds: int) -> None:
    """Neither where its load grows meanwhile, nor after a time without telemetry: there was room for 3.7 more."""
    cluster, last = Cluster(), dict[str, Availability]()
    busy = [[pod(100 * node + each, "shop/web", 0.6) for each in range(4)] for node in range(3)]
    for second in range(260):
        grown, full = second >= 160, second >= 75
        thread = {"cpu_pressure": 0.325} if grown else {"cpu_pressure": 0.125}
        batch = [pod(950 + each, "jobs/batch", 1.0 - thread["cpu_pressure"]) | thread for each in range(4)]
        web = [pod(900 + each, "shop/web", 0.3 if grown else 0.1) | {"cpu_pressure": 0.3 * grown} for each in range(4)]
        messages: Stream = []
        for number, pods in enumerate([*busy, web + batch if full else web]):
            at, waiting = second + silent_seconds * grown, 2.4 if number == len(busy) and full else 0.0
            ages = [at + 600] * 4 + [at - 75] * (len(pods) - 4)
            messages += next(seconds(f"n{number}", at, at + 1, pods, ages=ages, waiting=waiting))
        last |= cluster.fold(messages)
    web_room = (last["n3"].classes or {})["shop/web"]
    assert (web_room.available, web_room.lower) == (0, 0)


def test_a_pod_of_no_class_counts_as_a_service_of_what_the_mean_pod_takes() -> None:
    settings = load({"estimate_report_seconds": "0.5"}, environ={})
    web = ClassSum(pods=1, cpu=0.1, memory=0.05 * GIB, nodes=1)
    mean_pod = Model(
        scope="global", at_us=1, features=list(settings.model.features), moment=[0.0] * 15,
        cost=[2.0, 0.1 * GIB, 0.0, 0.0, 0.0], pods=2, nodes=5, costed=5, classes={"shop/web": web},
    )  # fmt: skip
    partition, rows = Partition(settings, 0), list[Availability]()
    partition.fold([(telemetry.NAMES.model, codec.encode(mean_pod))])
    for messages in seconds("n", 0, 20, []):
        rows += [each.message for each in partition.fold(messages)[0] if isinstance(each.message, Availability)]
    assert rows[-1].available == pytest.approx(fits(1.0), rel=0.05)
