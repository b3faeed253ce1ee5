"""Pods of the experiment: a process in control groups that the agent counts as a container."""

import asyncio
import contextlib
import os
import secrets
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from producers.pods.meter import Layout
from spazio.service import child
from spazio.truth import workload

PARENT = "spazio-truth"
_PERIOD_US = 100_000
_END_SECONDS = 5.0


class Unusable(RuntimeError):
    """No control groups can be created here."""


class Groups:
    """The control groups of all pods.

    Args:
        root: Mount point of cgroups.
    """

    def __init__(self, root: Path) -> None:
        layout = Layout(root)
        version_2 = (root / "cgroup.controllers").exists()
        mounts = [layout.unified, layout.memory, layout.accounting, layout.bandwidth]
        self._version_2 = version_2
        self._bandwidth = root if version_2 else layout.bandwidth
        self._memory = root if version_2 else layout.memory
        self.roots = list(dict.fromkeys(mount / PARENT for mount in mounts if mount is not None))
        if not self.roots:
            raise Unusable(f"{root} has no control groups; set their mount point with --sample-cgroup")

    def open(self, memory_bytes: int) -> None:
        """Create the parent of all groups.

        Args:
            memory_bytes: Memory that all pods may take; beyond it the kernel kills pods, and nothing else.

        Raises:
            Unusable: It cannot be created.
        """
        try:
            if self._version_2:
                for folder in (self.roots[0].parent, self.roots[0]):
                    folder.mkdir(exist_ok=True)
                    (folder / "cgroup.subtree_control").write_text("+cpu +memory")
            for folder in self.roots:
                folder.mkdir(exist_ok=True)
            if self._memory is not None:
                name = "memory.max" if self._version_2 else "memory.limit_in_bytes"
                (self._memory / PARENT / name).write_text(str(memory_bytes))
        except OSError as error:
            raise Unusable(
                f"{self.roots[0]} cannot be created: {error.strerror}; run this as root, or in a delegated cgroup"
            ) from error

    def make(self, name: str, quota: float | None) -> list[Path]:
        """Create the groups of one pod and return them."""
        made = [folder / name for folder in self.roots]
        for folder in made:
            folder.mkdir()
        if quota is not None and self._bandwidth is not None:
            own = self._bandwidth / PARENT / name
            limit = round(quota * _PERIOD_US)
            if self._version_2:
                (own / "cpu.max").write_text(f"{limit} {_PERIOD_US}")
            else:
                (own / "cpu.cfs_quota_us").write_text(str(limit))
        return made

    def close(self) -> None:
        """Remove all groups."""
        for folder in self.roots:
            with contextlib.suppress(OSError):
                for group in folder.iterdir():
                    if group.is_dir():
                        group.rmdir()
                folder.rmdir()


class Work:
    """One finished piece of work; times in microseconds."""

    __slots__ = ("alone", "end", "took")

    def __init__(self, line: bytes) -> None:
        self.end, self.took, self.alone = map(int, line.split())


class Pod:
    """One pod.

    Attributes:
        uid: UID, and name of its control groups.
        workload: Workload class.
        program: Arguments of `workload`.
        quota: CPUs that it may use; None: all.
        work: Finished pieces of work.
    """

    def __init__(self, workload_class: str, program: Sequence[str], quota: float | None = None) -> None:
        self.uid, self.workload = secrets.token_hex(32), workload_class
        self.program, self.quota = program, quota
        self.name = f"{workload_class}-{uuid.uuid4().hex[:5]}"
        self.created_us = time.time_ns() // 1000
        self.work: list[Work] = []
        self._process: asyncio.subprocess.Process | None = None
        self._groups: list[Path] = []
        self._reading: asyncio.Task[None] | None = None

    async def start(self, groups: Groups, *, seed: int, folder: Path) -> None:
        """Start the process in its groups."""
        self._groups = groups.make(self.uid, self.quota)
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(Path(workload.__file__)), *self.program),
            *(f"--seed={seed}", f"--folder={folder}"),
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=partial(_join, [str(group / "cgroup.procs") for group in self._groups], os.getpid()),
        )
        self._reading = asyncio.create_task(self._read(self._process))

    @property
    def status(self) -> int | None:
        """Exit status of a process that has ended; None: it runs."""
        return None if self._process is None else self._process.returncode

    async def end(self) -> None:
        """Kill the process and remove its groups."""
        for pid in self._pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None and self._reading is not None:
            await self._process.wait()
            self._reading.cancel()
            await asyncio.wait({self._reading})
        loop = asyncio.get_running_loop()
        ending = loop.time() + _END_SECONDS
        for group in self._groups:
            while loop.time() < ending:
                try:
                    group.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    await asyncio.sleep(0.02)

    def _pids(self) -> set[int]:
        pids = {self._process.pid} if self._process is not None and self._process.returncode is None else set()
        for group in self._groups:
            with contextlib.suppress(OSError):
                pids |= {int(line) for line in (group / "cgroup.procs").read_text().split()}
        return pids

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        if process.stdout is None:
            return
        async for line in process.stdout:
            with contextlib.suppress(ValueError):
                self.work.append(Work(line))


def _join(files: Sequence[str], parent: int) -> None:
    """Move this process into control groups; between fork and exec, so that they count its whole start.

    Where the machine's memory runs out all the same, the kernel kills a pod first.
    """
    child.end_with(parent, signal.SIGKILL)
    for name, content in (*((name, b"0") for name in files), ("/proc/self/oom_score_adj", b"1000")):
        descriptor = os.open(name, os.O_WRONLY)
        os.write(descriptor, content)
        os.close(descriptor)
