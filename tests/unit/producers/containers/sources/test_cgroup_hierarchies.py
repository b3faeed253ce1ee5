"""Containers in trees of version 1, of both versions, and in ones that come late."""

import shutil
from pathlib import Path

from tests.support.following import running
from tests.unit.producers.containers.sources.trees import OFTEN, A, B, follow, make, populate, v1


def replace(root: Path) -> None:
    root.rename(root.with_name("old"))
    (root / "docker").mkdir(parents=True)
    (root / "cgroup.controllers").write_text("cpu\n")


async def test_version_1_finds_the_start_soon_and_takes_the_removal_for_the_exit(tmp_path: Path) -> None:
    root = v1(tmp_path, unified=False)
    async with running(follow(root)) as heard:
        path = make(root / "pids/docker" / A, version=1)
        await heard.expect(("created", A))
        populate(path, populated=True, version=1)
        await heard.expect(("started", A))
        shutil.rmtree(path)
        await heard.expect(("exited", A), ("deleted", A))


async def test_a_container_in_both_trees_of_a_hybrid_is_followed_once_and_in_the_unified_one(tmp_path: Path) -> None:
    root = v1(tmp_path, unified=True)
    async with running(follow(root, rescan_seconds=OFTEN)) as heard:
        make(root / "pids/docker" / A, populated=True, version=1)
        path = make(root / "unified/docker" / A, populated=True)
        await heard.expect(("created", A), ("started", A))
        await heard.listed()
        populate(path, populated=False)
        await heard.expect(("exited", A))
        shutil.rmtree(path)
        await heard.expect(("deleted", A))
        shutil.rmtree(root / "pids/docker" / A)
        await heard.listed()
        assert not heard.observations


async def test_a_tree_of_version_1_that_alone_has_containers_is_watched_too(tmp_path: Path) -> None:
    root = v1(tmp_path, unified=True)
    source = follow(root, rescan_seconds=OFTEN)
    async with running(source) as heard:
        make(root / "pids/docker" / A, populated=True, version=1)
        await heard.until(lambda: source._trees[1].is_watched)
        await heard.listed()
        assert heard.running == {A}
        make(root / "pids/docker" / B, version=1)
        await heard.expect(("created", B))
        shutil.rmtree(root / "pids/docker" / A)
        await heard.expect(("exited", A), ("deleted", A))


async def test_a_container_first_seen_in_version_1_moves_to_the_unified_tree(tmp_path: Path) -> None:
    root = v1(tmp_path, unified=True)
    make(root / "pids/docker" / A, version=1)
    async with running(follow(root)) as heard:
        path = make(root / "unified/docker" / A)
        await heard.expect(("created", A))
        populate(path, populated=True)
        await heard.expect(("started", A))


async def test_a_process_that_has_not_come_into_the_unified_tree_yet_has_not_exited(tmp_path: Path) -> None:
    root = v1(tmp_path, unified=True)
    make(root / "pids/docker" / A, populated=True, version=1)
    async with running(follow(root)) as heard:
        assert heard.running == {A}
        path = make(root / "unified/docker" / A)
        make(root / "unified/docker" / B)
        await heard.expect(("created", B))
        populate(path, populated=True)
        populate(root / "unified/docker" / B, populated=True)
        await heard.expect(("started", B))
        populate(path, populated=False)
        await heard.expect(("exited", A))


async def test_a_tree_that_was_replaced_is_followed_from_then_on(root: Path) -> None:
    make(root / "docker" / A, populated=True)
    async with running(follow(root, rescan_seconds=OFTEN)) as heard:
        replace(root)
        await heard.listed()
        assert not heard.listings[-1][1]
        make(root / "docker" / B)
        await heard.expect(("created", B))
