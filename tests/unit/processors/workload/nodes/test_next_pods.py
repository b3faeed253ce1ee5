"""Which pods are expected next on ordinary nodes: beside DaemonSets, restarts, and classes that no other node runs."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from kube import pod as pods_of_kubernetes
from processors.partition.partition import Partition
from schemas.messages.estimate import Availability
from schemas.settings import load
from tests.support.processors import telemetry
from tests.unit.processors.workload.nodes.small_node import GIB, Cluster, Stream, folded, pod, seconds

DAEMONS = [pod(number, f"system/d{number}", 0.01) for number in range(8)]


def partition() -> Partition:
    return Partition(load({"estimate_report_seconds": "0.5"}, environ={}), 0)


@pytest.mark.parametrize("classes", [1, 4])
@pytest.mark.parametrize("quiet_seconds", [30, pytest.param(4000, marks=pytest.mark.slow)])
def test_pods_of_classes_without_a_slot_are_expected_again(classes: int, quiet_seconds: int) -> None:
    """Eight DaemonSets fill the slots of a node; then four services of 0.4 cores come, and about three more fit."""
    node = partition()
    folded(node, seconds("n", 0, quiet_seconds, DAEMONS, step=20))

    def coming() -> Iterator[Stream]:
        for second in range(60):
            services = [pod(100 + number, f"shop/app{number % classes}", 0.4) for number in range(1 + second // 10)][:4]
            ages = [600] * 8 + [min(second - 10 * number, 600) for number in range(len(services))]
            at = quiet_seconds + second
            yield from seconds("n", at, at + 1, DAEMONS + services, ages=ages)

    after = folded(node, coming())["n"]
    assert 1 <= after.lower <= 3
    assert after.available < 5


def test_a_daemonset_is_not_expected_again() -> None:
    node, service = partition(), pod(100, "shop/app", 0.4)
    for each in DAEMONS[:4]:
        facts = telemetry.facts("n", each["pod"], each["workloads"]).model_copy(update={"owner_kind": "DaemonSet"})
        node.fold([telemetry.stored(facts)])
    after = folded(node, seconds("n", 0, 30, [*DAEMONS[:4], service]))["n"]
    assert after.mix == {"shop/app": 1.0}


@pytest.mark.parametrize("pods", [4, 12])
def test_a_daemonset_that_kubernetes_names_after_the_first_block_is_not_expected_again(pods: int) -> None:
    daemons = [pod(number, f"system/d{number}", 0.01) for number in range(pods)]
    node, everything = partition(), [*daemons, *(pod(100 + number, "shop/app", 0.4) for number in range(3))]
    folded(node, seconds("n", 0, 5, everything))
    for each in daemons:
        facts = telemetry.facts("n", each["pod"], each["workloads"]).model_copy(update={"owner_kind": "DaemonSet"})
        node.fold([telemetry.stored(facts)])
    assert folded(node, seconds("n", 5, 30, everything))["n"].mix == {"shop/app": 1.0}


def _mirror(uid: str, name: str) -> dict[str, Any]:
    """Return the object that a kubelet makes at the API server for a static pod."""
    return {
        "metadata": {
            "name": f"{name}-n",
            "namespace": "kube-system",
            "uid": f"0a1b2c3d-0000-4000-8000-{uid[:12]}",
            "resourceVersion": "7",
            "creationTimestamp": "2023-11-14T22:00:00Z",
            "annotations": {pods_of_kubernetes.MIRROR: uid},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "controller": True}],
        },
        "spec": {"nodeName": "n", "containers": [{"name": name}]},
        "status": {"phase": "Running"},
    }


@pytest.mark.parametrize("watched", [True, False])
def test_static_pods_are_not_expected_again(watched: bool) -> None:
    """A control-plane node that also runs a service of 0.4 cores: about six more fit, and no second etcd comes."""
    node, static = partition(), list[dict[str, Any]]()
    for name, cores in (("kube-apiserver", 0.15), ("etcd", 0.08), ("kube-controller-manager", 0.03)):
        uid = f"{len(static):032x}"
        static.append(pod(0, f"kube-system/{name}", cores) | {"pod": uid})
        if watched:
            facts = pods_of_kubernetes.facts(_mirror(uid, name), at_us=telemetry.START * 10**6)
            node.fold([telemetry.stored(facts)])
    after = folded(node, seconds("n", 0, 60, [*static, pod(100, "shop/app", 0.4)]))["n"]
    assert after.mix == {"shop/app": 1.0}
    assert after.available == pytest.approx(6, abs=0.5)


@pytest.mark.slow
def test_a_container_that_runs_again_is_no_start() -> None:
    """Five services, and an exporter whose container ends every minute and is started again."""
    node, services = partition(), [pod(number, "shop/web", 0.4) for number in range(5)]
    exporter = pod(9, "tools/exporter", 0.005)

    def restarting() -> Iterator[Stream]:
        for second in range(60, 300):
            pods = [*services, exporter] if second % 60 > 10 else services
            yield from seconds("n", second, second + 1, pods)

    calm = folded(node, seconds("n", 0, 60, [*services, exporter]))["n"]
    after = folded(node, restarting())["n"]
    assert (after.mix or {})["shop/web"] >= (calm.mix or {})["shop/web"]
    assert after.available <= calm.available * 1.05


def _cluster(nodes: int, app: str) -> dict[str, Availability]:
    """Fold nodes with four DaemonSets to which two services come, whose class `app` names by the node's number."""
    cluster, last = Cluster(), dict[str, Availability]()
    for second in range(60):
        batch: Stream = []
        for number in range(nodes):
            services = [pod(100 + each, app.format(number), 0.6) for each in range(min(2, max(0, second // 10 - 1)))]
            ages = [600] * 4 + [second % 20] * len(services)
            batch += next(seconds(f"n{number}", second, second + 1, DAEMONS[:4] + services, ages=ages))
        last |= cluster.fold(batch)
    return last


def test_a_class_that_a_single_node_runs_is_expected_there_and_nowhere_else() -> None:
    alone, shared = _cluster(4, "shop/app{}"), _cluster(4, "shop/app")
    for name, row in alone.items():
        app = f"shop/app{name[1:]}"
        assert (row.mix or {})[app] > 0.8
        assert not {each for each in row.mix or {} if each.startswith("shop")} - {app}
        assert row.available == pytest.approx(shared[name].available, rel=0.1)


def test_pods_that_are_too_large_for_a_node_are_not_expected_there() -> None:
    """Three nodes of 128 GiB start pods of 20 GiB again and again; the others of 8 GiB have services for long."""
    cluster, last = Cluster(), dict[str, Availability]()
    services = [pod(number, "shop/web", 0.05, 0.5 * GIB) for number in range(3)]
    for second in range(160):
        batch: Stream = []
        for number in range(4):
            batch += next(seconds(f"small{number}", second, second + 1, services))
        for number in range(3):
            run, since = divmod(second + 10 * number, 40)
            large = [pod(100 + run, "batch/train", 0.3, 20 * GIB)] if since < 30 else []
            batch += next(seconds(f"large{number}", second, second + 1, large, ages=[since] * len(large), gib=128))
        last |= cluster.fold(batch)
    small = last["small0"]
    assert small.mix == {"shop/web": 1.0}
    assert (small.classes or {})["batch/train"].available < 1
    assert small.available == pytest.approx((8 - 0.1 - 0.5) / 0.5 - 3, rel=0.05)
    assert small.lower >= 10


def throttled(limit: float, work: float, rate: float, seconds: int, seed: int) -> list[tuple[float, float]]:
    """Return cores and throttled share of a thread with a quota, second by second, as requests come at random."""
    random, waiting, left, used, kept = np.random.default_rng(seed), 0.0, 0.0, [0.0], [0.0]
    come = np.cumsum(random.exponential(1 / rate, round(2 * rate * seconds)))
    for at in range(seconds * 1000):
        if at % 100 == 0:
            left = limit * 0.1
        while come.size and come[0] <= at / 1000:
            waiting, come = waiting + work, come[1:]
        if at % 1000 == 0:
            used.append(used[-1])
            kept.append(kept[-1])
        if waiting > 0 and left > 0:
            run = min(0.001, left, waiting)
            waiting, left, used[-1] = waiting - run, left - run, used[-1] + run
        elif waiting > 0:
            kept[-1] += 0.001
    return [(b - a, d - c) for (a, b), (c, d) in zip(pairwise(used[1:]), pairwise(kept[1:]), strict=True)]


@pytest.mark.slow
def test_a_service_with_a_quota_that_it_does_not_use_up_is_one() -> None:
    """Half of the quota is used, and requests wait for it in a third of the time: as many fit as without the quota."""
    pods = [throttled(0.2, 0.05, 2.0, 92, seed) for seed in range(4)]
    rows = []
    for quota in (0.0, 1.0):
        node = partition()

        def stream(quota: float = quota) -> Iterator[Stream]:
            for second in range(90):
                shown = [
                    pod(number, "shop/web", series[second][0])
                    | {"throttled": quota * series[second][1], "cpu_pressure": quota * series[second][1]}
                    for number, series in enumerate(pods)
                ]
                yield from seconds("n", second, second + 1, shown)

        rows.append(folded(node, stream())["n"])
    free, limited = rows
    assert (limited.classes or {})["shop/web"].kind == "serving"
    assert limited.available == pytest.approx(free.available, rel=0.05)


@pytest.mark.parametrize(("pods", "spread", "kind"), [(1, 0.14, "serving"), (3, 0.14, "serving"), (3, 0.03, "soaking")])
def test_threads_that_a_quota_holds_back_use_as_much_each_second(pods: int, spread: float, kind: str) -> None:
    """Pods of several threads use 0.7 cores in the mean, and are held back in a third of the time."""
    node, random, kinds = partition(), np.random.default_rng(7), list[str | None]()
    held = {"throttled": 0.35, "cpu_pressure": 0.4}
    for second in range(120):
        shown = [pod(number, "a/x", float(random.normal(0.7, 0.7 * spread))) | held for number in range(pods)]
        row = folded(node, seconds("n", second, second + 1, shown)).get("n")
        kinds += [row.classes["a/x"].kind] if row and row.classes and second > 20 else []
    assert kinds.count(kind) > 0.9 * len(kinds)


@pytest.mark.parametrize("cores", [0.05, 0.2])
def test_a_thread_that_its_quota_holds_back_all_the_time_never_sleeps(cores: float) -> None:
    """A second has nine to eleven periods of the quota."""
    node, row = partition(), None
    for second in range(60):
        used = cores * (0.9, 1.0, 1.1, 1.0)[second % 4]
        held = {"throttled": 1 - cores, "cpu_pressure": 1 - cores}
        shown = [pod(number, "batch/x", used) | held for number in range(4)]
        row = folded(node, seconds("n", second, second + 1, shown)).get("n", row)
    assert row is not None
    assert (row.classes or {})["batch/x"].kind == "soaking"


@pytest.mark.parametrize(("cores", "deviation", "kind"), [(12.0, 1.5, "serving"), (8.0, 0.0, "soaking")])
def test_of_many_cores_not_anything_is_a_whole_number(cores: float, deviation: float, kind: str) -> None:
    node, random, level = partition(), np.random.default_rng(3), np.zeros(2)
    kinds: list[str | None] = []
    for second in range(90):
        level = 0.8 * level + 0.6 * random.normal(0, deviation, 2)
        pods = [pod(number, "shop/search", cores - 0.02 + level[number], GIB) for number in range(2)]
        used = sum(each["cpu_cores"] for each in pods) + 0.5
        block = telemetry.block("n", second, pods=2.0, cpu_util=used / 64, memory_util=0.1, memory_used=0.1)
        block = block.model_copy(update={"cpus": 64, "memory_bytes": 512 * GIB})
        usage = telemetry.usage("n", second + 1, pods, ages=[600, 600])
        outputs, _ = node.fold([telemetry.stored(block), telemetry.stored(usage)])
        rows = [each.message for each in outputs if isinstance(each.message, Availability)]
        kinds += [row.classes["shop/search"].kind for row in rows if row.classes and second > 20]
    assert kinds.count(kind) > 0.9 * len(kinds)
