"""What counts as used of a node: pods beyond the classes that it tells apart, what Kubernetes keeps, and its facts."""

from collections.abc import Iterator

import pytest

from processors.partition.partition import Partition
from schemas.settings import load
from tests.support.processors import telemetry
from tests.unit.processors.prediction.fold.recordings import node_facts
from tests.unit.processors.workload.nodes.small_node import GIB, Stream, described, folded, pod, seconds


@pytest.mark.parametrize(("reported", "kept"), [(True, 0.0), (False, 0.0), (True, 0.5)])
def test_pods_of_more_classes_than_a_node_tells_apart_count_as_used(reported: bool, kept: float) -> None:
    """Twelve pods of a fifth of a core each, of one class or of twelve, also beside what Kubernetes keeps."""
    free = []
    for classes in (1, 12):
        partition = Partition(load({}, environ={}), 0)
        described(partition, 4.0 - kept, 8 * GIB)
        pods = [pod(number, f"shop/app{number % classes}", 0.2) for number in range(12)]
        stream: Iterator[Stream] = seconds("n", 0, 60, pods)
        if not reported:
            lacking = {"system_cpu_cores": None, "system_memory_bytes": None}
            stream = (
                [first, telemetry.stored(telemetry.usage("n", second + 1, pods, **lacking, ages=[600] * 12))]
                for second, (first, _) in enumerate(stream)
            )
        free.append(folded(partition, stream)["n"])
    single, many = free
    assert single.free is not None
    assert many.free is not None
    assert many.free["cpu"] == pytest.approx(single.free["cpu"], abs=0.06)
    assert many.lower <= single.lower


def test_a_full_node_of_many_classes_says_that_it_is_full() -> None:
    daemons = [pod(number, f"system/d{number}", 0.01) for number in range(8)]
    apps = [pod(10 + number, "shop/app", 0.2) for number in range(19)]
    partition = Partition(load({}, environ={}), 0)
    last = folded(partition, seconds("n", 0, 20, daemons))
    assert last["n"].lower > 0
    last = folded(partition, seconds("n", 20, 90, daemons + apps))
    assert last["n"].lower == 0
    assert last["n"].available < 0.5


@pytest.mark.slow
def test_pods_that_come_later_take_the_place_of_a_class_that_has_not_started_any_for_long() -> None:
    daemons = [pod(number, f"system/d{number}", 0.01) for number in range(8)]
    apps = [pod(10 + number, "shop/app", 0.2) for number in range(3)]
    partition = Partition(load({}, environ={}), 0)
    folded(partition, seconds("n", 0, 600, daemons, step=20))
    for first, classes in ((600, 0), (4000, 1)):
        folded(partition, seconds("n", first, first + 30, daemons + apps))
        last = folded(partition, seconds("n", first + 30, first + 40, daemons + apps))["n"]
        assert sum(name == "shop/app" for name in last.classes or {}) == classes
        folded(partition, seconds("n", first + 40, first + 3400, daemons, step=20))
    again = folded(partition, seconds("n", 7400, 7460, [*daemons, pod(99, "shop/one", 0.2)]))["n"]
    assert "shop/one" not in (again.classes or {})  # no more pods than any of the others


