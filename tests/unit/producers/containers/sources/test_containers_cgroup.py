"""Containers seen in cgroup trees as runtimes lay them out, made in a folder and followed with real inotify."""

import shutil
from pathlib import Path

import pytest

from producers.containers.sources import inotify, tree
from tests.support.following import running
from tests.unit.producers.containers.sources.trees import OFTEN, A, B, C, follow, make, populate, v1

UID = "0a1b2c3d-0000-4000-8000-00000000000f"


async def test_a_container_is_followed_from_its_directory_to_its_removal(root: Path) -> None:
    (root / "docker").mkdir()
    async with running(follow(root)) as heard:
        path = make(root / "docker" / A)
        await heard.expect(("created", A))
        populate(path, populated=True)
        await heard.expect(("started", A))
        populate(path, populated=False)
        await heard.expect(("exited", A))
        shutil.rmtree(path)
        await heard.expect(("deleted", A))


async def test_a_process_that_came_before_the_watch_has_started(root: Path) -> None:
    async with running(follow(root)) as heard:
        make(root / "docker" / A, populated=True)
        await heard.expect(("created", A), ("started", A))


async def test_a_run_so_short_that_only_its_end_is_seen_has_exited(root: Path) -> None:
    async with running(follow(root)) as heard:
        path = make(root / "docker" / A)
        await heard.expect(("created", A))
        populate(path, populated=True)
        populate(path, populated=False)
        await heard.expect(("exited", A))


async def test_a_directory_that_is_gone_before_anybody_looks_was_a_whole_life(root: Path) -> None:
    (root / "docker").mkdir()
    async with running(follow(root)) as heard:
        shutil.rmtree(make(root / "docker" / A))
        await heard.expect(("created", A), ("exited", A), ("deleted", A))


async def test_a_container_that_is_made_again_lives_again(root: Path) -> None:
    async with running(follow(root)) as heard:
        path = make(root / "docker" / A, populated=True)
        await heard.expect(("created", A), ("started", A))
        shutil.rmtree(path)
        make(path, populated=True)
        await heard.expect(("exited", A), ("deleted", A), ("created", A), ("started", A))


@pytest.mark.parametrize(
    ("pod", "container"),
    [
        (f"kubepods/burstable/pod{UID}", "{}"),
        (
            f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID.replace('-', '_')}.slice",
            "crio-{}.scope",
        ),
        ("system.slice", f"kubepods-burstable-pod{UID.replace('-', '_')}.slice:cri-containerd:{{}}"),
    ],
)
async def test_a_container_in_a_tree_of_new_directories_is_found_with_its_pod(
    root: Path, pod: str, container: str
) -> None:
    async with running(follow(root)) as heard:
        make(root / pod / container.format(A))
        await heard.until(lambda: bool(heard.observations))
        (seen,) = heard.observations
        assert (seen.event, seen.identity.container, seen.identity.pod) == ("created", A, UID)


async def test_what_lies_below_a_container_and_monitors_are_not_looked_at(root: Path) -> None:
    async with running(follow(root)) as heard:
        inner = make(root / "docker" / A)
        make(inner / "docker" / B)
        make(root / "machine.slice" / f"libpod-conmon-{C}.scope")
        make(root / "machine.slice" / f"libpod-{C}.scope")
        await heard.expect(("created", A), ("created", C))


async def test_what_is_there_at_the_start_is_listed_and_not_reported_to_begin(root: Path) -> None:
    make(root / "docker" / A, populated=True)
    make(root / "docker" / B, populated=False)
    async with running(follow(root)) as heard:
        assert (heard.running, set(heard.listings[-1][1])) == ({A}, {A, B})
        populate(root / "docker" / B, populated=True)
        await heard.expect(("started", B))
        shutil.rmtree(root / "docker" / A)
        await heard.expect(("exited", A), ("deleted", A))


