"""Counting pods in cgroup trees as runtimes lay them out, built in a folder."""

import os
from pathlib import Path

import pytest

from producers import source
from producers.pods import cgroup, pod_count
from producers.pods.census import Census

UIDS = [f"{n:08x}-1b2c-4d3e-8f40-{n:012x}" for n in range(1, 9)]
STATIC = "8f1c0d9e7b6a54433221100ffeeddcca"


def container(n: int) -> str:
    return f"{n:064x}"


def make(tree: Path, *paths: str) -> None:
    for path in paths:
        (tree / path).mkdir(parents=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A cgroup tree of version 2 with the usual services in it."""
    tree = tmp_path / "cgroup"
    make(tree, "system.slice/sshd.service", "system.slice/var-lib.mount", "user.slice/user-0.slice/session-1.scope")
    (tree / "cgroup.controllers").write_text("cpu memory pids\n")
    return tree


class Counter:
    """Counts again at each call, a second later."""

    def __init__(self, root: Path, proc: Path | None = None) -> None:
        self.now = 0.0
        self.census = Census(root, proc or root / "no-proc", clock=lambda: self.now)
        self.source = pod_count.Pods(self.census)

    def __call__(self) -> float | None:
        self.now += 1
        return source.read(self.source, self.now)[0]


def systemd_pod(uid: str, quality: str = "-burstable") -> str:
    escaped = uid.replace("-", "_")
    middle = f"kubepods{quality}.slice/" if quality else ""
    return f"kubepods.slice/{middle}kubepods{quality}-pod{escaped}.slice"


def test_a_pod_counts_one_however_many_containers_it_has(root: Path) -> None:
    make(root, *(f"kubepods/burstable/pod{UIDS[0]}/{container(n)}" for n in range(4)))
    make(root, *(f"kubepods/pod{UIDS[1]}/{container(n)}" for n in range(10, 12)))
    make(root, *(f"kubepods/besteffort/pod{STATIC}/{container(n)}" for n in range(20, 22)))
    assert Counter(root)() == 3


def test_pods_of_the_systemd_driver_are_counted(root: Path) -> None:
    for uid, quality in zip(UIDS, ("-burstable", "-besteffort", ""), strict=False):
        pod = systemd_pod(uid, quality)
        make(root, *(f"{pod}/cri-containerd-{container(n)}.scope" for n in range(2)))
    assert Counter(root)() == 3


def test_pods_below_another_cgroup_root_are_counted(root: Path) -> None:
    escaped = UIDS[0].replace("-", "_")
    pod = (
        f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{escaped}"
    )
    make(root, *(f"{pod}.slice/cri-containerd-{container(n)}.scope" for n in range(2)))
    assert Counter(root)() == 1


@pytest.mark.parametrize(
    "path",
    [
        "docker/{}",
        "system.slice/docker-{}.scope",
        "machine.slice/libpod-{}.scope",
        "machine.slice/libpod-{}.scope/container",
        "user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{}.scope",
        "libpod_parent/libpod-{}",
        "system.slice/nerdctl-{}.scope",
        "default/{}",
        "system.slice/crio-{}.scope",
    ],
)
def test_a_container_outside_a_pod_counts_one(root: Path, path: str) -> None:
    make(root, path.format(container(1)), path.format(container(2)))
    assert Counter(root)() == 2


@pytest.mark.parametrize(
    "path",
    [
        f"system.slice/crio-conmon-{container(1)}.scope",
        f"machine.slice/libpod-conmon-{container(1)}.scope",
        f"system.slice/var-lib-docker-overlay2-{container(1)}-merged.mount",
        f"system.slice/{container(1)}.service",
        "docker/buildkit/x1y2z3",
        f"kubepods/burstable/pod{UIDS[0]}",
        "process_api/305d6b99ffe50ff3be611da517ed343b",
    ],
)
def test_what_is_no_container_is_not_counted(root: Path, path: str) -> None:
    make(root, path)
    assert Counter(root)() == 0


def test_a_pause_container_alone_does_not_count(root: Path) -> None:
    make(root, f"{systemd_pod(UIDS[0])}/cri-containerd-{container(1)}.scope")
    make(root, f"kubepods/burstable/pod{UIDS[1]}/{container(2)}")
    assert Counter(root)() == 0


def test_a_pod_counts_from_its_first_container_to_its_last(root: Path) -> None:
    pod = systemd_pod(UIDS[0])
    count = Counter(root)
    make(root, f"{pod}/cri-containerd-{container(1)}.scope")
    assert count() == 0
    make(root, f"{pod}/cri-containerd-{container(2)}.scope")
    assert count() == 1
    (root / pod / f"cri-containerd-{container(2)}.scope").rmdir()
    assert count() == 0


def test_a_crio_pod_without_a_pause_container_counts_one(root: Path) -> None:
    pod = systemd_pod(UIDS[0])
    make(root, f"{pod}/crio-{container(1)}.scope", f"{pod}/crio-conmon-{container(1)}.scope")
    assert Counter(root)() == 1


@pytest.mark.parametrize(
    ("runtime", "command", "expected"),
    [
        ("crio", "pause", 0),
        ("crio", "nginx", 1),
        ("cri-containerd", "pause", 0),
        ("cri-containerd", "runc:[2:INIT]", 0),
        ("cri-containerd", "runsc-sandbox", 1),
    ],
)
def test_the_process_of_a_single_container_tells_whether_it_is_a_pause(
    root: Path, tmp_path: Path, runtime: str, command: str, expected: int
) -> None:
    scope = f"{systemd_pod(UIDS[0])}/{runtime}-{container(1)}.scope"
    make(root, scope)
    (root / scope / "cgroup.procs").write_text("4711\n4712\n")
    make(tmp_path, "proc/4711")
    (tmp_path / "proc/4711/comm").write_text(f"{command}\n")
    assert Counter(root, tmp_path / "proc")() == expected


def test_a_container_that_was_being_made_is_looked_at_again(root: Path, tmp_path: Path) -> None:
    scope = f"{systemd_pod(UIDS[0])}/crio-{container(1)}.scope"
    make(root, scope)
    make(tmp_path, "proc/4711")
    (root / scope / "cgroup.procs").write_text("4711\n")
    (tmp_path / "proc/4711/comm").write_text("runc:[2:INIT]\n")
    count = Counter(root, tmp_path / "proc")
    assert count() == 0
    (tmp_path / "proc/4711/comm").write_text("python3\n")
    assert count() == 1


def test_a_process_in_another_pid_namespace_leaves_the_verdict_to_the_runtime(root: Path) -> None:
    for n, runtime in enumerate(("crio", "cri-containerd")):
        scope = f"{systemd_pod(UIDS[n])}/{runtime}-{container(n)}.scope"
        make(root, scope)
        (root / scope / "cgroup.procs").write_text("0\n")
    assert Counter(root)() == 1


def test_a_podman_pod_counts_one(root: Path) -> None:
    pod = f"machine.slice/machine-libpod_pod_{container(7)}.slice"
    make(root, *(f"{pod}/libpod-{container(n)}.scope" for n in range(3)))
    assert Counter(root)() == 1


def test_containers_of_a_pod_outside_its_cgroup_count_as_that_pod(root: Path) -> None:
    below = "system.slice/containerd.service"
    for uid, containers in zip(UIDS, (3, 2, 1), strict=False):
        name = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice:cri-containerd:"
        make(root, *(f"{below}/{name}{container(n)}" for n in range(containers)))
    assert Counter(root)() == 2


def test_what_runs_inside_a_container_is_that_one_container_to_its_host(root: Path) -> None:
    kind = f"system.slice/docker-{container(1)}.scope"
    make(root, *(f"{kind}/kubelet.slice/{systemd_pod(UIDS[0])}/cri-containerd-{container(n)}.scope" for n in (2, 3)))
    make(root, f"docker/{container(9)}/docker/{container(4)}")
    assert Counter(root)() == 2


def test_in_a_hybrid_tree_the_unified_one_is_read_if_it_has_containers(tmp_path: Path) -> None:
    make(tmp_path, f"unified/docker/{container(1)}", f"unified/docker/{container(2)}", f"pids/docker/{container(1)}")
    assert Counter(tmp_path)() == 2


def test_in_a_hybrid_tree_a_controller_is_read_if_the_unified_one_has_none(tmp_path: Path) -> None:
    make(tmp_path, "unified/system.slice", f"memory/docker/{container(1)}", f"pids/docker/{container(1)}")
    count = Counter(tmp_path)
    assert count() == 1
    make(tmp_path, f"pids/docker/{container(2)}")
    assert count() == 2


@pytest.mark.parametrize("controller", ["pids", "memory", "cpu", "cpu,cpuacct", "systemd"])
def test_a_tree_of_version_1_is_read_through_whichever_controller_is_there(tmp_path: Path, controller: str) -> None:
    make(tmp_path, f"{controller}/docker/{container(1)}")
    assert Counter(tmp_path)() == 1


def test_a_tree_that_vanishes_is_looked_for_again(tmp_path: Path) -> None:
    make(tmp_path, f"memory/docker/{container(1)}")
    count = Counter(tmp_path)
    assert count() == 1
    (tmp_path / "memory").rename(tmp_path / "gone")
    assert count() is None
    make(tmp_path, f"pids/docker/{container(1)}", f"pids/docker/{container(2)}")
    assert count() == 2


def test_without_a_tree_nothing_is_known_and_that_is_said_once(
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


def test_the_census_says_which_pods_there_are_and_how_many_containers_run_in_each(root: Path) -> None:
    pod, alone = f"kubepods/burstable/pod{UIDS[0]}", f"system.slice/docker-{container(9)}.scope"
    make(root, *(f"{pod}/{container(n)}" for n in range(3)), alone, f"kubepods/pod{UIDS[1]}")
    account = Census(root, root / "no-proc").take()
    assert account is not None
    assert account.tree == root
    pods = {each.key: each for each in account.pods}
    assert pods.keys() == {UIDS[0], container(9)}
    assert pods[container(9)] == (container(9), (alone,), (alone,), 1)
    assert (pods[UIDS[0]].paths, pods[UIDS[0]].running) == ((pod,), 2)
    assert sorted(pods[UIDS[0]].containers) == [f"{pod}/{container(n)}" for n in range(3)]


def test_containers_of_a_pod_outside_its_cgroup_are_one_pod_to_the_census(root: Path) -> None:
    name = f"system.slice/containerd.service/kubepods-burstable-pod{UIDS[0].replace('-', '_')}.slice:cri-containerd:"
    make(root, *(f"{name}{container(n)}" for n in range(3)))
    account = Census(root, root / "no-proc").take()
    assert account is not None
    assert [(pod.key, len(pod.paths), pod.running) for pod in account.pods] == [(UIDS[0], 3, 2)]


def test_a_walk_serves_everybody_who_asks_within_half_a_second(root: Path) -> None:
    make(root, f"docker/{container(1)}")
    count = Counter(root)
    assert count() == 1
    make(root, f"docker/{container(2)}")
    count.now -= 0.6
    assert count() == 1
    assert count() == 2
