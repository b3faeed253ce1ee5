"""Real control groups with real processes in them, made as a runtime makes them; beside whatever else runs here."""

import contextlib
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from producers.containers.sources.cgroup import Cgroup
from producers.containers.sources.source import Observation
from producers.pods import cgroup
from tests.support.following import Recorder, running

pytestmark = [pytest.mark.slow, pytest.mark.alone]

ROOT = Path("/sys/fs/cgroup")
LIFE = ["created", "started", "exited", "deleted"]


class Only(Recorder):
    """Hears of nothing but containers of the test."""

    def __init__(self, container_ids: set[str]) -> None:
        super().__init__()
        self._container_ids = container_ids

    def observe(self, observation: Observation) -> None:
        if observation.identity.container in self._container_ids:
            super().observe(observation)


@pytest.fixture(params=["best tree", "version 1"])
def tree(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A group of one's own in the best tree of this host, or in a hierarchy of version 1."""
    if os.geteuid():
        pytest.skip("making control groups needs root")
    trees = [tree for tree in cgroup.trees(ROOT) if (request.param == "version 1") == (tree.name == "pids")]
    if not trees:
        pytest.skip(f"this host has no {request.param}")
    made = trees[0] / f"spazio-test-{secrets.token_hex(4)}"
    made.mkdir()
    yield made
    for folder in sorted(made.rglob("*/"), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()
    made.rmdir()


@pytest.fixture
def root(tree: Path, tmp_path: Path) -> Path:
    """The host's trees, with none but the tested one in it where that is not the best."""
    if tree.parent.name != "pids":
        return ROOT
    (tmp_path / "pids").symlink_to(tree.parent)
    return tmp_path


@contextmanager
def container(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A container's group with a process in it for the length of a block."""
    path.mkdir()
    process = subprocess.Popen(["sleep", "60"])
    try:
        (path / "cgroup.procs").write_text(f"{process.pid}")
        yield process
    finally:
        process.kill()
        process.wait()
        for _ in range(100):
            with contextlib.suppress(OSError):
                path.rmdir()
                break
            time.sleep(0.01)


async def test_fifty_containers_at_once_are_reported_one_by_one_in_order(tree: Path, root: Path) -> None:
    ids = [secrets.token_hex(32) for _ in range(50)]
    heard = Only(set(ids))
    async with running(Cgroup(root, Path("/proc"), rescan_seconds=1), heard):
        with contextlib.ExitStack() as stack:
            for id_ in ids:
                stack.enter_context(container(tree / id_))
            await heard.until(lambda: len(heard.observations) == 100)
            await heard.listed()
            assert heard.running >= set(ids)
        await heard.until(lambda: len(heard.observations) == 200)
    for id_ in ids:
        assert [event for event, messages in heard.story if messages == id_] == LIFE


async def test_one_container_that_lives_again_and_again_is_reported_life_by_life(tree: Path, root: Path) -> None:
    id_ = secrets.token_hex(32)
    heard = Only({id_})
    async with running(Cgroup(root, Path("/proc"), rescan_seconds=1), heard):
        for life in range(10):
            with container(tree / id_):
                await heard.until(lambda life=life: len(heard.observations) == 4 * life + 2)  # type: ignore[misc]
            await heard.until(lambda life=life: len(heard.observations) == 4 * life + 4)  # type: ignore[misc]
    assert [event for event, _ in heard.story] == 10 * LIFE


async def test_containers_that_are_there_at_the_start_are_listed(tree: Path, root: Path) -> None:
    ids = [secrets.token_hex(32) for _ in range(3)]
    heard = Only(set(ids))
    with container(tree / ids[0]), container(tree / ids[1]):
        (tree / ids[2]).mkdir()
        async with running(Cgroup(root, Path("/proc"), rescan_seconds=1), heard):
            assert heard.running & set(ids) == set(ids[:2])
            assert heard.observations == []