@pytest.mark.slow
def test_pods_whose_class_gets_a_place_late_are_no_starts() -> None:
    """Ten pods that need little have run for long when their class gets a place; the next one is still as before."""
    others, stays = [pod(number, f"system/d{number}", 0.01) for number in range(7)], pod(999, "batch/y", 0.6)
    small = [pod(20 + number, "shop/small", 0.01) for number in range(10)]
    partition = Partition(load({}, environ={}), 0)

    def starting(first: int, last: int) -> Iterator[Stream]:
        for second in range(first, last):
            pods, ages = [*others, stays, *small], [600] * 18
            if second % 60 < 30:
                pods, ages = [*pods, pod(1000 + second // 60, "batch/y", 0.6)], [*ages, second % 60]
            yield from seconds("n", second, second + 1, pods, ages=ages)

    folded(partition, seconds("n", 0, 30, [*others, stays]))
    before = folded(partition, starting(30, 2400))["n"]
    after = folded(partition, starting(2400, 2700))["n"]
    assert "shop/small" not in (before.classes or {})
    assert "shop/small" in (after.classes or {})
    for last in (before, after):
        assert (last.mix or {})["batch/y"] > 0.9
    assert after.lower <= before.lower + 1


@pytest.mark.parametrize("pods", [1, 6, 10])
def test_what_kubernetes_keeps_does_not_change_while_pods_come_and_go(pods: int) -> None:
    partition = Partition(load({"estimate_form": "least_squares"}, environ={}), 0)
    described(partition, 3.0, 8 * GIB)

    def sized(first: int, last: int, count: int) -> Iterator[Stream]:
        for second in range(first, last):
            number, cores = count + (second // 10 % 2 if first == 0 else 0), 0.3
            cores += 0.2 * number
            block = telemetry.block(
                "n", second, pods=float(number), cpu_util=cores / 4, memory_util=0.1, procs_running=1 + cores
            )
            yield [telemetry.stored(block)]

    folded(partition, sized(0, 300, 5))
    at_once = folded(partition, sized(300, 301, pods))["n"]
    settled = folded(partition, sized(301, 330, pods))["n"]
    assert at_once.available == pytest.approx(settled.available, abs=1.0)


def test_memory_that_kubernetes_keeps_is_not_given_to_pods() -> None:
    """Five pods of a GiB on a node that gives 6 of its 8 GiB to pods."""
    pods = [pod(number, "shop/cache", 0.02, GIB) for number in range(5)]
    partition = Partition(load({}, environ={}), 0)
    assert folded(partition, seconds("n", 0, 60, pods))["n"].available == pytest.approx(2.4, abs=0.1)
    partition = Partition(load({}, environ={}), 0)
    described(partition, 3.8, 6 * GIB)
    assert folded(partition, seconds("n", 0, 60, pods))["n"].available == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("form", ["composed", "least_squares"])
def test_what_kubernetes_keeps_counts_where_no_class_is_known(form: str) -> None:
    partition = Partition(load({"estimate_form": form}, environ={}), 0)
    described(partition, 4.0, 2 * GIB)
    last = folded(partition, seconds("n", 0, 60, []))["n"]
    assert last.binding == "memory"
    assert last.available == pytest.approx(2 * GIB / (200 << 20), abs=0.3)


@pytest.mark.parametrize("cpus", [1, 16])
def test_what_a_pod_costs_stays_what_it_is_when_the_node_comes_back_with_another_size(cpus: int) -> None:
    def sized(first: int, last: int, of: int) -> Iterator[Stream]:
        for second in range(first, last):
            pods = 1 + second // 10 % 4
            block = telemetry.block(
                "n", second, pods=float(pods), cpu_util=0.15 * pods / of, memory_util=0.2, procs_running=1 + 0.15 * pods
            )
            yield [telemetry.stored(block.model_copy(update={"cpus": of}))]

    costs = []
    for size in (4, cpus):
        partition = Partition(load({"estimate_form": "least_squares"}, environ={}), 0)
        folded(partition, sized(0, 200, 4))
        last = folded(partition, sized(200, 215, size))["n"]
        assert last.binding == "cpu"
        costs.append(last.cost * (last.limits or {})["cpu"])
    assert costs[1] == pytest.approx(costs[0], rel=0.1)


@pytest.mark.slow
def test_a_node_that_comes_back_after_hours_has_its_pod_limit_and_its_pods_their_classes() -> None:
    partition, pods = Partition(load({}, environ={}), 0), [pod(number, "guess", 0.05) for number in range(4)]
    described(partition, 3.8, 6 * GIB, pods=8.0)
    partition.fold([telemetry.stored(telemetry.facts("n", f"p{number}", "shop/web")) for number in range(4)])
    before = folded(partition, seconds("n", 0, 60, pods), seconds("other", 0, 60, []))["n"]
    folded(partition, seconds("other", 60, 4000, [], step=20))
    after = folded(partition, seconds("n", 4000, 4060, pods), seconds("other", 4000, 4060, []))["n"]
    for last in (before, after):
        assert (last.available, last.binding, list(last.classes or {})) == (4.0, "pods", ["shop/web"])


@pytest.mark.slow
def test_a_node_that_kubernetes_deleted_is_forgotten_with_its_facts() -> None:
    partition, pods = Partition(load({}, environ={}), 0), [pod(number, "guess", 0.05) for number in range(4)]
    described(partition, 3.8, 6 * GIB, pods=8.0)
    partition.fold([telemetry.stored(telemetry.facts("n", "p0", "shop/web"))])
    folded(partition, seconds("n", 0, 60, pods), seconds("other", 0, 60, []))
    partition.fold([telemetry.stored(node_facts("n", 2, 3.8, 6 * GIB, deleted=True))])
    folded(partition, seconds("other", 60, 8000, [], step=20))
    after = folded(partition, seconds("n", 8000, 8060, pods), seconds("other", 8000, 8060, []))["n"]
    assert after.binding != "pods"
    assert list(after.classes or {}) == ["guess"]


@pytest.mark.slow
def test_where_usage_of_pods_no_longer_comes_the_nodes_own_usage_counts() -> None:
    partition, two = Partition(load({}, environ={}), 0), [pod(number, "shop/web", 0.2) for number in range(2)]
    folded(partition, seconds("n", 0, 60, two))
    alone = ([batch[0]] for batch in seconds("n", 60, 200, [pod(number, "shop/web", 0.25) for number in range(12)]))
    after = folded(partition, alone)["n"]
    assert after.available < 3
    assert after.lower == 0
    assert after.mix == {"shop/web": 1.0}


def test_file_pages_that_pods_work_with_are_not_given_to_others() -> None:
    """Four pods hold 0.7 GiB each, and a GiB of file pages which the kernel would drop, in 8 GiB."""
    pods = [pod(number, "shop/db", 0.05, 1.7 * GIB) for number in range(4)]
    seen = 0.1 + 4 * 0.7 / 8

    def stream() -> Iterator[Stream]:
        for second in range(40):
            block = telemetry.block("n", second, pods=4.0, cpu_util=0.1, memory_util=seen, memory_used=seen)
            yield [
                telemetry.stored(block),
                telemetry.stored(telemetry.usage("n", second + 1, pods, system_memory_bytes=0.0, ages=[600] * 4)),
            ]

    after = folded(Partition(load({}, environ={}), 0), stream())["n"]
    assert after.binding == "memory"
    assert after.available * 1.7 <= 8 - 4 * 1.7


@pytest.mark.parametrize("pages", [0.0, 0.2, 0.6])
def test_file_pages_of_pods_do_not_hide_what_the_system_holds(pages: float) -> None:
    """Of 8 GiB four pods hold a GiB each, in part file pages which the kernel would drop, and the system 1.5 GiB."""
    pods = [pod(number, "shop/db", 0.05, 1.0 * GIB) for number in range(4)]
    seen = (1.5 + 4 * (1.0 - pages)) / 8
    after = folded(
        Partition(load({}, environ={}), 0),
        (
            [
                telemetry.stored(telemetry.block("n", second, pods=4.0, cpu_util=0.1, memory_util=seen)),
                telemetry.stored(telemetry.usage("n", second + 1, pods, system_memory_bytes=1.5 * GIB, ages=[600] * 4)),
            ]
            for second in range(40)
        ),
    )["n"]
    assert after.binding == "memory"
    assert after.available == pytest.approx(8 - 100 / 1024 - 4 - 1.5, abs=0.02)


def test_pods_of_which_no_container_runs_count_for_the_pod_limit() -> None:
    partition, pods = Partition(load({}, environ={}), 0), [pod(number, "shop/web", 0.05) for number in range(11)]
    described(partition, 4.0, 8 * GIB, pods=17.0)
    for number in range(17):
        partition.fold([telemetry.stored(telemetry.facts("n", f"p{number}", "shop/web"))])
    full = folded(partition, seconds("n", 0, 30, pods))["n"]
    assert (full.binding, full.available, full.lower) == ("pods", 0.0, 0.0)
    for number in range(11, 14):
        gone = telemetry.facts("n", f"p{number}", "shop/web", 2).model_copy(update={"deleted": True})
        partition.fold([telemetry.stored(gone)])
    assert folded(partition, seconds("n", 30, 60, pods))["n"].available == 3.0


@pytest.mark.parametrize("first", [0.1, 0.216])
@pytest.mark.parametrize("quota", [0.0, 0.5])
def test_what_pods_get_while_the_cpus_fill_is_not_what_they_take(quota: float, first: float) -> None:
    """Their usage comes before the samples of its second, which say that no CPU is idle.

    Ten threads start, and take so many cores each in their first second.
    """
    partition, costs = Partition(load({"estimate_report_seconds": "0.5"}, environ={}), 0), dict[int, float]()
    for second in range(90):
        part = {60: 0.8}.get(second, 0.6 if second > 60 else 1.0)
        held = quota if part == 1 else 0.0
        pressed = {"throttled": held, "cpu_pressure": held or 1.1 - part}
        pods = [pod(each, "shop/web", 0.5 * part) | pressed for each in range(4)]
        threads = 10 if second >= 60 else 0
        cores = first if second == 60 else 0.27
        pods += [pod(10 + each, "batch", cores) | {"cpu_pressure": 1 - cores} for each in range(threads)]
        ages = [600] * 4 + [second - 60] * threads
        ((samples, usage),) = seconds("n", second, second + 1, pods, ages=ages, waiting=8.5 if second > 60 else 0.0)
        for message in (usage, samples):
            for row in folded(partition, iter([[message]])).values():
                if web := (row.classes or {}).get("shop/web"):
                    costs[second] = web.cpu
    assert costs[89] == pytest.approx(costs[59], rel=0.05)
