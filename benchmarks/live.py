"""Number of simulated nodes that this machine serves live: `python -m benchmarks.live NODES SECONDS`.

A server with file storage, a processor, the cache sink and the load generator run as separate processes. The load
generator sends prepared blocks, with the metrics of the estimates or with all metrics. The processor computes only
availability, without predictions. The result has each process's share of a core and memory, the lag of the folds behind
the stream over time, and the time from sending a block to its row in the cache. The server's time stamps of the cache's
rows give that time, several times during the run, for the newest row of every node.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from nats.aio.client import Client
from nats.js.api import ConsumerInfo

from benchmarks import fold
from benchmarks.agent import cpu_seconds, process, resident_bytes
from bus import connection, server, stream
from bus.reading.reader import Reader
from schemas import settings as all_settings
from schemas.settings import Settings
from schemas.subject import Names

_WARM_SECONDS = 10.0
_LOOK_SECONDS = 5.0
_CACHE_SECONDS = 20.0
_STEP_US = 100_000


async def lag(client: Client, names: Names) -> int:
    """Return the number of messages that the server has not delivered to processors, over all partitions."""
    consumers: list[ConsumerInfo] = []
    while page := await client.jetstream().consumers_info(names.telemetry, offset=len(consumers)):
        consumers += page
    return sum(info.num_pending or 0 for info in consumers if info.config.durable_name)


async def delays(client: Client, names: Names, since_us: int, stored_us: int = 0) -> list[float]:
    """Return, for every node's newest row of the cache, the seconds from its block to the row.

    A block is sent when its last sample is a step old; excludes rows of blocks before `since_us`, and rows that were
    stored before `stored_us`. To leave out older blocks at each look would leave late rows out.
    """
    seconds: list[float] = []
    bucket = f"KV_{names.availability_bucket}"
    end = (await stream.describe(client, bucket)).last
    async with Reader(client, bucket, [f"$KV.{names.availability_bucket}.>"], newest=True) as reader:
        while reader.position < end and (rows := await reader.read(timeout_seconds=_CACHE_SECONDS)):
            for row in rows:
                at_us = json.loads(row.data)["at_us"] if row.data else 0
                if at_us >= since_us and row.stored_us >= stored_us:
                    seconds.append((row.stored_us - at_us - _STEP_US) / 1e6)
    return seconds


async def watch(settings: Settings, seconds: float, watched: dict[str, int]) -> dict[str, Any]:
    """Observe running processes for `seconds` after a warm-up."""
    names = Names(settings.prefix)
    async with connection.connect(settings, "benchmark") as client:
        await asyncio.sleep(_WARM_SECONDS)
        before = {name: cpu_seconds(pid) for name, pid in watched.items()}
        first, estimates = (
            await stream.describe(client, names.telemetry),
            await stream.describe(client, names.estimates),
        )
        began, since_us = time.monotonic(), time.time_ns() // 1000
        lags: list[tuple[float, int]] = []
        taken: list[float] = []
        due = began + _CACHE_SECONDS
        while (elapsed := time.monotonic() - began) < seconds:
            await asyncio.sleep(min(_LOOK_SECONDS, seconds - elapsed))
            lags.append((round(time.monotonic() - began, 1), await lag(client, names)))
            if time.monotonic() >= due or time.monotonic() - began >= seconds:
                taken += await delays(client, names, since_us)
                due += _CACHE_SECONDS
        elapsed = time.monotonic() - began
        shares = {name: round((cpu_seconds(pid) - before[name]) / elapsed, 4) for name, pid in watched.items()}
        last = await stream.describe(client, names.telemetry)
        stored = (await stream.describe(client, names.estimates)).last - estimates.last
    times = np.array(taken) if taken else np.array([np.nan])
    return {
        "rate": round((last.last - first.last) / elapsed, 1),
        "estimates_per_block": round(stored / max(1, last.last - first.last), 3),  # including cursors
        "core_shares": shares,
        "lag_messages": lags,
        "rows_timed": len(taken),
        "block_to_cache_p50_seconds": round(float(np.quantile(times, 0.5)), 4),
        "block_to_cache_p99_seconds": round(float(np.quantile(times, 0.99)), 4),
    }


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Run all processes and return the figures."""
    nodes, seconds, metrics = asked.nodes, asked.seconds, fold.METRICS[asked.metrics]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        port = server.free_port(0)
        flags = {"data_dir": folder, "nats_url": f"nats://127.0.0.1:{port}", "http_port": "0"}
        flags |= {"nats_telemetry_max_bytes": str(8 << 30), "nats_estimates_max_bytes": str(4 << 30)}
        flags |= fold.predictions(enabled=False) | {"process_nodes_max": str(nodes)}
        settings = all_settings.load(flags, environ={})
        command = server.command(server.find(), server.write_config(settings, port))
        environ = {key: value for key, value in os.environ.items() if not key.startswith(all_settings.ENV)}
        environ |= all_settings.environment(settings)
        spazio = [sys.executable, "-m", "spazio"]
        running = {"server": stack.enter_context(process(command))}
        running["process"] = stack.enter_context(process([*spazio, "process", *asked.process], environ))
        running["cache"] = stack.enter_context(process([*spazio, "sink", "cache"], environ))
        asyncio.run(ready(settings))
        empty = resident_bytes(running["process"].pid)
        load = ["load", "--nodes", str(nodes), "--kinds", "samples", "--simulated-in-flight", "20000"]
        load += ["--simulated-metrics", ",".join(metrics), "--simulated-prepared-seconds", str(asked.prepared)]
        running["load"] = stack.enter_context(process([*spazio, *load], environ))
        asyncio.run(flowing(settings))
        pids = {name: service.pid for name, service in running.items()}
        result = asyncio.run(watch(settings, seconds, pids))
        resident = {name: resident_bytes(pid) for name, pid in pids.items()}
        stored = sum(path.stat().st_size for path in Path(folder).rglob("*.blk"))
    return {
        "nodes": nodes,
        "seconds": seconds,
        "metrics": len(metrics),
        **result,
        "resident_bytes": resident,
        "process_bytes_per_node": round((resident["process"] - empty) / nodes),
        "stored_bytes": stored,
    }


async def ready(settings: Settings) -> None:
    """Wait until the processor and the cache sink have created the streams and subscribed."""
    async with connection.connect(settings, "benchmark") as client:
        await stream.ensure(client, settings)
    await asyncio.sleep(_WARM_SECONDS / 2)


async def flowing(settings: Settings) -> None:
    """Wait until blocks arrive: the load generator prepares them first."""
    async with connection.connect(settings, "benchmark") as client:
        while not (await stream.describe(client, Names(settings.prefix).telemetry)).last:  # noqa: ASYNC110 # a stream sends no notice
            await asyncio.sleep(0.2)


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--prepared", type=int, default=4, help="seconds that the load generator prepares")
    parser.add_argument("--metrics", choices=fold.METRICS, default="needed", help="metrics of a block")
    parser.add_argument("process", nargs="*", help="options of `spazio process`, after --")
    print(json.dumps(measure(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
