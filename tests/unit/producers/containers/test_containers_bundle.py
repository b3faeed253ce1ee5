"""Containers seen in containerd's task bundles, made in a folder as containerd makes them and followed with inotify."""

import json
import shutil
from pathlib import Path

import pytest

from producers import clock as grid
from producers.containers import lifetime, spec
from producers.containers.sources import bundle, damage
from producers.containers.sources.bundle import Bundle
from producers.containers.sources.source import Identity
from tests.support.following import running

UID = "0a1b2c3d-0000-4000-8000-00000000000f"
A, B = (digit * 64 for digit in "ab")
NEVER = 3600.0
OFTEN = 0.02
CRI = {
    "io.kubernetes.cri.container-type": "container",
    "io.kubernetes.cri.container-name": "nginx",
    "io.kubernetes.cri.image-name": "hub.example/nginx:1.27",
    "io.kubernetes.cri.sandbox-id": B,
    "io.kubernetes.cri.sandbox-name": "web-7d4b9c6f5-x2x9k",
    "io.kubernetes.cri.sandbox-namespace": "shop",
    "io.kubernetes.cri.sandbox-uid": UID,
}


def config(annotations: dict[str, str] | None = None, group: str = "/docker/x") -> bytes:
    return json.dumps({"ociVersion": "1.0.2", "annotations": annotations, "linux": {"cgroupsPath": group}}).encode()


def follow(*folders: Path, rescan_seconds: float = NEVER, proc: Path | None = None) -> Bundle:
    return Bundle(folders, rescan_seconds=rescan_seconds, proc=proc)


def make(path: Path, *, pid: int | None = None, content: bytes | None = None) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_bytes(config(CRI) if content is None else content)
    if pid is not None:
        write_pid(path, pid)
    return path


def write_pid(path: Path, pid: int = 1) -> None:
    """Write the file as runc does: beside it, then renamed."""
    (path / ".init.pid").write_text(f"{pid}")
    (path / ".init.pid").rename(path / "init.pid")


def take_away(path: Path) -> None:
    """Remove a bundle as containerd does."""
    shutil.rmtree(path.rename(path.with_name(f".{path.name}")))


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    folder = tmp_path / "io.containerd.runtime.v2.task"
    (folder / "k8s.io").mkdir(parents=True)
    return folder


def test_the_cri_plugin_names_pod_container_and_image() -> None:
    assert spec.parse(A, config(CRI)) == Identity(
        container=A,
        container_name="nginx",
        image="hub.example/nginx:1.27",
        sandbox=False,
        pod=UID,
        namespace="shop",
        name="web-7d4b9c6f5-x2x9k",
        workload="shop/web",
    )


def test_a_sandbox_is_known_as_one() -> None:
    annotations = {key: value for key, value in CRI.items() if "container-name" not in key and "image" not in key}
    identity = spec.parse(A, config(annotations | {"io.kubernetes.cri.container-type": "sandbox"}))
    assert (identity.sandbox, identity.container_name, identity.workload) == (True, None, "shop/web")


def test_nerdctl_passes_names_and_labels_on() -> None:
    identity = spec.parse(A, config({"nerdctl/name": "db", "spazio.class": "storage"}))
    assert (identity.container_name, identity.workload, identity.sandbox) == ("db", "storage", None)


@pytest.mark.parametrize(
    "group",
    [f"/kubepods/burstable/pod{UID}/{A}", f"kubepods-burstable-pod{UID.replace('-', '_')}.slice:cri-containerd:{A}"],
)
def test_without_annotations_the_cgroup_tells_the_pod(group: str) -> None:
    identity = spec.parse(A, config(None, group))
    assert (identity.pod, identity.sandbox, identity.namespace) == (UID, None, None)


async def test_a_container_is_named_before_it_runs_and_followed_to_its_removal(tasks: Path) -> None:
    async with running(follow(tasks)) as heard:
        path = make(tasks / "k8s.io" / A)
        await heard.until(lambda: bool(heard.observations))
        assert heard.observations[0].identity.name == "web-7d4b9c6f5-x2x9k"
        await heard.expect(("created", A))
        write_pid(path)
        await heard.expect(("started", A))
        take_away(path)
        await heard.expect(("exited", A), ("deleted", A))


async def test_a_configuration_that_is_being_written_is_waited_for(
    tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "_PATIENCE_SECONDS", NEVER)
    whole = config(CRI)
    async with running(follow(tasks)) as heard:
        path = make(tasks / "k8s.io" / A, content=whole[:40])
        make(tasks / "k8s.io" / B)
        await heard.expect(("created", B))
        (path / "config.json").write_bytes(whole)
        await heard.until(lambda: bool(heard.observations))
        assert heard.observations[0].identity.name == "web-7d4b9c6f5-x2x9k"


async def test_a_container_whose_configuration_does_not_come_is_reported_without_a_name(tasks: Path) -> None:
    async with running(follow(tasks)) as heard:
        (tasks / "k8s.io" / A).mkdir()
        await heard.until(lambda: bool(heard.observations))
        assert heard.observations[0].identity == Identity(A)


