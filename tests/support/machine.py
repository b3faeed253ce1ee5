"""A machine in a folder, on virtual time: `/proc`, and cgroup trees as kernels lay them out."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from producers import clock as grid
from producers.containers.sources.source import Identity
from producers.pods import usage
from producers.pods.census import Census
from schemas import codec
from schemas.messages.telemetry import PodUsageBlock

UID = "0a1b2c3d-1b2c-4d3e-8f40-0123456789ab"
POD = f"kubepods/burstable/pod{UID}"
LAYOUTS = ["v2", "hybrid", "v1", "v1 joined"]
MIB = 1 << 20


def container(n: int) -> str:
    return f"{n:064x}"


class Host:
    """A machine with 2 CPUs in a folder: `/proc`, and cgroups of one layout."""

    def __init__(self, folder: Path, layout: str) -> None:
        self.layout = layout
        self.proc, self.root = folder / "proc", folder / "cgroup"
        self.joined = "cpu,cpuacct" if layout == "v1 joined" else None
        self.now = 100 * grid.SECOND
        (self.proc / "pressure").mkdir(parents=True)
        self.root.mkdir()
        if layout == "v2":
            (self.root / "cgroup.controllers").write_text("cpu memory\n")
        names = ["pids", "memory", *([self.joined] if self.joined else ["cpu", "cpuacct"])]
        for name in [] if layout == "v2" else names + ["unified"] * (layout == "hybrid"):
            (self.root / name).mkdir()
        self.set_node()

    def boottime(self) -> int:
        return self.now

    def monotonic(self) -> int:
        return self.now

    def realtime(self) -> int:
        return 1_795_000_000 * grid.SECOND + self.now

    def sleep(self, seconds: float) -> None:
        self.now += round(seconds * grid.SECOND)

    def set_node(
        self,
        busy: float = 0,
        waited: float = 0,
        spent: float = 0,
        available: int = 6144 * MIB,
        runnable: int = 1,
        stolen: float = 0,
        inactive: int | None = None,
    ) -> None:
        """Set totals since boot, in seconds; 8 GiB of memory, of which 1 MiB is free."""
        idle = 2 * self.now / grid.SECOND - busy
        (self.proc / "stat").write_text(
            f"cpu  {busy * 100:.0f} 0 0 {idle * 100:.0f} 0 0 0 0 0 0\n"
            f"cpu0 {busy * 50:.0f} 0 0 {idle * 50:.0f} 0 0 0 0 0 0\n"
            f"cpu1 {busy * 50:.0f} 0 0 {idle * 50:.0f} 0 0 0 0 0 0\nintr 1\nprocs_running 2\n"
        )
        (self.proc / "loadavg").write_text(f"0.10 0.10 0.10 {runnable + 1}/100 4711\n")
        (self.proc / "pressure/cpu").write_text(f"some avg10=0.00 total={waited * 1e6:.0f}\n")
        (self.proc / "meminfo").write_text(
            f"MemTotal: {8192 * 1024} kB\nMemFree: 1024 kB\nMemAvailable: {available // 1024} kB\n"
            "Buffers: 0 kB\nCached: 0 kB\n"
            + (
                ""
                if inactive is None
                else f"Active(file): 0 kB\nInactive(file):   {inactive // 1024} kB\nUnevictable: 0 kB\n"
            )
        )
        if self.layout == "v2":
            user, system = spent * 0.75e6, spent * 0.25e6
            usage = user + system + stolen * 1e6  # Linux before 6.14
            (self.root / "cpu.stat").write_text(
                f"usage_usec {usage:.0f}\nuser_usec {user:.0f}\nsystem_usec {system:.0f}\n"
            )
        else:
            (self.root / (self.joined or "cpuacct") / "cpuacct.usage").write_text(f"{spent * 1e9:.0f}\n")

    def trees(self) -> list[Path]:
        return [self.root] if self.layout == "v2" else [path for path in self.root.iterdir() if path.is_dir()]

    def set(
        self,
        path: str,
        cpu: float = 0,
        memory: int = 100 * MIB,
        inactive: int = 20 * MIB,
        pressures: tuple[float, float, float] = (0, 0, 0),
        quota: bool = False,
        throttled: float = 0,
    ) -> None:
        """Set counters of a cgroup since it was made, in seconds and bytes."""
        for tree in self.trees():
            (tree / path).mkdir(parents=True, exist_ok=True)
        if self.layout == "v2":
            stat = f"nr_periods 9\nnr_throttled 9\nthrottled_usec {throttled * 1e6:.0f}\n"
            self._write(f"{path}/cpu.stat", f"usage_usec {cpu * 1e6:.0f}\nuser_usec 1\n{stat}")
            self._write(f"{path}/cpu.max", "30000 100000\n" if quota else "max 100000\n")
            self._write(f"{path}/memory.current", f"{memory}\n")
            self._write(f"{path}/memory.stat", f"anon 1\ninactive_anon 5\ninactive_file {inactive}\nactive_file 0\n")
        else:
            bandwidth, accounting = self.joined or "cpu", self.joined or "cpuacct"
            self._write(f"{accounting}/{path}/cpuacct.usage", f"{cpu * 1e9:.0f}\n")
            self._write(
                f"{bandwidth}/{path}/cpu.stat", f"nr_periods 9\nnr_throttled 9\nthrottled_time {throttled * 1e9:.0f}\n"
            )
            self._write(f"{bandwidth}/{path}/cpu.cfs_quota_us", "30000\n" if quota else "-1\n")
            self._write(f"memory/{path}/memory.usage_in_bytes", f"{memory}\n")
            self._write(
                f"memory/{path}/memory.stat",
                f"cache 1\ninactive_file 0\nactive_file 0\ntotal_cache 1\ntotal_inactive_file {inactive}\ntotal_x 1\n",
            )
        if self.layout == "hybrid":
            self._write(f"unified/{path}/cpu.stat", f"usage_usec {cpu * 1e6:.0f}\nuser_usec 1\n")
        if self.layout in ("v2", "hybrid"):
            below = path if self.layout == "v2" else f"unified/{path}"
            for name, waited in zip(("cpu", "memory", "io"), pressures, strict=True):
                self._write(
                    f"{below}/{name}.pressure",
                    f"some avg10=0.00 avg60=0.00 avg300=0.00 total={waited * 1e6:.0f}\n"
                    "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
                )

    def spoil(self, path: str) -> None:
        """Make the counters of a cgroup's CPU time unreadable."""
        for tree in self.trees():
            for name in ("cpu.stat", "cpuacct.usage"):
                if (tree / path / name).exists():
                    (tree / path / name).write_text("nonsense\n")

    def remove(self, path: str) -> None:
        for tree in self.trees():
            shutil.rmtree(tree / path)

    def _write(self, path: str, content: str) -> None:
        (self.root / path).write_text(content)


