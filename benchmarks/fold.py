"""Cost of folding for a processor: blocks per second of its own CPU, and memory per node.

The benchmark first fills the telemetry stream with the messages of agents: every second one block of ten samples of
each node. Then a real `spazio process` folds the stream, and the benchmark reads its CPU time from /proc when its
cursors cover the stream. The reporting rule decides which rows are published, so their number depends on the
variation of usage: `--noise` is the standard deviation of a sample of CPU utilisation. `--predictions` adds predictions
(peaks, reject signal, forecasts).
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from nats.aio.client import Client

from benchmarks.agent import cpu_seconds, process, resident_bytes
from bus import connection, server, stream
from bus.publishing import batch
from processors.estimation import resource
from schemas import codec, metric
from schemas import settings as all_settings
from schemas.messages.telemetry import SampleBlock
from schemas.settings import Settings
from schemas.subject import Names

SAMPLES = 10
_START = 1_700_000_000
_COURSES = 200
_CHUNK = 2000
_QUIET_SECONDS = 1.0
METRICS = {"all": metric.NAMES, "needed": (*resource.METRICS, "pods")}


def predictions(*, enabled: bool) -> dict[str, str]:
    """Return the flags that enable or disable predictions of a processor."""
    return {f"{part}_enabled": str(enabled).lower() for part in ("predict", "reject", "forecast")}


def courses(seconds: int, noise: float, names: Sequence[str], seed: int = 1) -> Iterator[list[str]]:
    """Yield the values of some nodes, as JSON, second by second; many nodes share a course.

    Usage is a level of the node, the usage of its pods, and noise; a pod starts or ends in one of a hundred seconds.
    """
    random = np.random.default_rng(seed)
    pods = random.integers(0, 40, _COURSES)
    level, size = random.uniform(0.02, 0.2, _COURSES), random.uniform(0.002, 0.015, _COURSES)
    moving = {
        "cpu_pressure": 0.1,
        "cpu_throttled": 0.1,
        "memory_pressure": 0.02,
        "io_pressure": 0.05,
        "disk_util": 0.1,
    }
    for _ in range(seconds):
        came = random.random(_COURSES)
        pods = np.maximum(pods + (came < 0.005) - (came > 0.995), 0)
        shape = (_COURSES, SAMPLES)
        columns = {
            "cpu_util": np.clip((level + size * pods)[:, None] + random.normal(0, noise, shape), 0, 1),
            "memory_util": np.clip((0.2 + 0.01 * pods)[:, None] + random.normal(0, noise / 50, shape), 0, 1),
            "pods": np.broadcast_to(pods[:, None], shape).astype(float),
            "disk_bytes": random.integers(0, 10**8, shape).astype(float),
            "net_bytes": random.integers(0, 10**8, shape).astype(float),
            "procs_running": random.integers(1, 20, shape).astype(float),
            "load1": np.round(random.uniform(0, 8, shape), 2),
        }
        columns |= {name: np.clip(random.normal(0, noise * high * 5, shape), 0, 1) for name, high in moving.items()}
        columns["memory_used"] = columns["memory_util"]
        columns["memory_stall"], columns["io_stall"] = columns["memory_pressure"] / 2, columns["io_pressure"] / 2
        values = np.round(np.stack([columns[name] for name in names], axis=-1), 4)
        yield [json.dumps(row.ravel().tolist(), separators=(",", ":")) for row in values]


async def fill(
    client: Client, settings: Settings, nodes: int, seconds: int, noise: float, metrics: Sequence[str]
) -> int:
    """Publish every node's blocks, second by second, and return the bytes of a payload."""
    names, js = Names(settings.prefix), client.jetstream(timeout=30)
    subjects = [names.node("samples", f"node-{index}") for index in range(nodes)]
    heads = [f'{{"v":1,"node":"node-{index}","boot":"5f1c2a6e-0d43-4a5e-9b57-1f7c3d2e8a90"' for index in range(nodes)]
    columns = json.dumps(metrics, separators=(",", ":"))
    payload, sent = b"", 0
    for second, values in enumerate(courses(seconds, noise, metrics)):
        at_us = (_START + second) * 1_000_000
        for index, (subject, head) in enumerate(zip(subjects, heads, strict=True)):
            payload = (
                f'{head},"seq":{1000 + second},"at_us":{at_us + index % 1000},"step_us":100000,"cpus":16,'
                f'"memory_bytes":68719476736,"metrics":{columns},"values":{values[index % _COURSES]}}}'
            ).encode()
            sent += 1
            # The server drops messages that come too fast, so one of `_CHUNK` messages waits until it is stored.
            if sent % _CHUNK:
                await client.publish(subject, payload)
            else:
                await js.publish(subject, payload)
        if second == 0:
            codec.decode(SampleBlock, payload)
    await client.flush(30)
    while (await stream.describe(client, names.telemetry)).last < sent:  # noqa: ASYNC110 # the server stores it
        await asyncio.sleep(0.05)
    return len(payload)


