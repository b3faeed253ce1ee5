"""Sources against a frozen /proc of two moments, 0.1 s apart; the expected numbers are worked out by hand."""

import errno
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from producers import cpu, disk, file, inventory, load, memory, network, pressure, source
from schemas import metric
from schemas.sections.measurement import Sample

FROZEN = Path(__file__).parents[1] / "proc"
A, B = 100.0, 100.1
FILES = ("stat", "meminfo", "pressure/cpu", "pressure/memory", "pressure/io", "diskstats", "1/net/dev", "loadavg")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc that stands at the first moment."""
    return Path(shutil.copytree(FROZEN / "a", tmp_path / "proc"))


def put(proc: Path, moment: str, *names: str) -> None:
    """Turn files to a moment, in place: an open descriptor sees the new content, as in the real /proc."""
    for name in names or FILES:
        (proc / name).write_bytes((FROZEN / moment / name).read_bytes())


def edit(proc: Path, name: str, pattern: str, replacement: str) -> None:
    content, count = re.subn(pattern, replacement, (proc / name).read_text(), flags=re.MULTILINE)
    assert count, f"{pattern} is not in {name}"
    (proc / name).write_text(content)


def failures(name: str) -> float:
    return REGISTRY.get_sample_value("spazio_source_failures_total", {"source": name}) or 0.0


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Permissions bind root only when it steps down."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


class Rig:
    """Sources read together and guarded, as the sampler does it."""

    def __init__(self, *sources: source.Source) -> None:
        self.sources = sources
        self.files = file.Files([item.path for item in sources if item.path is not None])
        self.guarded = [source.Guarded(item) for item in sources]

    def __call__(self, now: float) -> dict[str, source.Values]:
        contents = iter(self.files.read())
        return {
            item.name: guarded.measure(b"" if item.path is None else next(contents), now)
            for item, guarded in zip(self.sources, self.guarded, strict=True)
        }


def near(*values: float | None) -> object:
    return tuple(None if value is None else pytest.approx(value, rel=1e-9) for value in values)


GOLDEN = {
    # 40 ticks: 18 idle and 2 waiting for I/O; the 5 of guest time are among the 12 of user
    "cpu": (0.5, 3.0),
    "pressure.cpu": (30_000 / 1e5,),
    "memory": (1 - 8_192_000 / 16_384_000, 1 - (2_457_600 + 204_800 + 3_891_200) / 16_384_000),
    "pressure.memory": (10_000 / 1e5, 2_000 / 1e5),
    "pressure.io": (50_000 / 1e5, 25_000 / 1e5),
    # nvme0n1 was busy for 75 ms of 100; sda and nvme0n1 moved 200 + 800 + 1000 sectors
    "disk": (0.75, 2000 * 512 / 0.1),
    # eth0 15,000 bytes, eth1 200
    "network": (15_200 / 0.1,),
    "load": (1.31,),
}


def test_every_source_gives_the_golden_numbers(proc: Path, tmp_path: Path) -> None:
    sources = inventory.default(Sample(proc=proc, cgroup=tmp_path / "none"))
    for item in sources:
        source.read(item, A)
    put(proc, "b")
    measured = {item.name: source.read(item, B) for item in sources}
    assert measured.pop("pods") == measured.pop("throttle") == (None,)
    assert measured.keys() == GOLDEN.keys()
    for name, expected in GOLDEN.items():
        assert measured[name] == near(*expected), name


def test_sources_give_the_metrics_of_the_table_each_once() -> None:
    given = [name for item in inventory.default(Sample()) for name in item.metrics]
    assert sorted(given) == sorted(metric.NAMES)


def test_a_first_reading_knows_levels_but_no_rates(proc: Path, tmp_path: Path) -> None:
    sources = inventory.default(Sample(proc=proc, cgroup=tmp_path))
    first = {item.name: source.read(item, A) for item in sources}
    assert first["memory"] == near(0.4, 0.5)
    assert first["cpu"] == (None, 3.0)
    assert first["load"] == (1.25,)
    for name in ("pressure.cpu", "pressure.memory", "pressure.io", "disk", "network"):
        assert set(first[name]) == {None}, name


def test_cpu_and_memory_tell_the_facts_of_a_block(proc: Path) -> None:
    for item, fact in ((cpu.Cpu(proc), {"cpus": 4}), (memory.Memory(proc), {"memory_bytes": 16_384_000 * 1024})):
        assert item.facts == {}
        source.read(item, A)
        assert item.facts == fact


def test_the_boot_is_the_kernels_own_identifier() -> None:
    assert inventory.boot_id(FROZEN / "a") == "3f2504e0-4f89-41d3-9a0c-0305e82c3301"


def test_rates_are_over_the_time_that_has_really_passed(proc: Path) -> None:
    sources: list[source.Source] = [pressure.Pressure(proc, "io"), disk.Disk(proc), network.Network(proc)]
    for item in sources:
        source.read(item, A)
    put(proc, "b")
    late = [source.read(item, A + 0.4) for item in sources]
    assert late[0] == near(0.125, 0.0625)
    assert late[1] == near(0.1875, 2000 * 512 / 0.4)
    assert late[2] == near(38_000.0)


@pytest.mark.parametrize("make", [disk.Disk, network.Network, lambda proc: pressure.Pressure(proc, "io")])
def test_a_counter_that_was_reset_gives_nothing_once_and_then_goes_on(
    proc: Path, make: Callable[[Path], source.Source]
) -> None:
    put(proc, "b")
    item = make(proc)
    source.read(item, A)
    put(proc, "a")
    assert set(source.read(item, B)) == {None}
    put(proc, "b")
    assert None not in source.read(item, B + 0.1)


def test_cpu_time_that_was_reset_gives_no_utilisation(proc: Path) -> None:
    put(proc, "b")
    item = cpu.Cpu(proc)
    source.read(item, A)
    put(proc, "a")
    assert source.read(item, B) == (None, 3.0)


def test_iowait_that_decreases_counts_as_no_growth(proc: Path) -> None:
    item = cpu.Cpu(proc)
    source.read(item, A)
    put(proc, "b")
    edit(proc, "stat", r"^(cpu  \d+ \d+ \d+ \d+) \d+", r"\1 700")
    assert source.read(item, B) == near(20 / 38, 3.0)


def test_a_cpu_that_comes_or_goes_resets_the_difference(proc: Path) -> None:
    item = cpu.Cpu(proc)
    source.read(item, A)
    put(proc, "b")
    edit(proc, "stat", r"^cpu3 .*\n", "")
    assert source.read(item, B) == (None, 3.0)
    assert item.facts == {"cpus": 3}
    edit(proc, "stat", r"^(cpu  \d+) 201 3004 500018", r"\1 205 3004 500030")
    assert source.read(item, B + 0.1) == near(4 / 16, 3.0)


def test_another_cpu_in_place_of_one_is_another_set(proc: Path) -> None:
    item = cpu.Cpu(proc)
    source.read(item, A)
    put(proc, "b")
    edit(proc, "stat", r"^cpu3 ", "cpu7 ")
    assert source.read(item, B) == (None, 3.0)


def test_a_clock_that_has_not_moved_gives_no_utilisation(proc: Path) -> None:
    item = cpu.Cpu(proc)
    source.read(item, A)
    assert source.read(item, B) == (None, 3.0)


def test_an_old_kernel_without_available_memory_gives_only_the_older_ratio(proc: Path) -> None:
    edit(proc, "meminfo", r"^MemAvailable:.*\n", "")
    assert source.read(memory.Memory(proc), A) == near(None, 0.5)


def test_an_old_kernel_without_full_for_the_cpu_is_read(proc: Path) -> None:
    item = pressure.Pressure(proc, "cpu")
    edit(proc, "pressure/cpu", r"^full.*\n", "")
    source.read(item, A)
    put(proc, "b", "pressure/cpu")
    edit(proc, "pressure/cpu", r"^full.*\n", "")
    assert source.read(item, B) == near(0.3)


def test_more_stall_than_time_is_the_whole_time(proc: Path) -> None:
    item = pressure.Pressure(proc, "io")
    source.read(item, A)
    put(proc, "b")
    assert source.read(item, A + 0.04) == near(1.0, 0.625)


def test_a_kernel_without_psi_is_said_once_and_is_no_failure(proc: Path, caplog: pytest.LogCaptureFixture) -> None:
    (proc / "pressure/io").unlink()
    before = failures("pressure.io")
    rig = Rig(pressure.Pressure(proc, "io"), memory.Memory(proc))
    for tick in range(3):
        assert rig(A + tick) == {"pressure.io": (None, None), "memory": near(0.4, 0.5)}
        rig.files.retry()
    assert failures("pressure.io") == before
    assert [record.message for record in caplog.records] == ["source.absent"]


def test_a_kernel_that_refuses_to_read_psi_has_none(proc: Path) -> None:
    before = failures("pressure.io")
    refused = OSError(errno.EOPNOTSUPP, "Operation not supported")
    assert source.Guarded(pressure.Pressure(proc, "io")).measure(refused, A) == (None, None)
    assert failures("pressure.io") == before


def test_pressure_that_may_not_be_read_is_a_failure(proc: Path) -> None:
    before = failures("pressure.io")
    assert source.Guarded(pressure.Pressure(proc, "io")).measure(PermissionError(errno.EACCES, ""), A) == (None, None)
    assert failures("pressure.io") == before + 1


def test_a_disk_that_is_plugged_in_counts_from_its_second_reading(proc: Path) -> None:
    item = disk.Disk(proc)
    edit(proc, "diskstats", r"^ *259.*\n", "")
    source.read(item, A)
    put(proc, "b")
    assert source.read(item, B) == near(0.4, 1000 * 512 / 0.1)


def test_a_machine_without_disks_has_no_disk_metrics(proc: Path) -> None:
    (proc / "diskstats").write_text("")
    item = disk.Disk(proc)
    assert source.read(item, A) == source.read(item, B) == (None, None)


@pytest.mark.parametrize(
    ("listed", "whole"),
    [
        ("vda vda1 vda15", "vda"),
        ("nvme0n1 nvme0n1p1 nvme0c0n1 nvme1n1", "nvme0n1 nvme1n1"),
        ("mmcblk0 mmcblk0p2 mmcblk0boot0", "mmcblk0 mmcblk0boot0"),
        ("xvda1 xvdb", "xvda1 xvdb"),
        ("sdp sdp1", "sdp"),
        ("md0 md0p1 dm-1 loop7 ram0 zram1 sr0 zd16 drbd0 bcache0 fd0", ""),
        ("rbd0 rbd0p1", "rbd0"),
    ],
)
def test_whole_disks_are_told_by_their_names(listed: str, whole: str) -> None:
    assert disk.whole(tuple(listed.encode().split())) == frozenset(whole.encode().split())


@pytest.mark.parametrize("name", ["eth0", "eno1", "enp3s0f1", "ens5", "wlan0", "ib0", "wwan0", "lowpan0"])
def test_physical_interfaces_count(name: str) -> None:
    assert network.counts(name.encode())


@pytest.mark.parametrize(
    "names",
    [
        "lo veth0a1b docker0 docker_gwbridge cni0 br-1a2b br0 virbr0 cali1a2b flannel.1",
        "cilium_host lxc1a2b tunl0 tap0 wg0 bond0 eth0.12 ifb1 dummy0",
        "eni4b2c1d0e9f3 azv12ab kube-ipvs0 ip6tnl0 vxlan.calico",
    ],
)
def test_interfaces_that_hand_on_packets_of_others_do_not_count(names: str) -> None:
    assert not [name for name in names.split() if network.counts(name.encode())]


def test_a_new_interface_counts_from_its_second_reading(proc: Path) -> None:
    item = network.Network(proc)
    edit(proc, "1/net/dev", r"^ *eth0:.*\n", "")
    source.read(item, A)
    put(proc, "b")
    assert source.read(item, B) == near(2000.0)


def test_without_access_to_the_hosts_network_the_own_one_is_read_and_that_is_said(
    proc: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (proc / "1/net").rename(proc / "net")
    item = network.Network(proc)
    source.read(item, A)
    (proc / "net/dev").write_bytes((FROZEN / "b/1/net/dev").read_bytes())
    assert source.read(item, B) == near(152_000.0)
    assert [record.message for record in caplog.records] == ["source.fallback"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["cut", "words", "empty line", "binary"])
def test_a_damaged_file_is_counted_and_never_a_number(proc: Path, tmp_path: Path, name: str, damage: str) -> None:
    rig = Rig(*inventory.default(Sample(proc=proc, cgroup=tmp_path)))
    content = (proc / name).read_bytes()
    (proc / name).write_bytes(
        {
            "cut": content.rstrip()[:-1],
            "words": re.sub(rb"\d+", b"many", content),
            "empty line": b"\n",
            "binary": bytes(range(256)) + b"\n",
        }[damage]
    )
    before = {item.name: failures(item.name) for item in rig.sources}
    values = rig(A)
    hit = [item.name for item in rig.sources if failures(item.name) > before[item.name]]
    assert len(hit) == 1
    assert set(values[hit[0]]) == {None}
    assert None not in values["memory" if hit != ["memory"] else "load"]


@pytest.mark.parametrize("text", ["nan 0 0 1/2 3\n", "inf 0 0 1/2 3\n", "-1 0 0 1/2 3\n"])
def test_a_load_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is impossible"):
        load.parse(text.encode())


def test_a_list_of_interfaces_that_outgrows_a_page_is_measured_whole(proc: Path) -> None:
    rig = Rig(network.Network(proc), memory.Memory(proc))
    rig(A)
    put(proc, "b")
    added = "".join(f"veth{n:04x}: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n" for n in range(500))
    (proc / "1/net/dev").write_text((proc / "1/net/dev").read_text() + added + " eth9: 7 0 0 0 0 0 0 0 0 0 0\n")
    assert rig(B)["network"] == near(152_000.0)
    (proc / "1/net/dev").write_text((proc / "1/net/dev").read_text().replace("eth9: 7 ", "eth9: 9 "))
    assert rig(B + 0.1) == {"network": near(20.0), "memory": near(0.5, 0.6)}


def test_a_vanished_file_is_said_once_and_its_return_is_said(proc: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    rig = Rig(memory.Memory(proc))
    assert rig(A) == {"memory": near(0.4, 0.5)}
    before = failures("memory")
    (proc / "meminfo").write_text("")  # what an open descriptor sees of a file that has gone
    (proc / "meminfo").unlink()
    for _ in range(3):
        assert rig(A) == {"memory": (None, None)}
    assert failures("memory") == before + 3
    put(proc, "a", "meminfo")
    rig.files.retry()
    assert rig(B) == {"memory": near(0.4, 0.5)}
    assert [record.message for record in caplog.records] == ["source.failed", "source.recovered"]


def test_a_file_that_may_not_be_read_is_a_failure_and_not_an_end(proc: Path, request: pytest.FixtureRequest) -> None:
    rig = Rig(memory.Memory(proc), load.Load(proc), disk.Disk(proc))
    (proc / "meminfo").write_text("")
    rig(A)
    (proc / "meminfo").chmod(0)
    request.getfixturevalue("unprivileged")
    rig.files.retry()
    before = failures("memory")
    assert rig(B) == {"memory": (None, None), "load": (1.25,), "disk": (0.0, 0.0)}
    assert failures("memory") == before + 1


def test_what_one_source_raises_harms_no_other(proc: Path) -> None:
    class Broken(memory.Memory):
        name = "broken"

        def measure(self, content: bytes, now: float) -> source.Values:
            raise RuntimeError("never thought of")

    assert Rig(Broken(proc), load.Load(proc))(A) == {"broken": (None, None), "load": (1.25,)}


def test_a_source_with_too_few_values_does_not_shift_the_columns(proc: Path) -> None:
    class Short(load.Load):
        name = "short"

        def measure(self, content: bytes, now: float) -> source.Values:
            return super().measure(content, now)[:0]

    assert Rig(Short(proc))(A) == {"short": (None,)}
    assert failures("short") == 1
