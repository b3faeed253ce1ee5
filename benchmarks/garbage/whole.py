"""The same with everything on: `python -m benchmarks.garbage.whole NODES SECONDS`.

`spazio up --nodes NODES` runs as a user starts it, first for so many seconds by itself and then for as many beside a
publisher that has a credential of the node `garbage` and sends 1,000 messages a second of the forms of
`benchmarks.garbage`. The result has, without and with it, the time from a block to its row in the cache (over the good
nodes), blocks of good nodes that the folds missed, left out or never saw, messages that folds skipped, what the history
lacks of them, shares of a core and memory of each process, and at the end whether the accounts add up.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from benchmarks import live
from benchmarks.agent import cpu_seconds, resident_bytes
from benchmarks.garbage.__main__ import NODE, flooded
from benchmarks.whole.__main__ import counts, flow, running
from bus import connection, stream
from bus.reading.reader import Reader
from schemas import codec
from schemas import settings as all_settings
from schemas.messages.estimate import Availability
from schemas.settings import Settings
from schemas.subject import Names
from spazio.credentials import authority
from spazio.service import addresses

_WARM_SECONDS = 40.0
_LOOK_SECONDS = 5.0
_WRITTEN_SECONDS = 10.0
_COUNTED = {
    "skipped": "spazio_messages_skipped_total",
    "leases_lost": "spazio_leases_lost_total",
    "dead_letters": "spazio_dead_letters_total",
    "history_gap_messages": "spazio_history_gap_messages_total",
    "history_missing_blocks": "spazio_history_missing_blocks_total",
}

_STORED = """
SELECT count(*) AS nodes, sum(samples) AS samples, sum(round((last - first) / 1e5) + 1 - distinct_samples) AS lacking,
       sum(samples - distinct_samples) AS twice
FROM (SELECT count(*) AS samples, count(DISTINCT at_us) AS distinct_samples, min(at_us) AS first, max(at_us) AS last
      FROM samples WHERE node LIKE 'sim-%' GROUP BY node)
"""


def permitted(settings: Settings) -> Settings:
    """Return settings with the server of a running `spazio up` and a new credential of the node that floods."""
    with authority.opened(settings.data.dir / authority.FOLDER, Names(settings.prefix)) as own:
        credential = own.node(NODE)
    url = addresses.read(settings)["nats"]
    nats = settings.nats.model_copy(update={"url": url, "credentials": credential})
    return settings.model_copy(update={"nats": nats})


async def missed(client: Client, settings: Settings) -> dict[str, tuple[int, int]]:
    """Return how many blocks of each good node the folds have missed and left out since its start."""
    names = Names(settings.prefix)
    end = (await stream.describe(client, names.estimates)).last
    result: dict[str, tuple[int, int]] = {}
    async with Reader(client, names.estimates, [names.of("availability", "*")], newest=True) as reader:
        while reader.position < end and (messages := await reader.read(timeout_seconds=1)):
            for message in messages:
                row = codec.decode(Availability, message.data)
                if row.node != NODE:
                    result[row.node] = (row.blocks.missing, row.blocks.late) if row.blocks else (0, 0)
    return result


async def observe(settings: Settings, seconds: float, flooding: Settings | None) -> dict[str, Any]:
    """Watch a running `spazio up`, beside garbage if there are settings to send it with."""
    names, pids = Names(settings.prefix), addresses.read(settings)["pids"]
    async with connection.connect(addresses.located(settings), "benchmark") as client:
        folds, counted = await missed(client, settings), counts(settings, _COUNTED)
        resident = {name: resident_bytes(pid) for name, pid in pids.items()}
        used = {name: cpu_seconds(pid) for name, pid in pids.items()}
        flood = asyncio.create_task(flooded(flooding, seconds)) if flooding else None
        began, began_us = time.monotonic(), time.time_ns() // 1000
        taken, most = list[float](), dict(resident)
        while time.monotonic() - began < seconds:
            looked_us = time.time_ns() // 1000
            await asyncio.sleep(_LOOK_SECONDS)
            taken += [delay for delay in await live.delays(client, names, began_us, looked_us) if delay > -1]
            most = {name: max(most[name], resident_bytes(pid)) for name, pid in pids.items()}
        elapsed = time.monotonic() - began
        shares = {name: round((cpu_seconds(pid) - used[name]) / elapsed, 3) for name, pid in pids.items()}
        sent = await flood if flood else 0
        last = await missed(client, settings)
        added = {name: round(value - counted[name]) for name, value in counts(settings, _COUNTED).items()}
        lag = await live.lag(client, names)
    taken.sort()
    return {
        "garbage_sent": sent,
        "rows_timed": len(taken),
        **{
            f"block_to_cache_p{share}_seconds": round(taken[len(taken) * share // 100], 3) if taken else None
            for share in (50, 90, 99)
        },
        "good_nodes": len(last),
        "good_nodes_gone": len(folds.keys() - last.keys()),
        "good_blocks_missing": sum(last[name][0] - folds.get(name, (0, 0))[0] for name in last),
        "good_blocks_late": sum(last[name][1] - folds.get(name, (0, 0))[1] for name in last),
        **added,
        "lag_messages": lag,
        "core_shares": shares,
        "resident_bytes_grown": {name: resident_bytes(pid) - resident[name] for name, pid in pids.items()},
        "resident_bytes_most": most,
    }


def stored(settings: Settings) -> dict[str, int]:
    """Return how many samples of good nodes the history lacks between the first and the last of each, and has twice."""
    command = [sys.executable, "-m", "spazio", "sql", "--data-dir", str(settings.data.dir), "--format", "json", _STORED]
    output = subprocess.run(command, capture_output=True, check=True, timeout=120).stdout
    (row,) = json.loads(output)
    return {name: int(value) for name, value in row.items()}


def measure(nodes: int, seconds: float, options: list[str]) -> dict[str, Any]:
    """Run everything and return the figures."""
    with tempfile.TemporaryDirectory() as folder:
        settings = all_settings.load({"data_dir": str(Path(folder) / "data")}, environ={})
        with running(settings, nodes, options) as log:
            time.sleep(_WARM_SECONDS)
            result: dict[str, Any] = {"nodes": nodes, "seconds": seconds, "options": options}
            result["clean"] = asyncio.run(observe(settings, seconds, None))
            result["dirty"] = asyncio.run(observe(settings, seconds, permitted(settings)))
            time.sleep(_WRITTEN_SECONDS)
            result["flow_status"] = flow(settings)
            result["history"] = stored(settings)
            content = addresses.read(settings)
            result["restarts"] = {name: content.get(name, {}) for name in ("restarts", "hung")}
            result["log"] = [line for line in log.read_text().splitlines() if line.startswith("{")]
    return result


def main() -> None:
    """Print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int, nargs="?", default=1000)
    parser.add_argument("seconds", type=float, nargs="?", default=120)
    parser.add_argument("options", nargs="*", help="options of `spazio up`, after --")
    asked = parser.parse_args()
    print(json.dumps(measure(asked.nodes, asked.seconds, asked.options), indent=2))


if __name__ == "__main__":
    main()
