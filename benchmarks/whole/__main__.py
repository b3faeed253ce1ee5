"""The whole of spazio with everything on, as a user starts it: `python -m benchmarks.whole NODES SECONDS [-- OPTIONS]`.

`spazio up --nodes NODES` runs in a folder of its own, after `--` with more of its options. The result has each
process's share of a core and memory, the age of availability as it reaches a subscriber, how many nodes it was of, what
a message takes in the streams, how many messages wait to be read, what the history wrote, and everything that should
not happen: messages skipped, leases lost, connections dropped, errors in the log, an account that does not add up.
Several numbers of nodes (`1000,2500`) are measured one after another, and also printed as rows of a table.

The age is from a block's last sample to the arrival of the row, so at least the time from the last sample to the next.
The age of blocks in the stream says how much of it is the load generator's: one that is behind sends old blocks.
"""

import argparse
import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from nats.aio.client import Client
from nats.aio.msg import Msg
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.agent import cpu_seconds, resident_bytes
from bus import connection
from schemas import settings as all_settings
from schemas.settings import Settings
from schemas.subject import Names
from spazio.service import addresses
from spazio.service.folding import PREDICTION

_READY_SECONDS, _STOP_SECONDS = 60.0, 30.0
_WARM_SECONDS = 30.0
_AGES = ("block_age_p50", "availability_age_p50", "availability_age_p99")
_COUNTED = {
    "messages_folded": "spazio_messages_folded_total",
    "messages_skipped": "spazio_messages_skipped_total",
    "leases_lost": "spazio_leases_lost_total",
    "connections_lost": "spazio_nats_disconnects_total",
    "history_rows": "spazio_history_rows_total",
}


@contextmanager
def running(settings: Settings, nodes: int, options: list[str]) -> Iterator[Path]:
    """Run `spazio up` for the duration of a `with` block; yields its log."""
    folder = settings.data.dir
    environ = {key: value for key, value in os.environ.items() if not key.startswith(all_settings.ENV)}
    ports = ["--data-dir", str(folder), "--nats-port", "0", "--http-port", "0"]
    command = [sys.executable, "-m", "spazio", "up", "--nodes", str(nodes), *ports, *options]
    log = folder.parent / "up.log"
    with log.open("wb") as output:
        up = subprocess.Popen(command, env=environ, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + _READY_SECONDS
        while not addresses.read(settings).get("pids", {}).get("load"):
            if up.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"spazio up did not start:\n{log.read_text()}")
            time.sleep(0.2)
        yield log
    finally:
        up.send_signal(signal.SIGINT)
        up.wait(_STOP_SECONDS)


async def observe(settings: Settings, seconds: float) -> dict[str, Any]:
    """Observe a running `spazio up`, after a while for it to settle."""
    names, ages, nodes = Names(settings.prefix), list[float](), Counter[str]()
    own = addresses.located(settings)
    async with connection.connect(own, "benchmark") as client:
        await asyncio.sleep(_WARM_SECONDS)

        async def take(message: Msg) -> None:
            row = json.loads(message.data)
            ages.append(time.time() - row["at_us"] / 1e6)
            nodes[row["node"]] += 1

        pids: dict[str, int] = addresses.read(settings)["pids"]
        before, stored, counted, waiting = (
            {name: cpu_seconds(pid) for name, pid in pids.items()},
            await _stored(client, names),
            counts(settings, _COUNTED),
            await _waiting(client, names),
        )
        began = time.monotonic()
        # Only while nothing else is asked for: pages of metrics are read in this thread, and rows would wait meanwhile.
        following = await client.subscribe(names.of("availability", "*"), cb=take)
        late = await _late(client, names, seconds)
        await following.unsubscribe()
        elapsed = time.monotonic() - began
        shares = {name: round((cpu_seconds(pid) - before[name]) / elapsed, 3) for name, pid in pids.items()}
        added = {name: value - counted[name] for name, value in counts(settings, _COUNTED).items()}
        streams = {name: value - stored[name] for name, value in (await _stored(client, names)).items()}
        waiting_then = await _waiting(client, names)
    times = np.array(ages) if ages else np.array([np.nan])
    return {
        "core_shares": shares,
        "resident_bytes": {name: resident_bytes(pid) for name, pid in pids.items()},
        "availability_age_p50_seconds": round(float(np.quantile(times, 0.5)), 3),
        "availability_age_p99_seconds": round(float(np.quantile(times, 0.99)), 3),
        "block_age_p50_seconds": round(float(np.nanmedian(late)), 3),
        "nodes_with_availability": len(nodes),
        "messages_waiting": {"first": waiting, "last": waiting_then},
        "messages_a_second": {name: round(value / elapsed) for name, value in streams.items()},
        **{name: round(value) for name, value in added.items()},
    }


