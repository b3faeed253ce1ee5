"""Trees of both versions, trees that vanish, and cgroups that a killed runtime left behind."""

import os
from pathlib import Path

import pytest

from producers.pods import cgroup
from producers.pods.census import Census
from tests.unit.producers.pods.trees import UIDS, Counter, container, make, systemd_pod


def test_in_a_hybrid_tree_the_unified_one_is_read_if_it_has_containers(tmp_path: Path) -> None:
    make(tmp_path, f"unified/docker/{container(1)}", f"unified/docker/{container(2)}", f"pids/docker/{container(1)}")
    assert Counter(tmp_path)() == 2


def test_in_a_hybrid_tree_a_controller_is_read_if_the_unified_one_has_none(tmp_path: Path) -> None:
    make(tmp_path, "unified/system.slice", f"memory/docker/{container(1)}", f"pids/docker/{container(1)}")
    count = Counter(tmp_path)
    assert count() == 1
    make(tmp_path, f"pids/docker/{container(2)}")
    assert count() == 2


def test_in_a_hybrid_tree_what_only_a_controller_has_counts_too(tmp_path: Path) -> None:
    both, alone = (f"docker/{container(n)}" for n in (1, 2))
    make(tmp_path, f"unified/{both}", f"pids/{both}", f"pids/{alone}", f"unified/kubepods/pod{UIDS[0]}")
    make(tmp_path, f"pids/kubepods/pod{UIDS[0]}/{container(3)}", f"unified/kubepods/pod{UIDS[1]}/{container(4)}")
    account = Census(tmp_path, tmp_path / "no-proc").take()
    assert account is not None
    legacy = {pod.key: pod.legacy for pod in account.pods}
    assert legacy == {container(1): False, container(2): True, UIDS[0]: True, UIDS[1]: False}
    assert account.idle == []


def test_in_a_hybrid_tree_what_a_controller_has_longer_or_earlier_does_not_count_for_a_moment(tmp_path: Path) -> None:
    make(tmp_path, f"unified/docker/{container(1)}", f"unified/docker/{container(2)}", f"pids/docker/{container(2)}")
    count = Counter(tmp_path)
    assert count() == 2
    (tmp_path / f"unified/docker/{container(2)}").rmdir()
    assert count() == 1, "it ends"
    (tmp_path / f"pids/docker/{container(2)}").rmdir()
    make(tmp_path, f"pids/docker/{container(3)}")
    assert [count(), count()] == [1, 2]


def test_in_a_hybrid_tree_what_a_killed_runtime_left_in_both_is_not_counted(tmp_path: Path) -> None:
    make(tmp_path, *(f"{tree}/docker/{container(n)}" for n in range(25) for tree in ("unified", "pids")))
    count = Counter(tmp_path)
    assert count() == 25
    for n in range(5):
        (tmp_path / f"unified/docker/{container(n)}/cgroup.events").write_text("populated 0\n")
        (tmp_path / f"pids/docker/{container(n)}/pids.current").write_text("0\n")
    counts = [count() or 0 for _ in range(12)]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 20


@pytest.mark.parametrize("controller", ["pids", "memory", "cpu", "cpu,cpuacct", "systemd"])
def test_a_tree_of_version_1_is_read_through_whichever_controller_is_there(tmp_path: Path, controller: str) -> None:
    make(tmp_path, f"{controller}/docker/{container(1)}")
    assert Counter(tmp_path)() == 1


def test_without_the_controller_pids_a_pod_runs_for_as_long_as_one_of_its_containers_has_a_process(
    tmp_path: Path,
) -> None:
    pod = f"memory/kubepods/burstable/pod{UIDS[0]}"
    pause, outer = f"{pod}/{container(1)}", f"{pod}/{container(2)}"
    inner = f"{outer}/container"  # as crun makes it
    make(tmp_path, pause, inner)
    for path, processes in ((pod, ""), (pause, "6\n"), (outer, ""), (inner, "7\n")):
        (tmp_path / path / "cgroup.procs").write_text(processes)
    count = Counter(tmp_path)
    assert [count() for _ in range(10)] == [1] * 10
    for path in (pause, inner):
        (tmp_path / path / "cgroup.procs").write_text("")
    assert [count() for _ in range(10)][-1] == 0


