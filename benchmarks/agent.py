"""Cost of the agent: CPU of one core and resident memory over a minute, alone and next to node_exporter.

The benchmark scrapes node_exporter (Debian: prometheus-node-exporter) ten times a second on the same machine in the
same run, once with its default collectors and once with only the six that read the agent's files. It measures both
sides the same way: CPU time of the process from /proc/PID/stat, before and after.
"""

import asyncio
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bus import connection, server, stream
from schemas import settings as all_settings
from spazio.service import child

_TICKS = os.sysconf("SC_CLK_TCK")
_START_SECONDS = 10.0
SIX = ("cpu", "meminfo", "pressure", "diskstats", "netdev", "loadavg")


def cpu_seconds(pid: int) -> float:
    """Return user plus system time of a process and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


@contextmanager
def process(command: list[str], environ: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program for the duration of a `with` block."""
    started = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.terminate()
        started.wait()


@contextmanager
def served() -> Iterator[dict[str, str]]:
    """Run a NATS server with spazio's streams for the duration of a `with` block.

    Yields:
        Environment of services that publish to it. Without streams they would send each block again and again.
    """
    with tempfile.TemporaryDirectory() as folder:
        port = server.free_port(0)
        url = f"nats://127.0.0.1:{port}"
        settings = all_settings.load({"data_dir": folder, "nats_port": str(port), "nats_url": url}, environ={})
        with process(server.command(server.find(), server.write_config(settings, port))):
            asyncio.run(_create_streams(settings, port))
            own = {"SPAZIO_NATS_URL": url, "SPAZIO_HTTP_PORT": "0", "SPAZIO_DATA_DIR": folder}
            yield {**os.environ, **own}


async def _create_streams(settings: all_settings.Settings, port: int) -> None:
    await asyncio.wait_for(child.listening(port, settings.prefix), _START_SECONDS)
    async with connection.connect(settings, "benchmark") as client:
        await stream.ensure(client, settings)


@contextmanager
def scraped(port: int) -> Iterator[None]:
    """Scrape a Prometheus endpoint ten times a second for the duration of a `with` block."""
    stop = threading.Event()

    def scrape() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        due = time.monotonic()
        while not stop.is_set():
            connection.request("GET", "/metrics")
            connection.getresponse().read()
            due += 0.1
            time.sleep(max(0.0, due - time.monotonic()))

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def exporter(port: int, collectors: tuple[str, ...]) -> list[str]:
    """Return the command line of node_exporter; no collectors: its defaults."""
    command = ["prometheus-node-exporter", f"--web.listen-address=127.0.0.1:{port}"]
    if collectors:
        command += ["--collector.disable-defaults", *(f"--collector.{name}" for name in collectors)]
    return command


def measure(seconds: float) -> dict[str, Any]:
    """Run agent and exporters side by side; return shares of a core, bytes and ratios."""
    with (
        served() as environ,
        process([sys.executable, "-m", "spazio", "process"], environ),
        process([sys.executable, "-m", "spazio", "agent"], environ) as agent,
    ):
        time.sleep(5)
        watched = {"agent": agent.pid}
        if shutil.which("prometheus-node-exporter") is None:
            return _result(watched, seconds)
        first, second = server.free_port(0), server.free_port(0)
        with process(exporter(first, ())) as every, process(exporter(second, SIX)) as six:
            time.sleep(2)
            with scraped(first), scraped(second):
                return _result(watched | {"exporter": every.pid, "exporter_six": six.pid}, seconds)


def _result(watched: dict[str, int], seconds: float) -> dict[str, Any]:
    before = {name: cpu_seconds(pid) for name, pid in watched.items()}
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    share = {name: (cpu_seconds(pid) - before[name]) / took for name, pid in watched.items()}
    result: dict[str, Any] = {"seconds": round(took, 1), "agent_resident_bytes": resident_bytes(watched["agent"])}
    result |= {f"{name}_core_share": round(value, 5) for name, value in share.items()}
    for name in ("exporter", "exporter_six"):
        if name in share and share["agent"]:
            result[f"{name}_times_agent"] = round(share[name] / share["agent"], 1)
    return result


if __name__ == "__main__":
    print(json.dumps(measure(float(sys.argv[1]) if len(sys.argv) > 1 else 60), indent=2))
