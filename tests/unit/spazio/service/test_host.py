"""Checks of the machine itself, each against files, sockets and clocks made for it."""

import shutil
import socket
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest

from producers import clock as grid
from schemas import settings as all_settings
from schemas.sections.measurement import CONTAINER_SOURCES, Sample
from schemas.settings import Settings
from spazio.service import host
from spazio.service.host import Finding

FROZEN = Path(__file__).parents[2] / "proc" / "a"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    copied = Path(shutil.copytree(FROZEN, tmp_path / "proc"))
    (copied / "sys/fs/inotify").mkdir(parents=True)
    (copied / "sys/fs/inotify/max_user_watches").write_text("65536\n")
    return copied


def given(folder: Path, **flags: str) -> Settings:
    """Return settings of a data folder that need not exist."""
    return all_settings.load({"data_dir": str(folder), **flags}, environ={})


def text(finding: Finding) -> str:
    """Hold a finding that is not ok against what it owes the reader; return all its words."""
    assert finding.ok is not True
    assert finding.detail
    assert finding.cost
    assert finding.remedy
    return f"{finding.detail} {finding.cost} {finding.remedy}"


def test_a_machine_that_can_be_measured_tells_its_size(proc: Path) -> None:
    finding = host.machine(Sample(proc=proc))
    assert finding.ok is True
    assert "4 CPUs" in finding.detail


@pytest.mark.parametrize(
    ("name", "ok"),
    [("stat", False), ("meminfo", False), ("sys/kernel/random/boot_id", False), ("diskstats", None), ("loadavg", None)],
)
def test_a_file_that_blocks_cannot_be_without_is_broken_and_any_other_lacks(
    proc: Path, name: str, ok: bool | None
) -> None:
    (proc / name).unlink()
    finding = host.machine(Sample(proc=proc))
    assert finding.ok is ok
    assert "--sample-proc" in text(finding)


def test_a_garbled_file_is_a_finding(proc: Path) -> None:
    (proc / "stat").write_bytes(b"gibberish\n")
    assert host.machine(Sample(proc=proc)).ok is False


def test_a_kernel_without_psi_lacks_it_and_the_boot_option_is_named(proc: Path) -> None:
    assert host.stalls(proc).ok is True
    (proc / "pressure" / "io").unlink()
    assert "of io" in text(host.stalls(proc))
    shutil.rmtree(proc / "pressure")
    finding = host.stalls(proc)
    assert finding.ok is None
    assert "of cpu, memory, io" in finding.detail
    assert "utilisation" in finding.cost
    assert "psi=1" in finding.remedy


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (["unified/docker/" + 64 * "a", "pids", "memory"], "hybrid"),
        (["pids/docker/" + 64 * "a", "memory"], "version 1"),
        (["cgroup.controllers", "docker/" + 64 * "a"], "version 2"),
    ],
)
def test_the_cgroup_version_is_reported_with_the_containers_in_it(
    proc: Path, tmp_path: Path, folders: list[str], expected: str
) -> None:
    for folder in folders:
        (tmp_path / "cgroup" / folder).mkdir(parents=True)
    finding = host.cgroups(tmp_path / "cgroup", proc)
    assert finding.ok is True
    assert finding.detail.startswith(expected)
    assert "1 running" in finding.detail


def test_without_a_cgroup_tree_pods_are_not_counted(proc: Path, tmp_path: Path) -> None:
    finding = host.cgroups(tmp_path / "none", proc)
    assert finding.ok is None
    assert "--sample-cgroup" in text(finding)


def settings_of(folder: Path, containers: str = "auto") -> Settings:
    """Return settings under which every container source is looked for in one folder."""
    return given(
        folder / "data",
        containers=containers,
        sample_cgroup=str(folder / "cgroup"),
        runtime_bundles=str(folder / "bundles"),
        runtime_docker_socket=str(folder / "docker.sock"),
        runtime_containerd_socket=str(folder / "containerd.sock"),
    )


def test_no_container_runtime_is_well_but_no_cgroup_tree_is_not(tmp_path: Path) -> None:
    findings = {name: host.containers(name, settings_of(tmp_path)) for name in CONTAINER_SOURCES}
    assert {name: finding.ok for name, finding in findings.items()} == {
        "cgroup": None,
        "bundle": True,
        "docker": True,
        "containerd": True,
    }
    assert "--sample-cgroup" in text(findings["cgroup"])
    assert findings["docker"].detail == f"not used: no socket {tmp_path / 'docker.sock'}"