def test_a_tree_that_vanishes_is_looked_for_again(tmp_path: Path) -> None:
    make(tmp_path, f"memory/docker/{container(1)}")
    count = Counter(tmp_path)
    assert count() == 1
    (tmp_path / "memory").rename(tmp_path / "gone")
    assert count() is None
    make(tmp_path, f"pids/docker/{container(1)}", f"pids/docker/{container(2)}")
    assert count() == 2


def test_without_a_tree_nothing_is_known_and_that_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    count = Counter(tmp_path / "none")
    assert [count(), count()] == [None, None]
    assert [record.message for record in caplog.records] == ["source.absent"]


def test_a_tree_without_containers_has_none(root: Path) -> None:
    assert Counter(root)() == 0


def test_a_tree_without_any_child_is_not_walked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "pids", "unified")
    count = Counter(tmp_path)
    assert count() == 0
    monkeypatch.delattr(os, "scandir")
    monkeypatch.setattr(cgroup, "children", lambda _: 0)
    assert count() == 0
    monkeypatch.undo()
    make(tmp_path, f"pids/docker/{container(1)}")
    assert count() == 1


@pytest.mark.parametrize(
    ("file", "empty", "full"),
    [("cgroup.events", "populated 0\nfrozen 0\n", "populated 1\nfrozen 0\n"), ("pids.current", "0\n", "3\n")],
)
def test_what_a_killed_runtime_left_behind_is_found_within_ten_walks(
    root: Path, file: str, empty: str, full: str
) -> None:
    make(root, *(f"docker/{container(n)}" for n in range(25)))
    for n in range(25):
        (root / f"docker/{container(n)}" / file).write_text(empty if n < 5 else full)
    count = Counter(root)
    assert [count() for _ in range(10)][-1] == 20
    assert count() == 20
    (root / f"docker/{container(0)}" / file).write_text(full)
    assert [count() for _ in range(10)][-1] == 21


def test_what_a_killed_runtime_left_behind_before_the_first_walk_is_never_counted(root: Path) -> None:
    make(root, *(f"docker/{container(n)}" for n in range(25)))
    for n in range(25):
        (root / f"docker/{container(n)}/pids.current").write_text("0\n" if n % 5 == 0 else "3\n")
    account = Census(root, root / "no-proc").take()
    assert account is not None
    assert {pod.key for pod in account.pods} == {container(n) for n in range(25) if n % 5}
    assert {pod.key for pod in account.idle} == {container(n) for n in range(0, 25, 5)}


def test_a_pod_without_a_container_is_there_but_idle(root: Path) -> None:
    pod = f"kubepods/burstable/pod{UIDS[0]}"
    make(root, pod)
    census = Census(root, root / "no-proc", clock=iter(range(1, 99)).__next__)
    first = census.take()
    make(root, f"{pod}/{container(1)}")
    second = census.take()
    assert first is not None
    assert second is not None
    assert ([each.key for each in first.pods], [each.key for each in first.idle]) == ([], [UIDS[0]])
    assert ([each.key for each in second.pods], [each.key for each in second.idle]) == ([UIDS[0]], [])


def test_a_file_system_that_does_not_count_children_is_walked_all_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "children", lambda _: -1)
    pod = systemd_pod(UIDS[0])
    make(root, *(f"{pod}/cri-containerd-{container(n)}.scope" for n in range(2)))
    count = Counter(root)
    assert count() == 1
    (root / pod / f"cri-containerd-{container(1)}.scope").rmdir()
    assert count() == 0