async def test_a_damaged_configuration_is_counted_and_the_container_reported(
    tasks: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = damage.DAMAGED.labels("bundle")._value.get()
    for container in (A, B):
        make(tasks / "k8s.io" / container, pid=1, content=b'{"annotations": 7}')
    async with running(follow(tasks)) as heard:
        assert heard.running == {A, B}
    assert damage.DAMAGED.labels("bundle")._value.get() == before + 2
    assert [record.getMessage() for record in caplog.records].count("containers.damaged") == 1


async def test_a_bundle_that_is_gone_before_anybody_looks_was_a_whole_life(tasks: Path) -> None:
    async with running(follow(tasks)) as heard:
        take_away(make(tasks / "k8s.io" / A))
        await heard.expect(("created", A), ("exited", A), ("deleted", A))


async def test_a_container_that_is_made_again_lives_again(tasks: Path) -> None:
    async with running(follow(tasks)) as heard:
        path = make(tasks / "k8s.io" / A, pid=1)
        await heard.expect(("created", A), ("started", A))
        take_away(path)
        make(path, pid=2)
        await heard.expect(("exited", A), ("deleted", A), ("created", A), ("started", A))


async def test_what_is_there_at_the_start_is_listed_and_not_reported_to_begin(tasks: Path) -> None:
    path = make(tasks / "k8s.io" / A, pid=1)
    async with running(follow(tasks)) as heard:
        assert (heard.running, heard.story) == ({A}, [])
        assert heard.listings[-1][1][A][0].workload == "shop/web"
        take_away(path)
        await heard.expect(("exited", A), ("deleted", A))


async def test_folders_that_appear_later_are_followed_too(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    async with running(follow(first, second, rescan_seconds=OFTEN)) as heard:
        assert not heard.running
        second.mkdir()
        await heard.listed()
        make(second / "moby" / A, pid=1)
        await heard.expect(("created", A), ("started", A))
        shutil.rmtree(second)
        await heard.listed()
        assert not heard.running
        make(second / "moby" / B, pid=1)
        await heard.listed()
        assert heard.running == {B}


async def test_what_a_killed_runtime_left_behind_does_not_run(tasks: Path, tmp_path: Path) -> None:
    (tmp_path / "proc/17").mkdir(parents=True)
    make(tasks / "k8s.io" / A, pid=17)
    make(tasks / "k8s.io" / B, pid=18)
    async with running(follow(tasks, rescan_seconds=OFTEN, proc=tmp_path / "proc")) as heard:
        assert (heard.running, set(heard.listings[-1][1])) == ({A}, {A, B})
        (tmp_path / "proc/17").rmdir()
        await heard.until(lambda: not heard.running)


class Clock(grid.System):
    """A clock that stands still until it is moved."""

    now_us = 1_000_000_000

    def boottime(self) -> int:
        return self.now_us * 1000


async def test_no_bundle_is_listed_to_run_once_the_report_of_another_source_that_it_ended_is_old(
    tasks: Path, tmp_path: Path
) -> None:
    clock, proc = Clock(), tmp_path / "proc"
    for pid in range(1, 21):
        make(tasks / "k8s.io" / f"{pid:064x}", pid=pid)
        (proc / f"{pid}").mkdir(parents=True)
    async with running(Bundle((tasks,), rescan_seconds=OFTEN, proc=proc, clock=clock)) as heard:
        assert len(heard.running) == 20
        shutil.rmtree(proc)
        proc.mkdir()
        clock.now_us += lifetime.LATE_US - 1_000_000
        await heard.listed()
        assert not heard.running


async def test_a_bundle_that_was_made_again_unnoticed_runs(tasks: Path, tmp_path: Path) -> None:
    clock, proc = Clock(), tmp_path / "proc"
    (proc / "17").mkdir(parents=True)
    path = make(tasks / "k8s.io" / A, pid=17)
    async with running(Bundle((tasks,), rescan_seconds=OFTEN, proc=proc, clock=clock)) as heard:
        (proc / "18").mkdir()
        write_pid(path, 18)
        (proc / "17").rmdir()
        clock.now_us += lifetime.LATE_US
        await heard.listed()
        assert heard.running == {A}


async def test_hidden_folders_and_files_are_no_containers(tasks: Path) -> None:
    make(tasks / "k8s.io" / f".{A}", pid=1)
    (tasks / "k8s.io" / "file").write_text("x")
    (tasks / "file").write_text("x")
    async with running(follow(tasks)) as heard:
        assert not heard.listings[-1][1]


@pytest.fixture
def closed(tasks: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Another folder of bundles, without any permission; the tests are not root any more."""
    make(tasks / "k8s.io" / A, pid=1)
    tasks.chmod(0o755)
    folder = tmp_path / "closed"
    folder.mkdir(mode=0)
    request.getfixturevalue("unprivileged")
    return folder


async def test_a_closed_folder_is_reported_once_and_hides_no_other(
    tasks: Path, closed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(follow(closed, tasks, rescan_seconds=OFTEN)) as heard:
        await heard.listed()
        assert heard.running == {A}
    assert [record.getMessage() for record in caplog.records].count("containers.refused") == 1


async def test_if_all_folders_are_closed_the_source_fails(closed: Path) -> None:
    with pytest.raises(PermissionError, match="closed"):
        async with running(follow(closed)):
            pass
