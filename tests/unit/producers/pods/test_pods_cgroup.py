"""Counting pods in cgroup trees as runtimes lay them out, built in a folder."""

from pathlib import Path

import pytest

from producers.pods.census import Census, Pod, Tree
from tests.unit.producers.pods.trees import UIDS, Counter, container, make, systemd_pod

STATIC = "8f1c0d9e7b6a54433221100ffeeddcca"


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


def place(root: Path, scope: str, pid: int | None, command: str = "") -> None:
    """Make a cgroup, with a process in it unless `pid` is None."""
    (root / scope).mkdir(parents=True, exist_ok=True)
    (root / scope / "cgroup.procs").write_text("" if pid is None else f"{pid}\n")
    (root / scope / "cgroup.events").write_text(f"populated {0 if pid is None else 1}\nfrozen 0\n")
    if pid is not None:
        (root / f"proc.mount/{pid}").mkdir(parents=True, exist_ok=True)
        (root / f"proc.mount/{pid}/comm").write_text(f"{command}\n")


def test_the_empty_cgroup_that_crio_makes_for_a_sandbox_is_no_container_until_it_has_a_process(root: Path) -> None:
    pod = systemd_pod(UIDS[0])
    place(root, pod, 1, "nginx")
    place(root, f"{pod}/crio-{container(1)}", None)
    counter = Counter(root, root / "proc.mount")
    assert counter() == 0
    place(root, f"{pod}/crio-{container(2)}.scope", 2, "nginx")
    assert [counter(), running(counter)] == [1, [1]]
    place(root, f"{pod}/crio-{container(1)}", 3, "sidecar")
    assert [counter(), running(counter)] == [1, [2]]


def running(counter: Counter) -> list[int]:
    account = counter.census.take(60)
    return [] if account is None else [pod.running for pod in account.pods]


@pytest.mark.parametrize(
    ("pod", "commands", "expected"),
    [
        (systemd_pod(UIDS[0]), {"crio": "pause"}, [0]),
        (systemd_pod(UIDS[0]), {"crio": "pause", "crio-a": "nginx"}, [1]),
        (f"machine.slice/machine-libpod_pod_{container(9)}.slice", {"libpod": "nginx"}, [1]),
    ],
)
def test_processes_that_crun_puts_into_a_cgroup_below_tell_which_container_is_a_pause(
    root: Path, pod: str, commands: dict[str, str], expected: list[int]
) -> None:
    for number, (prefix, command) in enumerate(commands.items(), 1):
        scope = f"{pod}/{prefix}-{container(number)}.scope"
        place(root, f"{scope}/container", number, command)
        (root / scope / "cgroup.procs").write_text("")
        (root / scope / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    counter = Counter(root, root / "proc.mount")
    assert [counter(), running(counter)] == [sum(map(bool, expected)), expected]


def test_a_process_in_another_pid_namespace_leaves_the_verdict_to_the_runtime(root: Path) -> None:
    for n, runtime in enumerate(("crio", "cri-containerd")):
        scope = f"{systemd_pod(UIDS[n])}/{runtime}-{container(n)}.scope"
        make(root, scope)
        (root / scope / "cgroup.procs").write_text("0\n")
    assert Counter(root)() == 1


@pytest.mark.parametrize("overhead", ["kata_overhead/{}", "vc/kata_{}"])
@pytest.mark.parametrize(
    "scope", [f"{systemd_pod(UIDS[0])}/crio-{{}}.scope", f"kubepods/burstable/pod{UIDS[0]}/kata_{{}}"]
)
def test_a_virtual_machine_of_kata_containers_counts_as_its_pod_and_what_serves_it_does_not(
    root: Path, scope: str, overhead: str
) -> None:
    make(root, scope.format(container(1)), overhead.format(container(1)))
    account = Census(root, root / "no-proc").take()
    assert account is not None
    assert [(pod.key, pod.running) for pod in account.pods] == [(UIDS[0], 1)]


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


def test_the_census_says_which_pods_there_are_and_how_many_containers_run_in_each(root: Path) -> None:
    pod, alone = f"kubepods/burstable/pod{UIDS[0]}", f"system.slice/docker-{container(9)}.scope"
    make(root, *(f"{pod}/{container(n)}" for n in range(3)), alone, f"kubepods/pod{UIDS[1]}")
    account = Census(root, root / "no-proc").take()
    assert account is not None
    assert account.tree == root
    pods = {each.key: each for each in account.pods}
    assert pods.keys() == {UIDS[0], container(9)}
    assert pods[container(9)] == Pod(container(9), (alone,), (alone,), 1)
    assert (pods[UIDS[0]].paths, pods[UIDS[0]].running) == ((pod,), 2)
    assert sorted(pods[UIDS[0]].containers) == [f"{pod}/{container(n)}" for n in range(3)]


def test_a_container_that_takes_the_place_of_another_between_two_walks_is_the_pods(root: Path) -> None:
    pod = f"kubepods/burstable/pod{UIDS[0]}"
    make(root, f"{pod}/{container(1)}", f"{pod}/{container(2)}")
    tree = Tree(root, root / "no-proc")
    tree.walk()
    (root / pod / container(2)).rename(root / pod / container(3))  # as when the main one follows an init container
    ((present,), _) = tree.walk()
    assert sorted(present.containers) == [f"{pod}/{container(n)}" for n in (1, 3)]


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
