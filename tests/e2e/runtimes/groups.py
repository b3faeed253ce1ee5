"""Real cgroups with real processes in them, as a runtime makes them; needs root."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.runtimes.runtime import CGROUPS, remove_cgroups

BUSY = ["sh", "-c", "while :; do :; done"]
TREES = ("unified", "memory", "cpu", "cpuacct", "cpu,cpuacct", "pids")


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


class Groups:
    """Containers below one cgroup of the test's own."""

    def __init__(self, top: str) -> None:
        self.top = top
        if (CGROUPS / "cgroup.controllers").exists():
            self.trees = [CGROUPS]
        else:
            self.trees = [CGROUPS / name for name in TREES if (CGROUPS / name / "cgroup.procs").exists()]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._made = 0

    def run(self, command: list[str], processes: int = 1, quota: float | None = None) -> str:
        """Start a container of some equal processes, with a CPU quota in cores; returns its id."""
        self._made += 1
        name = f"{os.getpid():032x}{self._made:032x}"
        folders = [tree / self.top / name for tree in self.trees]
        for folder in folders:
            folder.mkdir(parents=True)
            if quota is None:
                continue
            for file, limit in (("cpu.cfs_quota_us", f"{quota * 1e5:.0f}"), ("cpu.max", f"{quota * 1e5:.0f} 100000")):
                if (folder / file).exists():
                    (folder / file).write_text(limit)
        files = " ".join(f"'{folder}/cgroup.procs'" for folder in folders)
        move = ["sh", "-c", f'for file in {files}; do echo $$ > "$file"; done; exec "$@"', "sh", *command]
        self._processes += [subprocess.Popen(move) for _ in range(processes)]
        return name

    def read(self, container: str, *files: str) -> str:
        """Return the first of some files that the container has in one of the trees."""
        for file in files:
            for tree in self.trees:
                if (tree / self.top / container / file).exists():
                    return (tree / self.top / container / file).read_text()
        raise FileNotFoundError(f"none of {files} for {container}")

    def cpu_seconds(self, container: str) -> float:
        content = self.read(container, "cpuacct.usage", "cpu.stat")
        return int(content) / 1e9 if content.strip().isdigit() else int(content.split()[1]) / 1e6

    def working_set(self, container: str) -> int:
        usage = int(self.read(container, "memory.usage_in_bytes", "memory.current"))
        stat = dict(line.split() for line in self.read(container, "memory.stat").splitlines())
        return usage - int(stat.get("total_inactive_file", stat["inactive_file"]))

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        remove_cgroups(self.top)


@contextmanager
def groups(top: str = "spazio-test") -> Iterator[Groups]:
    if os.geteuid() != 0:
        pytest.skip("making cgroups needs root")
    made = Groups(f"{top}-{os.getpid()}")
    try:
        yield made
    finally:
        made.end()