async def _late(client: Client, names: Names, seconds: float) -> list[float]:
    """Return how old the newest block in the stream is, each second for so long: how far senders are behind."""
    ages, end, js = list[float](), time.monotonic() + seconds, client.jetstream()
    while (left := end - time.monotonic()) > 0:
        await asyncio.sleep(min(1.0, left))
        newest = await js.get_msg(names.telemetry, (await js.stream_info(names.telemetry)).state.last_seq)
        ages.append(time.time() - json.loads(newest.data or b"{}").get("at_us", math.nan) / 1e6)
    return ages


async def _stored(client: Client, names: Names) -> dict[str, int]:
    """Return the newest sequence of the streams."""
    js = client.jetstream()
    return {name: (await js.stream_info(name)).state.last_seq for name in (names.telemetry, names.estimates)}


async def _waiting(client: Client, names: Names) -> int:
    """Return the number of telemetry messages that readers have not been sent yet, over all but predictions.

    These take what the reader of the estimates has read, so what the server has not sent them says nothing.
    """
    readers = await client.jetstream().consumers_info(names.telemetry)
    return sum(info.num_pending or 0 for info in readers if not info.name.startswith(PREDICTION))


def flow(settings: Settings) -> int:
    """Return the exit status of `spazio doctor --flow`: 0 if what was published, read and stored adds up."""
    command = [sys.executable, "-m", "spazio", "doctor", "--flow", "--data-dir", str(settings.data.dir)]
    return subprocess.run(command, capture_output=True, check=False, timeout=120).returncode


async def sizes(settings: Settings) -> dict[str, float]:
    """Return the mean size of a stored message of each stream, in bytes, before compression."""
    names = Names(settings.prefix)
    async with connection.connect(addresses.located(settings), "benchmark") as client:
        js = client.jetstream()
        states = {name: (await js.stream_info(name)).state for name in (names.telemetry, names.estimates)}
    return {name: round(state.bytes / max(1, state.messages)) for name, state in states.items()}


def counts(settings: Settings, metrics: Mapping[str, str]) -> dict[str, float]:
    """Return the sums over all services of metrics, by the names that they are to have."""
    total: dict[str, float] = defaultdict(float)
    for name in addresses.read(settings)["pids"].keys() - {"nats", "up"}:
        address = json.loads((settings.data.dir / "run" / f"{name}.json").read_text())["http"]
        page = urllib.request.urlopen(f"{address}/metrics", timeout=10).read().decode()
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                total[sample.name] += sample.value
    return {name: total[metric] for name, metric in metrics.items()}


def disk_bytes(settings: Settings) -> dict[str, int]:
    """Return the bytes of the files of the two folders that grow."""
    return {name: _size(settings.data.dir / name) for name in ("nats", "history")}


def _size(folder: Path) -> int:
    """Return the bytes of a folder's files, without those that go meanwhile."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(parent) / name).stat().st_size
    return total


def errors(log: Path) -> dict[str, int]:
    """Return how often each error stands in a log, by service and event."""
    lines = map(json.loads, filter(lambda text: text.startswith("{"), log.read_text().splitlines()))
    serious = ("error", "critical")
    return dict(Counter(f"{line['service']} {line['event']}" for line in lines if line["level"] in serious))


def measure(nodes: int, seconds: float, options: list[str]) -> dict[str, Any]:
    """Run everything and return the figures."""
    with tempfile.TemporaryDirectory() as folder:
        settings = all_settings.load({"data_dir": str(Path(folder) / "data")}, environ={})
        with running(settings, nodes, options) as log:
            result = asyncio.run(observe(settings, seconds))
            result["resident_bytes_in_all"] = sum(result["resident_bytes"].values())
            result["flow_status"] = flow(settings)
            result["bytes_a_message"] = asyncio.run(sizes(settings))
            result["disk_bytes"] = disk_bytes(settings)
            result["errors"] = errors(log)
    return {"nodes": nodes, "seconds": seconds, "options": options, **result}


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Return figures as rows of a Markdown table."""
    services = list(results[0]["core_shares"])
    heads = ["nodes", *services, "memory of all", "block age", "age p50", "age p99", "waiting", "skipped", "errors"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for result in results:
        waiting = result["messages_waiting"]
        cells = [
            f"{result['nodes']:,}",
            *(f"{result['core_shares'].get(name, 0.0):.2f}" for name in services),
            f"{result['resident_bytes_in_all'] / 1e9:.2f} GB",
            *(f"{result[f'{age}_seconds']:.2f} s" for age in _AGES),
            f"{waiting['first']:,} to {waiting['last']:,}",
            f"{result['messages_skipped']:,}",
            str(sum(result["errors"].values())),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Print the figures as JSON, those of several numbers of nodes also as a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nodes", nargs="?", default="1000", help="number of nodes, or several with commas")
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    parser.add_argument("options", nargs="*", help="options of `spazio up`, after --")
    asked = parser.parse_args()
    results = [measure(int(nodes), asked.seconds, asked.options) for nodes in asked.nodes.split(",")]
    for result in results:
        print(json.dumps(result, indent=2))
    print(table(results))


if __name__ == "__main__":
    main()
