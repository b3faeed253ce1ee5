"""Production beside a Batch pod that computes, on real control groups: alone, ungoverned and governed."""

import asyncio
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client

from schemas import codec
from schemas.settings import Settings
from schemas.subject import Names
from spazio.governing import control
from spazio.truth import workload
from spazio.truth.pod import Work
from tests.e2e.runtimes.groups import Groups
from tests.e2e.runtimes.runtime import remove_cgroups
from tests.support.server.program import SPAZIO, Program
from tests.unit.spazio.governing.test_governor import facts

pytestmark = [
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes control groups, which needs root"),
]

NAMES = Names()
SERVERS, SHARE = 2, 0.65  # of a core each: more than half of two CPUs, which is what two equal groups get
SETTLE_SECONDS, SECONDS = 3, 8
TOP = f"spazio-test-govern-{os.getpid()}"


class Pod:
    """A pod with one container on real control groups."""

    def __init__(self, folder: Path) -> None:
        self.uid = str(uuid.uuid4())
        self.groups = Groups(f"{TOP}/kubepods/pod{self.uid}")
        self._lines = folder / self.uid
        self.container = ""

    def run(self, *program: str, processes: int = 1) -> None:
        """Start a program of `workload`; what it reports is kept."""
        command = f'exec "$@" --seed=$$ >> "{self._lines}"'
        arguments = [sys.executable, "-I", str(Path(workload.__file__)), *program]
        self.container = self.groups.run(["sh", "-c", command, "sh", *arguments], processes)

    def slowdown(self, since: float) -> float:
        """Return time taken over time alone, of work that began after a time."""
        lines = [line for line in self._lines.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
        works = [work for work in map(Work, lines) if work.end - work.took > since * 1e6]
        return sum(work.took for work in works) / sum(work.alone for work in works)

    def controls(self) -> dict[str, str]:
        """Return the contents of the pod's control files."""
        folders = [tree / self.groups.top for tree in self.groups.trees]
        files = (folder / name for folder in folders for name in sorted(control.NAMES))
        return {f"{file.parents[3].name}/{file.name}": file.read_text().strip() for file in files if file.exists()}


@pytest.fixture
def batch(tmp_path: Path) -> Iterator[Pod]:
    """A Batch pod that computes with more threads than there are CPUs."""
    pod = Pod(tmp_path)
    pod.run("burn", processes=6)
    for tree in pod.groups.trees:  # what else the machine does must not decide the comparison
        for name, most in (("cpu.shares", "200000"), ("cpu.weight", "10000")):
            if (tree / TOP / name).exists():
                (tree / TOP / name).write_text(most)
    try:
        if not any("cfs_quota" in name or "cpu.max" in name for name in pod.controls()):
            pytest.skip("the CPU controller is not delegated to new groups here")
        yield pod
    finally:
        pod.groups.end()
        remove_cgroups(TOP)


async def production(folder: Path) -> float:
    """Run production for some seconds; returns its slowdown."""
    pod = Pod(folder)
    try:
        pod.run("serve", "--work", "0.02", "--share", str(SHARE), processes=SERVERS)
        await asyncio.sleep(SETTLE_SECONDS)
        since = time.time()
        await asyncio.sleep(SECONDS)
        return pod.slowdown(since)
    finally:
        pod.groups.end()


class Governor(Program):
    """`spazio govern`, to be ended or killed."""

    def __init__(self, url: str, folder: Path) -> None:
        arguments = ["--nats", url, "--sample-node", "n1", "--data-dir", str(folder / "data"), "--http-port", "0"]
        super().__init__([*SPAZIO, "govern", *arguments, "--log-format", "json"], folder / "govern.log")

    def start(self) -> None:
        """Start it among the groups of the test: the Batch pod must not keep it from starting."""
        super().start()
        assert self.process is not None
        for tree in Groups(TOP).trees:
            (tree / TOP / "governor").mkdir(exist_ok=True)
            (tree / TOP / "governor" / "cgroup.procs").write_text(str(self.process.pid))

    def has_restored(self) -> bool:
        """Tell whether it has restored what an earlier one left."""
        return any(event["event"] == "limits.restored" for event in self.events)


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not reached():  # noqa: ASYNC110 # control files and a log, which tell nobody of changes
            await asyncio.sleep(0.1)


async def test_production_beside_batch_is_as_fast_as_alone_if_it_is_governed_and_not_otherwise(
    client: Client, settings: Settings, tmp_path: Path, batch: Pod
) -> None:
    before = batch.controls()
    ungoverned = await production(tmp_path)
    pod = facts(batch.uid, priority=5000)
    await client.jetstream().publish(f"$KV.{NAMES.pods_bucket}.{batch.uid}", codec.encode(pod))
    governor = Governor(settings.nats_url, tmp_path)
    governor.start()
    try:
        await until(lambda: batch.controls() != before)
        began = batch.groups.cpu_seconds(batch.container)
        governed = await production(tmp_path)
        progress = batch.groups.cpu_seconds(batch.container) - began
        governor.end(sign=signal.SIGTERM)
        assert batch.controls() == before
    finally:
        governor.kill()
    batch.groups.end()
    alone = await production(tmp_path)
    print({"alone": alone, "ungoverned": ungoverned, "governed": governed, "batch_cpu_seconds": progress})
    assert ungoverned / alone > 2
    assert governed / alone <= 1.2
    assert progress > 0.02 * 2 * SECONDS / 2, "Batch keeps at least half of its floor"


async def test_the_governor_that_starts_after_a_kill_restores_the_groups_without_a_bus(
    client: Client, settings: Settings, tmp_path: Path, batch: Pod
) -> None:
    before = batch.controls()
    pod = facts(batch.uid, priority=5000)
    await client.jetstream().publish(f"$KV.{NAMES.pods_bucket}.{batch.uid}", codec.encode(pod))
    governor = Governor(settings.nats_url, tmp_path)
    governor.start()
    try:
        await until(lambda: batch.controls() != before)
        governor.kill()
        assert batch.controls() != before
        later = Governor("nats://127.0.0.1:9", tmp_path)
        later.start()
        try:
            await until(later.has_restored)
            assert batch.controls() == before
        finally:
            later.kill()
    finally:
        governor.kill()