def test_a_runtime_that_listens_is_used_and_its_use_is_reported(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "docker.sock"))
        listener.listen()
        assert host.containers("docker", settings_of(tmp_path)).detail.startswith("used: ")
        other = host.containers("docker", settings_of(tmp_path, "cgroup"))
    assert other.ok is True
    assert other.detail.startswith("not used: ")


def test_a_runtime_that_cannot_be_reached_lacks_and_is_broken_if_it_was_named(tmp_path: Path) -> None:
    (tmp_path / "docker.sock").mkdir()  # what docker makes of a bind mount whose source is missing
    finding = host.containers("docker", settings_of(tmp_path))
    assert finding.ok is None
    assert "cannot be reached" in text(finding)
    assert host.containers("docker", settings_of(tmp_path, "cgroup")).ok is True
    assert host.containers("docker", settings_of(tmp_path, "cgroup,docker")).ok is False


def test_a_source_that_was_named_and_is_not_there_is_broken(tmp_path: Path) -> None:
    finding = host.containers("containerd", settings_of(tmp_path, "containerd"))
    assert finding.ok is False
    assert "--runtime-containerd-socket" in text(finding)


def test_a_runtime_that_refuses_this_user_lacks(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "docker.sock"))
        listener.listen()
        (tmp_path / "docker.sock").chmod(0)
        request.getfixturevalue("unprivileged")
        finding = host.containers("docker", settings_of(tmp_path))
    assert finding.ok is None
    assert "Permission denied" in text(finding)


def test_few_inotify_watches_lack(proc: Path) -> None:
    assert host.permissions(proc).ok is True
    (proc / "sys/fs/inotify/max_user_watches").write_text("128\n")
    assert "128" in text(host.permissions(proc))
    (proc / "sys/fs/inotify/max_user_watches").unlink()
    assert "unknown" in text(host.permissions(proc))


class Clock(grid.System):
    """A wall clock that stands at a given second, on a kernel with or without CLOCK_BOOTTIME."""

    def __init__(self, now: int, *, boottime: bool = True) -> None:
        self._now, self._boottime = now, boottime

    def boottime(self) -> int:
        if not self._boottime:
            raise OSError(22, "Invalid argument")
        return 7200 * grid.SECOND

    def realtime(self) -> int:
        return self._now * grid.SECOND


def test_a_clock_that_stands_in_the_past_or_lacks_boottime_is_broken() -> None:
    finding = host.clock(Clock(1_800_000_000))
    assert finding.ok is True
    assert "2.0 hours" in finding.detail
    for wrong in (Clock(86_400), Clock(1_800_000_000, boottime=False)):
        finding = host.clock(wrong)
        assert finding.ok is False
        text(finding)


def test_a_package_that_is_not_installed_lacks_and_its_use_is_reported() -> None:
    def version(name: str) -> str:
        if name in ("numpy", "polars"):
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    assert host.packages(lambda _: "1.0").ok is True
    finding = host.packages(version)
    assert finding.ok is None
    assert finding.remedy == "pip install numpy polars"
    assert "processors" in finding.cost


def test_a_data_folder_is_tried_without_being_made(tmp_path: Path) -> None:
    finding = host.data_folder(given(tmp_path / "a" / "b"))
    assert finding.ok is True
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("check", [host.data_folder, host.history])
def test_a_folder_that_cannot_be_written_is_broken(tmp_path: Path, check: Callable[[Settings], Finding]) -> None:
    (tmp_path / "file").touch()
    finding = check(given(tmp_path / "file"))
    assert finding.ok is False
    assert "-dir" in text(finding)


def test_a_read_only_folder_is_broken(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    tmp_path.chmod(0o555)
    request.getfixturevalue("unprivileged")
    assert "Permission denied" in text(host.data_folder(given(tmp_path)))


def test_a_data_folder_without_room_is_broken(tmp_path: Path) -> None:
    finding = host.data_folder(given(tmp_path, data_min_free_bytes=str(1 << 60)))
    assert finding.ok is False
    assert "MiB are needed" in text(finding)


def test_a_history_is_lacking_until_its_views_are_there(tmp_path: Path) -> None:
    assert host.history(given(tmp_path)).ok is None
    (tmp_path / "history").mkdir()
    (tmp_path / "history" / "history.duckdb").touch()
    assert host.history(given(tmp_path)).ok is True
