"""Cost of pods for the agent: CPU of one core and resident memory, with and without their usage and events.

`python -m benchmarks.pods SECONDS COUNT...` (60 s of 0, 50 and 200 pods) prints a row for each number of pods, and ends
with status 1 if the agent with everything on is over its budget. node_exporter with the six collectors that read the
agent's files runs beside, scraped ten times a second, where it is installed.

The pods have the cgroups of a kubelet and its runtime: `kubepods/burstable/pod<uid>/<id>` in every mounted hierarchy, a
pause container and one more, half of them with a CPU quota. The agents run side by side against an embedded server:
once with pods that sleep, once with pods that wake up twice a second, for which no reading can be skipped. Needs root.
"""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.agent import SIX, cpu_seconds, exporter, process, resident_bytes, scraped, served
from bus import server
from schemas.sections.measurement import Sample

_TREES = ("", "unified", "memory", "cpu", "cpuacct", "cpu,cpuacct", "pids")
_AGENTS: dict[str, dict[str, str]] = {
    "everything": {},
    "without usage": {"SPAZIO_RUNTIME_USAGE": "false"},
    "samples only": {"SPAZIO_RUNTIME_USAGE": "false", "SPAZIO_CONTAINERS": "none"},
}
_TOP = "kubepods-benchmark"
_COUNTS = (0, 50, 200)
_WARM_SECONDS = 8.0
# What the agent may take on a virtual machine of two cores: without pods, and for each pod more.
_SHARE, _ASLEEP_SHARE, _AWAKE_SHARE = 0.007, 0.00006, 0.00015
_RESIDENT_BYTES, _POD_BYTES = 48 << 20, 64 << 10


def hierarchies(root: Path) -> list[Path]:
    """Return the mounts in which a runtime makes a container's cgroups."""
    if (root / "cgroup.controllers").exists():
        return [root]
    return [root / name for name in _TREES if name and (root / name / "cgroup.procs").exists()]


@contextlib.contextmanager
def pods(root: Path, folder: Path, count: int, *, awake: bool) -> Iterator[None]:
    """Make pods with a pause and an app container each, for the duration of a `with` block."""
    trees = hierarchies(root)
    pause = folder / "pause"
    pause.symlink_to(shutil.which("sleep") or "/bin/sleep")
    command = ["perl", "-e", "select(undef, undef, undef, 0.4) while 1"] if awake else ["sleep", "infinity"]
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for index in range(count):
            pod = f"{_TOP}/burstable/pod{index:08x}-1b2c-4d3e-8f40-{index:012x}"
            processes.append(_container(trees, f"{pod}/{2 * index:064x}", [os.fspath(pause), "infinity"]))
            processes.append(_container(trees, f"{pod}/{2 * index + 1:064x}", command, limited=index % 2 == 0))
        yield
    finally:
        for running in processes:
            running.kill()
            running.wait()
        for tree in trees:
            for below, _, _ in os.walk(tree / _TOP, topdown=False):
                Path(below).rmdir()


def _container(trees: list[Path], path: str, command: list[str], *, limited: bool = False) -> subprocess.Popen[bytes]:
    running = subprocess.Popen(command)
    for tree in trees:
        (tree / path).mkdir(parents=True, exist_ok=True)
        (tree / path / "cgroup.procs").write_text(str(running.pid))
        for name, quota in (("cpu.cfs_quota_us", "30000"), ("cpu.max", "30000 100000")):
            if limited and (tree / path / name).exists():
                (tree / path / name).write_text(quota)
    return running


def budget(count: int, *, awake: bool) -> dict[str, float]:
    """Return the most that the agent may take with so many pods: a share of a core, and bytes."""
    return {
        "core_share": round(_SHARE + count * (_AWAKE_SHARE if awake else _ASLEEP_SHARE), 5),
        "resident_bytes": _RESIDENT_BYTES + count * _POD_BYTES,
    }


def measure(count: int, seconds: float, *, awake: bool) -> dict[str, Any]:
    """Run the agents, and node_exporter if it is installed; return shares of a core and bytes."""
    with contextlib.ExitStack() as running:
        folder = running.enter_context(tempfile.TemporaryDirectory())
        running.enter_context(pods(Sample().cgroup, Path(folder), count, awake=awake))
        environ = running.enter_context(served())
        running.enter_context(process([sys.executable, "-m", "spazio", "process"], environ))
        agents = {}
        for name, own in _AGENTS.items():
            named = {**environ, **own, "SPAZIO_SAMPLE_NODE": name.replace(" ", "-")}
            agents[name] = running.enter_context(process([sys.executable, "-m", "spazio", "agent"], named)).pid
        if shutil.which("prometheus-node-exporter") is not None:
            listening = server.free_port(0)
            agents["node_exporter"] = running.enter_context(process(exporter(listening, SIX))).pid
            time.sleep(1)
            running.enter_context(scraped(listening))
        time.sleep(_WARM_SECONDS)
        before = {name: cpu_seconds(pid) for name, pid in agents.items()}
        began = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        return {"pods": count, "awake": awake, "seconds": round(took, 1)} | {
            name: {
                "core_share": round((cpu_seconds(pid) - before[name]) / took, 5),
                "resident_bytes": resident_bytes(pid),
            }
            for name, pid in agents.items()
        }


def main() -> int:
    """Measure each number of pods; return 1 if the agent is over its budget in one of them."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    counts = [int(argument) for argument in sys.argv[2:]] or _COUNTS
    is_over = False
    for count, awake in itertools.product(counts, (False, True)):
        if awake and not count:
            continue
        result, most = measure(count, seconds, awake=awake), budget(count, awake=awake)
        over = [name for name, value in most.items() if result["everything"][name] > value]
        print(json.dumps(result | {"budget": most, "over": over}), flush=True)
        is_over = is_over or bool(over)
    return 1 if is_over else 0


if __name__ == "__main__":
    sys.exit(main())
