"""Cost and latency of following containers: the agent's CPU of one core, and milliseconds to a subscriber.

Containers are real control groups with a sleeping process each, in every tree that the agent may read. An agent with
its cgroup source and one without sources run side by side while no container starts or ends. Then the benchmark starts
and ends more containers one at a time, and a subscriber measures the time from the mkdir, and from the kill, to the
arrival of the event. Making cgroups needs root.
"""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
from nats.aio.msg import Msg

from benchmarks.agent import cpu_seconds, process, resident_bytes
from bus import server
from producers.pods import cgroup
from schemas import settings as all_settings
from schemas.sections.measurement import Sample

_SETTLE_SECONDS = 6.0
_GROUP = f"spazio-bench-{secrets.token_hex(4)}"
_SOURCES = ("none", "cgroup")


class Container:
    """A control group with a process in it, in every tree."""

    def __init__(self, trees: list[Path]) -> None:
        self.id = secrets.token_hex(32)
        self._paths = [tree / _GROUP / self.id for tree in trees]
        self._process: subprocess.Popen[bytes] | None = None

    def make(self) -> None:
        """Make the groups, as a runtime does before it starts a process."""
        for path in self._paths:
            path.mkdir(parents=True)

    def start(self) -> None:
        """Put a process into them."""
        self._process = subprocess.Popen(["sleep", "infinity"])
        for path in self._paths:
            (path / "cgroup.procs").write_text(f"{self._process.pid}")

    def end(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)

    def remove(self) -> None:
        """Remove the groups."""
        if self._process is not None:
            self._process.wait()
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                path.rmdir()


@contextlib.contextmanager
def idle(trees: list[Path], count: int) -> Iterator[None]:
    """Keep `count` containers for the duration of a `with` block."""
    containers = [Container(trees) for _ in range(count)]
    try:
        for container in containers:
            container.make()
            container.start()
        yield
    finally:
        for container in containers:
            container.end()
            container.remove()
        for tree in trees:
            (tree / _GROUP).rmdir()


async def latencies(url: str, trees: list[Path], count: int) -> dict[str, float]:
    """Return milliseconds from the mkdir to `created`, and from the kill to `exited`, as a subscriber measures them."""
    arrived: dict[tuple[str, str], float] = {}
    client = await nats.connect(url)

    async def take(message: Msg) -> None:
        now, event = time.monotonic(), json.loads(message.data)
        arrived[event["container"], event["event"]] = now

    async def arrival(container: Container, event: str) -> float:
        async with asyncio.timeout(10):
            while True:
                if (container.id, event) in arrived:
                    return arrived[container.id, event]
                await asyncio.sleep(0.001)

    await client.subscribe("spazio.containers.*", cb=take)
    took: dict[str, list[float]] = {"created": [], "exited": []}
    for _ in range(count):
        container = Container(trees)
        began = time.monotonic()
        container.make()
        took["created"].append(await arrival(container, "created") - began)
        container.start()
        await arrival(container, "started")
        await asyncio.sleep(0.05)
        began = time.monotonic()
        container.end()
        took["exited"].append(await arrival(container, "exited") - began)
        container.remove()
        await arrival(container, "deleted")
    await client.close()
    return {
        f"{event}_{name}_ms": round(statistics.quantiles(values, n=20)[index] * 1000, 2)
        for event, values in took.items()
        for name, index in (("p50", 9), ("p95", 18))
    }


def measure(count: int, seconds: float) -> dict[str, Any]:
    """Run the agents; return shares of a core, bytes and latencies."""
    trees = cgroup.trees(Sample().cgroup)
    with tempfile.TemporaryDirectory() as folder, idle(trees, count), contextlib.ExitStack() as running:
        port = server.free_port(0)
        url = f"nats://127.0.0.1:{port}"
        settings = all_settings.load({"data_dir": folder, "nats_port": str(port)}, environ={})
        environ = {**os.environ, "SPAZIO_NATS_URL": url, "SPAZIO_HTTP_PORT": "0", "SPAZIO_DATA_DIR": folder}
        running.enter_context(process(server.command(server.find(), server.write_config(settings, port))))
        running.enter_context(process([sys.executable, "-m", "spazio", "process"], environ))
        agents = {}
        for name in _SOURCES:
            own = {"SPAZIO_SAMPLE_NODE": name, "SPAZIO_RUNTIME_USAGE": "false", "SPAZIO_CONTAINERS": name}
            agents[name] = running.enter_context(process([sys.executable, "-m", "spazio", "agent"], environ | own)).pid
        time.sleep(_SETTLE_SECONDS)
        before = {name: cpu_seconds(pid) for name, pid in agents.items()}
        began = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        result: dict[str, Any] = {"containers": count, "seconds": round(took, 1)}
        for name, pid in agents.items():
            result[f"{name}_core_share"] = round((cpu_seconds(pid) - before[name]) / took, 5)
            result[f"{name}_resident_bytes"] = resident_bytes(pid)
        return result | asyncio.run(latencies(url, trees, 100))


if __name__ == "__main__":
    numbers = [float(argument) for argument in sys.argv[1:3]]
    print(json.dumps(measure(int(numbers[0]) if numbers else 200, numbers[1] if len(numbers) > 1 else 60), indent=2))
