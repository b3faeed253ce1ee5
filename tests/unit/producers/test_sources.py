"""Sources against a frozen /proc of two moments, 0.1 s apart; the expected numbers are worked out by hand."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from producers import cpu, disk, inventory, memory, network, pressure, source
from schemas import metric
from schemas.sections.measurement import Sample
from tests.unit.producers.rig import FROZEN, A, B, Rig, edit, failures, near, put


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """Permissions bind root only when it steps down."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


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


def test_a_kernel_without_psi_is_reported_once_and_is_no_failure(proc: Path, caplog: pytest.LogCaptureFixture) -> None:
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
