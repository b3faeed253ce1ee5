"""Usage of pods, read from cgroup trees as kernels lay them out, built in a folder, on virtual time."""

import resource
import shutil
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from producers import clock as grid
from producers import file
from producers.containers.sources.source import Identity
from producers.pods import usage
from schemas import codec
from schemas.messages.telemetry import MAXIMUM_PODS, PodUsageBlock
from tests.support.machine import MIB, POD, UID, Host, Rig, container, lines

SYSTEMD_POD = f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice"


def count(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


@pytest.mark.parametrize("path", [POD, SYSTEMD_POD])
def test_a_pods_usage_is_what_its_counters_grew_by_over_the_time_that_has_passed(host: Host, path: str) -> None:
    rig = Rig(host)
    inner = [f"{path}/{container(n)}" for n in (1, 2)]
    for each in (path, *inner):
        host.set(each, cpu=10, memory=500 * MIB, inactive=100 * MIB, pressures=(1, 2, 3))
    assert rig.read() is None
    host.set(path, cpu=11, memory=600 * MIB, inactive=150 * MIB, pressures=(1.5, 2.25, 3.125))
    line = lines(rig.block(2))[UID]
    assert (line["cpu_cores"], line["memory_bytes"], line["containers"]) == (0.5, 450 * MIB, 1)
    waited = (0.25, 0.125, 0.0625) if host.layout in ("v2", "hybrid") else (None, None, None)
    assert (line["cpu_pressure"], line["memory_pressure"], line["io_pressure"]) == waited
    assert line["throttled"] is None


def test_a_block_says_when_it_was_read_and_over_how_long(host: Host) -> None:
    rig = Rig(host)
    rig.read(0.85)
    block = rig.block(1.25)
    assert (block.node, block.boot, block.seq) == ("n", "b", 102)
    assert (block.span_us, block.at_us) == (1_250_000, host.realtime() // 1000)


def test_a_container_outside_a_pod_is_a_pod_of_its_own(host: Host) -> None:
    host.set(f"docker/{container(7)}", cpu=1)
    rig = Rig(host)
    rig.read()
    host.set(f"docker/{container(7)}", cpu=1.5)
    assert lines(rig.block())[container(7)]["cpu_cores"] == 0.5


def test_containers_of_a_pod_outside_its_cgroup_are_added_up(modern: Host) -> None:
    name = f"system.slice/containerd.service/kubepods-burstable-pod{UID.replace('-', '_')}.slice:cri-containerd:"
    rig = Rig(modern)
    for n in range(3):
        modern.set(f"{name}{container(n)}", cpu=n)
    rig.read()
    for n in range(3):
        modern.set(f"{name}{container(n)}", cpu=n + 0.1, pressures=(n / 10, 0, 0))
    line = lines(rig.block())[UID]
    assert (line["cpu_cores"], line["memory_bytes"]) == (pytest.approx(0.3), 240 * MIB)
    assert (line["cpu_pressure"], line["containers"]) == (0.2, 2)


STRAY = f"system.slice/containerd.service/kubepods-burstable-pod{UID.replace('-', '_')}.slice:cri-containerd:"


def test_what_a_pod_used_before_one_of_its_containers_came_or_went_is_no_usage_of_this_second(modern: Host) -> None:
    old, other = f"{STRAY}{container(0)}", f"{STRAY}{container(1)}"
    rig = Rig(modern)
    modern.set(old, cpu=3600, pressures=(60, 0, 0))
    rig.read()
    modern.set(old, cpu=3600.1, pressures=(60.1, 0, 0))
    modern.set(other, cpu=0.2)  # began since
    line = lines(rig.block())[UID]
    assert (line["cpu_cores"], line["cpu_pressure"]) == (pytest.approx(0.3), pytest.approx(0.1))
    modern.set(old, cpu=3600.2, pressures=(60.2, 0, 0))
    modern.sleep(1)
    rig.census.take()
    for file_ in (modern.root / other).iterdir():
        file_.write_text("")  # ended since it was listed: the kernel reads nothing from the files of a removed cgroup
    modern.remove(other)
    block = rig.reader.read(modern.now // grid.SECOND)
    assert block is not None
    line = lines(codec.decode(PodUsageBlock, block[1]))[UID]
    assert (line["cpu_cores"], line["cpu_pressure"]) == (pytest.approx(0.1), pytest.approx(0.1))
    modern.set(old, cpu=3600.4)
    assert lines(rig.block())[UID]["cpu_cores"] == pytest.approx(0.2)


def test_a_pod_with_a_container_in_its_cgroup_and_one_outside_of_it_uses_what_both_do(modern: Host) -> None:
    inner, other = f"{SYSTEMD_POD}/{container(0)}", f"{STRAY}{container(1)}"
    rig = Rig(modern)
    for path in (SYSTEMD_POD, inner, other):
        modern.set(path, cpu=10)
    rig.read()
    for path in (SYSTEMD_POD, inner, other):
        modern.set(path, cpu=10.25)
    line = lines(rig.block())[UID]
    assert (line["cpu_cores"], line["memory_bytes"], line["containers"]) == (0.5, 160 * MIB, 1)


def test_a_pod_that_has_gone_between_listing_and_reading_is_left_out_and_counted(host: Host) -> None:
    for n in (1, 2):
        host.set(f"docker/{container(n)}", cpu=1)
    rig = Rig(host)
    rig.read()
    before = count("spazio_container_vanished_total", source="usage")
    host.sleep(1)
    rig.census.take()
    host.remove(f"docker/{container(2)}")
    rig.reader._gauges.clear()  # a folder lets kept files be read on; the kernel does not
    block = rig.reader.read(host.now // grid.SECOND)
    assert block is not None
    assert codec.decode(PodUsageBlock, block[1]).pods == [container(1)]
    assert count("spazio_container_vanished_total", source="usage") == before + 1
    assert rig.block().pods == [container(1)]


def test_a_file_of_garbage_costs_its_pod_alone(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    for n in (1, 2):
        host.set(f"docker/{container(n)}", cpu=1)
    rig = Rig(host)
    rig.read()
    before = count("spazio_source_failures_total", source="usage")
    host.spoil(f"docker/{container(2)}")
    assert [rig.block().pods for _ in range(2)] == [[container(1)]] * 2
    assert count("spazio_source_failures_total", source="usage") >= before + 2
    assert [record.message for record in caplog.records] == ["usage.unreadable"]
    host.set(f"docker/{container(2)}", cpu=2)
    assert sorted(rig.block().pods) == [container(1), container(2)]


def test_a_controller_that_is_not_there_is_not_known_until_it_is_switched_on(modern: Host) -> None:
    path = f"docker/{container(1)}"
    modern.set(path, cpu=1)
    (modern.root / path / "memory.current").unlink()
    rig = Rig(modern)
    rig.read()
    assert lines(rig.block())[container(1)]["memory_bytes"] is None
    modern.set(path, cpu=2, memory=30 * MIB, inactive=10 * MIB)
    blocks = []
    for second in range(12):
        modern.set(path, cpu=3 + second, memory=30 * MIB, inactive=10 * MIB)
        blocks.append(lines(rig.block())[container(1)]["memory_bytes"])
    assert blocks[-1] == 20 * MIB


def test_inactive_pages_are_looked_at_when_usage_moves_and_at_every_other_reading(modern: Host) -> None:
    path, rig = f"docker/{container(1)}", Rig(modern)
    modern.set(path, cpu=0, memory=1000 * MIB, inactive=100 * MIB)
    rig.read()
    sizes = []
    for second in range(1, 4):
        modern.set(path, cpu=second, memory=1000 * MIB, inactive=300 * MIB)
        sizes.append(lines(rig.block())[container(1)]["memory_bytes"])
    assert sizes[1:] == [700 * MIB] * 2
    for second, moved in ((4, 10), (5, 20)):
        modern.set(path, cpu=second, memory=(1000 + moved) * MIB, inactive=(300 - moved) * MIB)
        assert lines(rig.block())[container(1)]["memory_bytes"] == (700 + 2 * moved) * MIB


def test_a_pod_in_which_nothing_runs_is_looked_at_in_full_every_fifth_reading_and_when_it_runs_again(
    modern: Host,
) -> None:
    path, rig = f"docker/{container(1)}", Rig(modern)
    modern.set(path, cpu=1)
    for _ in range(3):
        rig.read()
    modern.set(path, cpu=1, memory=50 * MIB, inactive=0)
    assert [lines(rig.block())[container(1)]["memory_bytes"] for _ in range(5)][-1] == 50 * MIB
    modern.set(path, cpu=1.5, memory=60 * MIB, inactive=0, pressures=(0.5, 0.25, 0.125))
    line = lines(rig.block())[container(1)]
    assert (line["cpu_cores"], line["memory_bytes"], line["cpu_pressure"]) == (0.5, 60 * MIB, 0.5)


@pytest.mark.parametrize("phase", range(5))
def test_a_pod_that_waits_without_running_waits_for_the_share_of_time_that_it_does(modern: Host, phase: int) -> None:
    path, rig = f"docker/{container(1)}", Rig(modern)
    modern.set(path, cpu=1, pressures=(1, 1, 1))
    for _ in range(8 + phase):
        rig.read()
    waits = []
    for second in range(1, 9):
        modern.set(path, cpu=1, pressures=(1 + 0.6 * second, 1, 1 + 0.2 * second))
        line = lines(rig.block())[container(1)]
        waits.append((line["cpu_pressure"], line["io_pressure"]))
    noticed = next(number for number, wait in enumerate(waits) if wait > (0, 0))
    assert noticed < 5
    assert waits[noticed] == pytest.approx((0.6 * (noticed + 1) / 5, 0.2 * (noticed + 1) / 5)), "over five seconds"
    assert waits[:noticed] == [(0, 0)] * noticed
    assert waits[noticed + 1 :] == [(0.6, 0.2)] * (7 - noticed)


def test_names_come_from_the_source_that_knows_them(host: Host) -> None:
    identities = {
        UID: Identity(container(1), pod=UID, namespace="shop", name="web-0", workload="shop/web"),
        container(7): Identity(container(7), container_name="db", workload="proj/db"),
    }
    host.set(POD)
    host.set(f"{POD}/{container(1)}")
    host.set(f"{POD}/{container(2)}")
    host.set(f"docker/{container(7)}")
    host.set(f"docker/{container(8)}")
    rig = Rig(host, identities.get)
    rig.read()
    rows = lines(rig.block())
    assert [rows[UID][name] for name in ("namespaces", "names", "workloads")] == ["shop", "web-0", "shop/web"]
    assert [rows[container(7)][name] for name in ("namespaces", "names", "workloads")] == [None, "db", "proj/db"]
    assert [rows[container(8)][name] for name in ("namespaces", "names", "workloads")] == [None, None, None]


def test_kinds_are_reported_once_a_pod_declares_one(host: Host) -> None:
    fields = {container(7): Identity(container(7), container_name="db", workload="proj/db")}
    host.set(f"docker/{container(7)}")
    host.set(f"docker/{container(8)}")
    rig = Rig(host, fields.get)
    rig.read()
    assert rig.block().kinds is None
    fields[container(8)] = Identity(container(8), container_name="job", kind="batch")
    block = rig.block()
    assert dict(zip(block.pods, block.kinds or (), strict=True)) == {container(7): None, container(8): "batch"}


def test_more_pods_than_a_message_may_hold_are_logged_once_and_the_first_are_reported(
    modern: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(usage, "MAXIMUM_PODS", 3)
    for n in range(5):
        modern.set(f"docker/{container(n)}")
    rig = Rig(modern)
    rig.read()
    assert [len(rig.block().pods) for _ in range(2)] == [3, 3]
    assert [record.message for record in caplog.records] == ["usage.truncated"]
    assert MAXIMUM_PODS == 2048


def test_files_beyond_those_that_may_stay_open_are_opened_at_each_reading(host: Host) -> None:
    for n in range(40):
        host.set(f"docker/{container(n)}", cpu=1, quota=True)
    rig = Rig(host, descriptors=usage._RESERVE + 50)
    before = len(list(Path("/proc/self/fd").iterdir()))
    rig.read()
    for n in range(40):
        host.set(f"docker/{container(n)}", cpu=1 + n / 100, quota=True)
    block = rig.block()
    assert len(list(Path("/proc/self/fd").iterdir())) - before < 70
    assert {pod: line["cpu_cores"] for pod, line in lines(block).items()} == {
        container(n): pytest.approx(n / 100) for n in range(40)
    }


def test_the_number_of_open_files_is_raised_as_far_as_it_may_be() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        assert file.allow_descriptors() >= min(hard, 512)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_without_a_cgroup_tree_there_is_nothing_to_tell(tmp_path: Path) -> None:
    host = Host(tmp_path, "v2")
    shutil.rmtree(host.root)
    rig = Rig(host)
    assert [rig.read() for _ in range(3)] == [None] * 3
