"""Pods that wait for disks: as many fit as disks bear, which is learned, and nobody else is kept out by them."""

import numpy as np
import pytest

from processors.partition.partition import Partition
from processors.workload.capacity import disk
from schemas.messages.estimate import Availability, ClassRoom
from tests.support.processors.mix import configured, pod, rows_of, sampled
from tests.support.processors.telemetry import stored, usage

WAITS, COMPUTES = 0.8, 0.2  # of a second's work of a writer, alone


class Machine:
    """A node with writers, which write without a pause, on disks that serve so many of them at once."""

    def __init__(self, at_once: float) -> None:
        self.partition, self._at_once, self._second = Partition(configured(), 0), at_once, 0

    def run(self, seconds: int, writers: int, services: int = 0) -> Availability:
        """Run for some seconds; return what the node says at the end."""
        rows = list[Availability]()
        took = max(1.0, WAITS * writers / self._at_once)
        for _ in range(seconds):
            cores = COMPUTES / took
            listed = [
                pod(f"w{number}", "writer", cores, 1e8, io_pressure=1 - cores, cpu_pressure=0.0)
                for number in range(writers)
            ]
            listed += [
                pod(f"s{number}", "service", 0.1, 1e8, io_pressure=0.1, cpu_pressure=0.0) for number in range(services)
            ]
            listed.append(pod("c", "computes", 0.3, 1e8, io_pressure=0.0, cpu_pressure=0.0))
            ages = [100] * len(listed)
            block = usage("n", self._second + 1, listed, system_cpu_cores=0.1, ages=ages)
            used = 0.4 + cores * writers + 0.1 * services
            sample = sampled("n", self._second, used, 2e9, len(listed))
            rows += rows_of(self.partition.fold([stored(block), stored(sample)])[0])
            self._second += 1
        return rows[-1]


def room(row: Availability, workload: str) -> ClassRoom:
    assert row.classes is not None
    return row.classes[workload]


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [1, 2])
def test_writers_fit_until_they_take_twice_the_time(at_once: int) -> None:
    machine = Machine(at_once)
    for writers in range(1, 2 * at_once + 3):
        reported = room(machine.run(25, writers), "writer")
        fit = max(0.0, 2.0 * at_once / WAITS - writers)
        assert reported.lower <= fit
        # Before two of them have run, nobody can tell that disks serve two.
        assert reported.available <= fit + 0.5
        if writers > at_once:
            assert reported.available >= fit - 1
        assert reported.binding == "disk"


@pytest.mark.slow
def test_disks_that_serve_many_at_once_are_learned_as_their_number_grows() -> None:
    machine = Machine(at_once=50)
    reported = [room(machine.run(20, writers), "writer") for writers in (1, 2, 3, 4, 6, 8)]
    assert all(each.available >= 1 for each in reported[:1] + reported[3:])
    assert reported[-1].available > 4


def test_no_other_pod_is_kept_out_by_disks_that_are_full() -> None:
    row = Machine(at_once=1).run(30, 4)
    assert room(row, "writer").available == 0
    assert room(row, "computes").available > 3
    assert room(row, "computes").binding == "cpu"


def test_services_share_disks_as_long_as_their_work_is_slowed_down_twofold() -> None:
    # Half of the time of their work is at the disk, which may then be in use for two thirds of the time, less what
    # pods make each other wait beyond that.
    reported = room(Machine(at_once=1).run(30, 0, services=3), "service")
    assert reported.available == pytest.approx(2 / 3 / 0.1 / 1.1 - 3, abs=0.2)
    assert reported.binding == "disk"


@pytest.mark.slow
def test_services_on_disks_that_serve_many_at_once_are_let_in_as_far_as_nothing_slows_down() -> None:
    machine = Machine(at_once=50)
    for services in (1, 2, 4, 6, 9):
        reported = room(machine.run(15, 0, services), "service")
        assert reported.available >= max(2, services / 2)
    # These came while nothing was heard of them alone.
    assert room(Machine(at_once=50).run(30, 0, services=6), "service").available > 3


@pytest.mark.slow
def test_a_class_that_is_nearly_always_awake_takes_nearly_what_one_that_always_is_takes() -> None:
    rooms = list[float]()
    for idle in (0.13, 0.15, 0.17):
        partition, rows = Partition(configured(), 0), list[Availability]()
        for second in range(30):
            listed = [pod("w", "writer", 0.05, 1e8, io_pressure=0.95 - idle, cpu_pressure=0.0)]
            block = usage("n", second + 1, listed, system_cpu_cores=0.1, ages=[100])
            sample = sampled("n", second, 0.15, 2e9, 1)
            rows += rows_of(partition.fold([stored(block), stored(sample)])[0])
        rooms.append(room(rows[-1], "writer").available + 1)
    assert max(rooms) < 2 * min(rooms)


@pytest.mark.slow
def test_what_a_node_waits_for_does_not_depend_on_whom_it_is_folded_with() -> None:
    apart, together = (Partition(configured(), 0) for _ in range(2))
    rows: list[list[Availability]] = []
    for partition, size in ((apart, 1), (together, 4)):
        reported = list[Availability]()
        for second in range(30):
            messages = []
            for node, waits in (("always", 0.6), ("later", 0.0 if second < 20 else 0.6)):
                listed = [pod("w", "writer", 0.2, 1e8, io_pressure=waits, cpu_pressure=0.0)]
                block = usage(node, second + 1, listed, system_cpu_cores=0.1, ages=[100])
                messages += [stored(block), stored(sampled(node, second, 0.3, 2e9, 1))]
            messages.sort(key=lambda message: "samples" in message[0])
            for begin in range(0, len(messages), size):
                reported += rows_of(partition.fold(messages[begin : begin + size])[0])
        rows.append(reported)
    assert rows[0] == rows[1]


def test_a_full_disk_outlives_a_restart() -> None:
    machine, other = Machine(at_once=1), Partition(configured(), 0)
    machine.run(30, 3)
    other.restore(machine.partition.snapshot())
    machine.partition = other
    assert room(machine.run(1, 3), "writer").available == 0


def test_what_pods_wait_for_bounds_no_more_at_once_where_a_noisy_mean_crosses_a_threshold() -> None:
    """From 0.0199 to 0.0201 of a second, room fell from as many as the node may run to seven."""
    free = list[float]()
    for blocked in (0.0095, 0.0105, 0.0199, 0.0201, 0.0295, 0.0305):
        state = disk.init(1, 1)._replace(
            blocked=np.full((1, 1), blocked), cores=np.full((1, 1), 0.01), seconds=np.full((1, 1), 60.0)
        )
        law = disk.law(state, np.full((1, 1), 20.0), np.full(1, 2.0), 1)
        free.append(1.0 if law is None else float(law.free[0, 0]))
    assert np.abs(np.diff(free)[::2]).max() < 0.1
    assert free[0] == 1.0
    assert free[-1] < 0.2
