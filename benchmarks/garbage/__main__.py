"""What good nodes notice of one node that sends garbage: `python -m benchmarks.garbage NODES SECONDS`.

A server, a processor with predictions off, the cache sink and the load generator run as separate processes, first
alone and then beside a publisher that sends 1,000 messages a second under the subjects of one node: bytes that are no
JSON, blocks of another node, numbers out of range, lists of thousands of wrong values, pods and containers with new
names all the time, and valid blocks with odd numbers. The result has, without and with it, the time from sending a
block to its row in the cache (p50 and p99 over the good nodes), blocks of good nodes that were not folded, and the
resident memory of each process.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from benchmarks import fold, live
from benchmarks.agent import cpu_seconds, process, resident_bytes
from bus import connection, server, stream
from bus.reading.reader import Reader
from schemas import codec, metric
from schemas import settings as all_settings
from schemas.messages.estimate import Availability
from schemas.settings import Settings
from schemas.subject import Names, kind_and_node

NODE = "garbage"
RATE = 1000
_BURST = 50
_WARM_SECONDS = 10.0
_MOST_BYTES = 20_000


def garbage(number: int, now_us: int) -> tuple[str, bytes]:
    """Return kind and payload of a message, another form each time."""
    block: dict[str, Any] = {
        "v": 1, "node": NODE, "boot": "b", "seq": now_us // 1_000_000, "at_us": now_us, "step_us": 100_000, "cpus": 4,
        "memory_bytes": 8 << 30, "metrics": list(metric.NAMES), "values": [0.5] * len(metric.NAMES) * 10,
    }  # fmt: skip
    source = random.Random(number)  # no secret
    forms: list[tuple[str, Any]] = [
        ("samples", source.randbytes(source.randrange(1, _MOST_BYTES))),
        ("samples", block | {"node": "good"}),
        ("samples", block | {"values": [-1.0] * len(metric.NAMES) * 10}),
        ("samples", block | {"values": ["x"] * 4000}),
        ("samples", block | {"boot": f"boot-{number}"}),
        ("samples", block | {"v": 99}),
        ("pods", _usage(number, now_us)),
        ("pods", {"v": 1, "node": NODE, "pods": [[]] * 2000}),
        ("containers", {
            "v": 1, "node": NODE, "boot": "b", "at_us": now_us, "boottime_us": now_us, "event": "created",
            "container": f"c{number}", "sources": ["cgroup"],
        }),
        ("edge", block | {"usage": [2.0] * 16}),
    ]  # fmt: skip
    kind, payload = forms[number % len(forms)]
    return kind, payload if isinstance(payload, bytes) else json.dumps(payload).encode()


def _usage(number: int, now_us: int) -> dict[str, Any]:
    pods = [f"pod-{number}-{index}" for index in range(20)]
    missing: list[None] = [None] * len(pods)
    names = ("namespaces", "names", "cpu_pressure", "memory_pressure", "io_pressure", "throttled")
    return {
        "v": 1, "node": NODE, "boot": "b", "seq": number, "at_us": now_us, "span_us": 1_000_000, "pods": pods,
        "workloads": [f"shop/{pod}" for pod in pods], "containers": [1] * len(pods), "cpu_cores": [1.0] * len(pods),
        "memory_bytes": [1e9] * len(pods), **dict.fromkeys(names, missing),
    }  # fmt: skip


async def flood(settings: Settings, seconds: float) -> int:
    """Publish garbage at the rate for so many seconds; return how many messages."""
    names, sent, began = Names(settings.prefix), 0, time.monotonic()
    async with connection.connect(settings, "garbage") as client:
        while (elapsed := time.monotonic() - began) < seconds:
            if sent < elapsed * RATE:
                for number in range(sent, sent + _BURST):
                    kind, payload = garbage(number, time.time_ns() // 1000)
                    await client.publish(names.node(kind, NODE), payload)
                sent += _BURST
            await asyncio.sleep(_BURST / RATE / 2)
    return sent


async def lost(client: Client, settings: Settings, first: int, last: int) -> int:
    """Return how many blocks of good nodes the folds have missed or left out so far, and nodes without a row.

    Args:
        client: Connection.
        settings: Prefix.
        first: Sequence of telemetry from which on a node must have a row.
        last: Sequence of telemetry up to which it must.
    """
    names, missing = Names(settings.prefix), 0
    end = (await stream.describe(client, names.estimates)).last
    async with Reader(client, names.estimates, [names.of("availability", "*")], newest=True) as reader:
        newest: dict[str, Availability] = {}
        while reader.position < end and (messages := await reader.read(timeout_seconds=1)):
            for message in messages:
                row = codec.decode(Availability, message.data)
                newest[row.node] = row
    for row in newest.values():
        if row.node != NODE and row.blocks is not None:
            missing += row.blocks.missing + row.blocks.late
    async with Reader(client, names.telemetry, [names.part("*", "samples")], after=first) as reader:
        seen: set[str] = set()
        while reader.position < last and (messages := await reader.read(timeout_seconds=1)):
            seen |= {kind_and_node(message.subject)[1] for message in messages}
    return missing + len({node for node in seen if node != NODE and node not in newest})


async def observe(settings: Settings, seconds: float, pids: dict[str, int], *, dirty: bool) -> dict[str, Any]:
    """Watch the running processes, with or without garbage."""
    names = Names(settings.prefix)
    before = {name: resident_bytes(pid) for name, pid in pids.items()}
    used = {name: cpu_seconds(pid) for name, pid in pids.items()}
    flooding = asyncio.create_task(flooded(settings, seconds)) if dirty else None
    async with connection.connect(settings, "benchmark") as client:
        first = (await stream.describe(client, names.telemetry)).last
        began, began_us, taken = time.monotonic(), time.time_ns() // 1000, list[float]()
        while time.monotonic() - began < seconds:
            looked_us = time.time_ns() // 1000
            await asyncio.sleep(5)
            taken += [delay for delay in await live.delays(client, names, began_us, looked_us) if delay > -1]
        sent = await flooding if flooding else 0
        elapsed = time.monotonic() - began
        shares = {name: round((cpu_seconds(pid) - used[name]) / elapsed, 3) for name, pid in pids.items()}
        last = (await stream.describe(client, names.telemetry)).last
        missing = await lost(client, settings, first, last)
        lag = await live.lag(client, names)
    taken.sort()
    return {
        "garbage_sent": sent,
        "rows_timed": len(taken),
        "block_to_cache_p50_seconds": round(taken[len(taken) // 2], 4) if taken else None,
        "block_to_cache_p99_seconds": round(taken[len(taken) * 99 // 100], 4) if taken else None,
        "good_blocks_lost": missing,
        "lag_messages": lag,
        "core_shares": shares,
        "resident_bytes": {name: resident_bytes(pid) for name, pid in pids.items()},
        "resident_bytes_grown": {name: resident_bytes(pid) - before[name] for name, pid in pids.items()},
    }


async def flooded(settings: Settings, seconds: float) -> int:
    """Flood from a process of its own, as another machine would."""
    flags = [sys.executable, "-m", "benchmarks.garbage", "--flood", str(seconds)]
    environ = {**os.environ, **all_settings.environment(settings)}
    running = await asyncio.create_subprocess_exec(*flags, env=environ, stdout=asyncio.subprocess.PIPE)
    output, _ = await running.communicate()
    return int(output)


def measure(nodes: int, seconds: float) -> dict[str, Any]:
    """Run all processes and return the figures."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        port = server.free_port(0)
        flags = {"data_dir": folder, "nats_url": f"nats://127.0.0.1:{port}", "http_port": "0"}
        settings = all_settings.load(flags | fold.predictions(enabled=False), environ={})
        command = server.command(server.find(), server.write_config(settings, port))
        environ = {key: value for key, value in os.environ.items() if not key.startswith(all_settings.ENV)}
        environ |= all_settings.environment(settings)
        spazio = [sys.executable, "-m", "spazio"]
        running = {"server": stack.enter_context(process(command))}
        running["process"] = stack.enter_context(process([*spazio, "process"], environ))
        running["cache"] = stack.enter_context(process([*spazio, "sink", "cache"], environ))
        asyncio.run(live.ready(settings))
        load = ["load", "--nodes", str(nodes), "--kinds", "samples", "--simulated-prepared-seconds", "4"]
        load += ["--simulated-metrics", ",".join(fold.METRICS["needed"])]
        stack.enter_context(process([*spazio, *load], environ))
        asyncio.run(live.flowing(settings))
        time.sleep(_WARM_SECONDS)
        pids = {name: service.pid for name, service in running.items()}
        result: dict[str, Any] = {"nodes": nodes, "seconds": seconds}
        for name, dirty in (("clean", False), ("dirty", True)):
            result[name] = asyncio.run(observe(settings, seconds, pids, dirty=dirty))
        result["stored_bytes"] = sum(path.stat().st_size for path in Path(folder).rglob("*.blk"))
        return result


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int, nargs="?", default=1000)
    parser.add_argument("seconds", type=float, nargs="?", default=120)
    parser.add_argument("--flood", type=float, default=0, help="only send garbage for so many seconds")
    asked = parser.parse_args()
    if asked.flood:
        print(asyncio.run(flood(all_settings.load({}), asked.flood)))
        return
    print(json.dumps(measure(asked.nodes, asked.seconds), indent=2))


if __name__ == "__main__":
    main()