async def cursors(client: Client, settings: Settings) -> list[int]:
    """Return the sequences of all partitions' cursors in their stream; they change with each write of a cursor."""
    names = Names(settings.prefix)
    subjects = [names.of("cursor", str(number)) for number in range(settings.nats.partitions)]
    return [(await batch.last(client, names.estimates, subject)).sequence for subject in subjects]


def counter(settings: Settings, name: str) -> float:
    """Return one of the processor's own counters."""
    address = json.loads((settings.data.dir / "run" / "process.json").read_text())["http"]
    with urllib.request.urlopen(f"{address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


async def idle(client: Client, settings: Settings, pid: int) -> None:
    """Wait until a processor has published everything and is idle."""
    previous, used = [-1], 0.0
    while True:
        now, cpu = await cursors(client, settings), cpu_seconds(pid)
        if now == previous and cpu - used < 0.1 * _QUIET_SECONDS:
            return
        previous, used = now, cpu
        await asyncio.sleep(_QUIET_SECONDS)


async def run(client: Client, settings: Settings) -> dict[str, Any]:
    """Run a processor until it is idle; return its CPU seconds, resident bytes and counters."""
    command = [sys.executable, "-m", "spazio", "process"]
    with process(command, {**os.environ, **all_settings.environment(settings)}) as running:
        while not (settings.data.dir / "run" / "process.json").exists():  # another process writes it
            if running.poll() is not None:
                raise RuntimeError(f"the processor ended with status {running.returncode}")
            await asyncio.sleep(0.1)
        began = time.monotonic()
        await asyncio.sleep(_QUIET_SECONDS)
        await idle(client, settings, running.pid)
        return {
            "wall": time.monotonic() - began - _QUIET_SECONDS,
            "cpu": cpu_seconds(running.pid),
            "resident": resident_bytes(running.pid),
            "messages": await asyncio.to_thread(counter, settings, "spazio_messages_folded_total"),
            "rows": await asyncio.to_thread(counter, settings, "spazio_rows_published_total"),
            "folds": await asyncio.to_thread(counter, settings, "spazio_fold_duration_seconds_count"),
        }


async def measure(folder: Path, asked: argparse.Namespace, nodes: int) -> dict[str, Any]:
    """Fill a stream and fold it; return figures."""
    port = server.free_port(0)
    settings = all_settings.load(
        {
            "data_dir": str(folder),
            "nats_url": f"nats://127.0.0.1:{port}",
            "http_port": "0",
            "nats_telemetry_max_bytes": str(8 << 30),
            "nats_estimates_max_bytes": str(8 << 30),
            "smoothing_publish": str(asked.smoothed).lower(),
            "process_nodes_max": str(nodes),
            "process_shed": "false",  # all is there at once
            **predictions(enabled=asked.predictions),
        },
        environ={},
    )
    seconds = max(3, round(asked.blocks / nodes))
    with process(server.command(server.find(), server.write_config(settings, port))):
        async with connection.connect(settings, "benchmark") as client:
            await stream.ensure(client, settings)
            empty = await run(client, settings)
            size = await fill(client, settings, nodes, seconds, asked.noise, METRICS[asked.metrics])
            result = await run(client, settings)
    cpu = result["cpu"] - empty["cpu"]
    if result["messages"] < nodes * seconds:
        raise RuntimeError(f"only {result['messages']:.0f} of {nodes * seconds} blocks were folded")
    return {
        "nodes": nodes,
        "blocks": nodes * seconds,
        "payload_bytes": size,
        "smoothed_rows": asked.smoothed,
        "predictions": asked.predictions,
        "metrics": len(METRICS[asked.metrics]),
        "noise": asked.noise,
        "blocks_per_cpu_second": round(nodes * seconds / cpu),
        "cpu_seconds": round(cpu, 2),
        "start_cpu_seconds": round(empty["cpu"], 2),
        "wall_seconds": round(result["wall"], 1),
        "rows_per_block": round(result["rows"] / (nodes * seconds), 3),
        "blocks_per_fold": round(result["messages"] / result["folds"]),
        "resident_bytes": result["resident"],
        "resident_bytes_per_node": round((result["resident"] - empty["resident"]) / nodes),
    }


def arguments() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1_000, 10_000, 20_000])
    parser.add_argument("--blocks", type=int, default=400_000, help="blocks in the stream, over all nodes")
    parser.add_argument(
        "--metrics", choices=METRICS, default="all", help="all metrics of agents, or those of the estimates"
    )
    parser.add_argument("--noise", type=float, default=0.005, help="deviation of a sample of CPU utilisation, ratio")
    parser.add_argument("--smoothed", action="store_true", help="publish smoothed rows, too")
    parser.add_argument("--predictions", action="store_true", help="compute predictions, too")
    return parser.parse_args()


def main() -> None:
    """Print one line of JSON for each number of nodes."""
    asked = arguments()
    for nodes in asked.nodes:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(asyncio.run(measure(Path(folder), asked, nodes))), flush=True)


if __name__ == "__main__":
    main()