class Rig:
    """A reader of such a machine; each reading is a second after the one before."""

    def __init__(
        self, host: Host, identify: Callable[[str], Identity | None] = lambda _: None, descriptors: int = 4096
    ) -> None:
        self.host = host
        self.census = Census(host.root, host.proc, clock=lambda: host.now / grid.SECOND)
        self.reader = usage.Reader(
            self.census,
            host.root,
            host.proc,
            node="n",
            boot="b",
            identify=identify,
            descriptors=descriptors,
            clock=host,
        )

    def read(self, seconds: float = 1) -> PodUsageBlock | None:
        self.host.sleep(seconds)
        messages = self.reader.read(self.host.now // grid.SECOND)
        if messages is None:
            return None
        block = codec.decode(PodUsageBlock, messages[1])
        assert messages[0] == block.seq
        return block

    def block(self, seconds: float = 1) -> PodUsageBlock:
        block = self.read(seconds)
        assert block is not None
        return block


def lines(block: PodUsageBlock) -> dict[str, dict[str, Any]]:
    """Return the columns of each pod."""
    columns = json.loads(codec.encode(block))
    names = [name for name, values in columns.items() if isinstance(values, list) and name != "pods"]
    return {pod: {name: columns[name][row] for name in names} for row, pod in enumerate(block.pods)}
