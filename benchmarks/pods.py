"""Cost of many pods for the agent: CPU of one core and resident memory, with and without their usage and events.

The pods have the cgroups of a kubelet and its runtime: `kubepods/burstable/pod<uid>/<id>` in every mounted hierarchy, a
pause container and one more, half of them with a CPU quota. The agents run side by side against an embedded server:
once with pods that sleep, once with pods that wake up twice a second, for which no reading can be skipped. Needs root.
"""

import contextlib
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

from benchmarks.agent import cpu_seconds, process, resident_bytes
from bus import server
from schemas import settings as all_settings
from schemas.sections.measurement import Sample

_TREES = ("", "unified", "memory", "cpu", "cpuacct", "cpu,cpuacct", "pids")
_AGENTS: dict[str, dict[str, str]] = {
    "everything": {},
    "without usage": {"SPAZIO_RUNTIME_USAGE": "false"},
    "samples only": {"SPAZIO_RUNTIME_USAGE": "false", "SPAZIO_CONTAINERS": "none"},
}
_TOP = "kubepods-benchmark"


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


def measure(count: int, seconds: float, *, awake: bool) -> dict[str, Any]:
    """Run the agents; return shares of a core and bytes."""
    with tempfile.TemporaryDirectory() as folder, pods(Sample().cgroup, Path(folder), count, awake=awake):
        port = server.free_port(0)
        settings = all_settings.load({"data_dir": folder, "nats_port": str(port)}, environ={})
        environ = {**os.environ, "SPAZIO_NATS_URL": f"nats://127.0.0.1:{port}", "SPAZIO_HTTP_PORT": "0"}
        environ["SPAZIO_DATA_DIR"] = folder
        with contextlib.ExitStack() as running:
            running.enter_context(process(server.command(server.find(), server.write_config(settings, port))))
            running.enter_context(process([sys.executable, "-m", "spazio", "process"], environ))
            agents = {}
            for name, own in _AGENTS.items():
                named = {**environ, **own, "SPAZIO_SAMPLE_NODE": name.replace(" ", "-")}
                agents[name] = running.enter_context(process([sys.executable, "-m", "spazio", "agent"], named)).pid
            time.sleep(8)
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


if __name__ == "__main__":
    numbers = [float(argument) for argument in sys.argv[1:3]]
    for awake in (False, True):
        result = measure(int(numbers[0]) if numbers else 200, numbers[1] if len(numbers) > 1 else 60, awake=awake)
        print(json.dumps(result, indent=2), flush=True)