async def test_a_look_finds_what_events_have_missed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "_MASK", inotify.ONLYDIR | inotify.MOVED_TO)  # nothing of what happens here
    (root / "docker").mkdir()
    async with running(follow(root, rescan_seconds=OFTEN)) as heard:
        make(root / "docker" / A, populated=True)
        await heard.listed()
        assert heard.running == {A}
        shutil.rmtree(root / "docker" / A)
        await heard.listed()
        assert not heard.listings[-1][1]
        assert not heard.observations


async def test_a_restart_between_two_looks_is_recognised_by_the_new_directory(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "_MASK", inotify.ONLYDIR | inotify.MOVED_TO)
    path = make(root / "docker" / A, populated=True)
    async with running(follow(root, rescan_seconds=OFTEN)) as heard:
        path.rename(root / "kept")  # so that its inode is not given again
        make(path, populated=True)
        await heard.expect(("exited", A), ("deleted", A))
        await heard.listed()
        assert heard.running == {A}


async def test_everything_is_looked_at_again_when_the_queue_has_overflowed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(root / "docker" / A, populated=True)
    async with running(follow(root)) as heard:
        read = inotify.Inotify.read

        def overflow(queue: inotify.Inotify) -> list[inotify.Event]:
            read(queue)  # lost
            return [inotify.Event(-1, inotify.OVERFLOW, "")]

        monkeypatch.setattr(inotify.Inotify, "read", overflow)
        populate(root / "docker" / A, populated=False)
        make(root / "docker" / B, populated=True)
        await heard.until(lambda: bool(heard.observations) and len(heard.listings) >= 2)
        assert (heard.story, heard.running) == ([("exited", A)], {B})


async def test_a_host_without_cgroups_is_an_error_that_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no cgroup tree; mount it, or name it with --sample-cgroup"):
        async with running(follow(tmp_path)):
            pass


async def test_a_pause_container_is_recognised_by_its_process(root: Path, tmp_path: Path) -> None:
    path = make(root / f"kubepods/pod{UID}" / A, populated=True)
    (path / "cgroup.procs").write_text("17\n")
    comm = tmp_path / "proc/17/comm"
    comm.parent.mkdir(parents=True)
    comm.write_text("runc:[2:INIT]\n")
    async with running(follow(root, rescan_seconds=OFTEN, proc=tmp_path / "proc")) as heard:
        assert heard.listings[-1][1][A][0].sandbox is None
        comm.write_text("pause\n")
        await heard.listed()
        assert heard.listings[-1][1][A][0].sandbox is True


@pytest.fixture
def closed(root: Path, request: pytest.FixtureRequest) -> Path:
    """A directory without any permission, beside a container; the tests are not root any more."""
    make(root / "docker" / A, populated=True)
    folder = root / "closed"
    make(folder / B, populated=True)
    folder.chmod(0)
    request.getfixturevalue("unprivileged")
    return folder


async def test_a_closed_directory_hides_what_is_in_it_and_nothing_else(root: Path, closed: Path) -> None:
    async with running(follow(root)) as heard:
        assert heard.running == {A}


async def test_too_few_watches_leave_the_looks(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(queue: inotify.Inotify, path: str, mask: int) -> int:
        raise OSError(28, "no watch left", path)

    monkeypatch.setattr(inotify.Inotify, "add", refuse)
    path = make(root / "docker" / A, populated=True)
    async with running(follow(root, rescan_seconds=OFTEN)) as heard:
        populate(path, populated=False)
        await heard.until(lambda: heard.story == [("exited", A)])
        make(root / "docker" / B, populated=True)
        await heard.listed()
        assert heard.running == {B}


async def test_where_ends_are_not_reported_every_container_is_looked_at_in_turn(tmp_path: Path) -> None:
    base = v1(tmp_path, unified=False)
    made = [make(base / "pids/docker" / f"{n:064x}", populated=True, version=1) for n in range(12)]
    async with running(follow(base, rescan_seconds=OFTEN)) as heard:
        await heard.until(lambda: len(heard.running) == 12)
        for path in made:
            populate(path, populated=False, version=1)
        await heard.until(lambda: len(heard.observations) == 12)
        assert {event for event, _ in heard.story} == {"exited"}
