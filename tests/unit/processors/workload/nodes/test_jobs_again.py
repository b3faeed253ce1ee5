"""A job that comes again and again beside old services: between two runs `lower` allows for the next one."""

from collections.abc import Iterator

import pytest

from processors.rows.name_index import NameIndex
from processors.workload import classes
from processors.workload.cluster.attested import Remembered, dump, load
from processors.workload.cluster.view import ClusterView
from schemas.messages.estimate import Availability, ClassRoom, ClassSum, Model
from tests.support.processors import telemetry
from tests.unit.processors.workload.nodes.small_node import Cluster, Stream, pod, seconds

_EVERY, _LASTING = 100, 25


def _rows(until: int) -> Iterator[tuple[int, Availability]]:
    """Yield a node's rows by second; from the first period on it runs four pods of half a core for some of its time."""
    cluster = Cluster()
    services = [pod(number, "shop/web", 0.02) for number in range(3)]
    for second in range(until):
        run, since = divmod(second, _EVERY)
        jobs = 4 if run and since < _LASTING else 0
        pods = services + [pod(100 * run + number, "batch/report", 0.5) for number in range(jobs)]
        (messages,) = seconds("n", second, second + 1, pods, ages=[600] * 3 + [since] * jobs)
        yield from ((second, row) for row in cluster.fold(messages).values())


def test_between_two_runs_of_a_job_the_bound_allows_for_the_next() -> None:
    rows = dict(_rows(3 * _EVERY))
    first, second = rows[2 * _EVERY - 5], rows[3 * _EVERY - 5]
    assert first.lower > 50, "a class that ran once need not come again"
    job = (second.classes or {})["batch/report"]
    assert 2 <= job.lower <= second.lower <= job.available
    assert second.mix == first.mix == {"shop/web": 1.0}
    assert second.available == first.available


def test_what_has_come_back_is_stored_and_what_was_stored_before_that_loads() -> None:
    item = ClassSum(pods=3, cpu=1, memory=1)
    attested = {"a": Remembered(5, item, returned=True), "b": Remembered(6, item)}
    assert load(dump(attested)) == attested
    assert load({"a": [5, item.model_dump()]}) == {"a": Remembered(5, item)}


def test_the_first_pods_of_a_new_job_count_with_what_pods_took_that_were_started_before() -> None:
    """Each run has a name of its own; other classes had room for 60, at least 46, for four seconds."""
    cluster, rooms = Cluster(), dict[int, ClassRoom]()
    for second in range(190):
        run, since = divmod(second, 60)
        job = [pod(100 * run + 10 + each, f"jobs/run{run}", 0.8) for each in range(2)] if 20 <= since < 50 else []
        messages: Stream = []
        for node in range(4):
            pods = [*(pod(each, "shop/web", 0.05) for each in range(2)), *(job if node < 2 else [])]
            ages = [600] * 2 + [since - 20] * (len(pods) - 2)
            messages += next(seconds(f"n{node}", second, second + 1, pods, ages=ages))
        row = cluster.fold(messages).get("n0")
        if row is not None and second > 100:
            rooms[second] = (row.classes or {})["shop/web"]
    settled = rooms[max(second for second in rooms if second < 170)]
    assert max(room.lower for second, room in rooms.items() if 142 <= second < 145) <= 1.2 * settled.available


@pytest.mark.parametrize("again", [False, True], ids=["at once", "from a checkpoint"])
def test_between_waves_of_jobs_of_ever_new_classes_a_node_expects_what_those_took(*, again: bool) -> None:
    """Jobs of one core: 7.7 fit on four CPUs. Without any that runs, 21 seemed to fit, at least 13."""
    cluster, between = Cluster(), list[Availability]()
    daemons = [telemetry.facts(f"n{node}", f"d{node}", "kube-system/ds", owner_kind="DaemonSet") for node in range(5)]
    cluster.fold([telemetry.stored(each) for each in daemons])
    for second in range(150):
        wave, since = divmod(second, 60)
        messages: Stream = []
        for node in range(5):
            names = [f"ci/job{wave}-{node}-{each}" for each in range(2 if since < 30 else 0)]
            daemon = pod(0, "kube-system/ds", 0.02) | {"pod": f"d{node}"}
            pods = [daemon, *(pod(10 * wave + 1 + each, name, 1.0) for each, name in enumerate(names))]
            messages += next(seconds(f"n{node}", second, second + 1, pods, ages=[600] + [since] * len(names)))
        if again and second == 100:
            cluster.restart()
        row = cluster.fold(messages).get("n0")
        if row is not None and second > 60 and 35 <= since < 60:
            between.append(row)
    assert len(between) > 5
    assert max(row.lower for row in between) <= 7
    assert max(row.available for row in between) <= 7.7


def test_a_class_that_came_back_and_is_started_elsewhere_now_bounds_a_node_that_ran_it_long_ago() -> None:
    """Its own starts, of which hardly anything was left, took the place of those of three nodes."""

    def model(second: int, *, runs: bool) -> Model:
        old = ClassSum(pods=300, cpu=15, memory=3e11, nodes=30, votes=27.0, coming=0.0, largest=0.0)
        job = ClassSum(pods=3, cpu=2.4, memory=3e8, nodes=3, votes=3.0, coming=3.0, largest=1.0)
        return Model(
            scope="global", at_us=second * 1_000_000, features=["cpu"], moment=[0.0], cost=[0.0], pods=0, nodes=30,
            classes={"old": old} | ({"job": job} if runs else {}), voting=30, voted=30.0, voiced=3.0,
        )  # fmt: skip

    index = NameIndex()
    view, state = ClusterView(index), classes.init(1, 2)
    for second, runs in ((0, True), *((second, False) for second in range(1, 40)), (40, True)):
        view.adopt(model(second, runs=runs))
    state.label[:] = index.number("job"), index.number("old")
    state.pods[:], state.starts.started[:] = (0.0, 5.0), (1e-40, 5.0)
    coming = view.coming(state)
    assert 0.1 < coming.likely[0, 0] < 0.5
    assert max(mix[0, 0] for mix in coming.also) > 0.9
    assert min(mix[0, 0] for mix in coming.also) > 0.9
