"""Nobody processes for a while; then the backlog is worked off, and what fell out of retention is counted.

    python -m tests.e2e.backlog --minutes 10 --nodes 1000 [--keep-bytes 400000000]

Nodes first report with a processor, until it knows them all, then without one; then the processor comes back.
"""

import argparse
import asyncio
import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from bus import connection, stream
from schemas import codec
from schemas import settings as all_settings
from schemas.messages.estimate import Availability
from schemas.settings import Settings
from spazio.service import processing
from tests.e2e.chaos import Service, ended
from tests.e2e.comparison import NAMES, PARTITIONS, compare_rows, folded, parts, read
from tests.e2e.servers import Servers
from tests.support.server.raw import eventually

_BEFORE_SECONDS = 5


async def missing(client: Client) -> dict[str, int]:
    """Return how many blocks each node is reported to miss."""
    missing_of: dict[str, int] = {}
    async for messages in read(client, NAMES.estimates, [NAMES.of("availability", "*")]):
        for subject, payload in messages:
            row = codec.decode_from(Availability, payload, subject)
            missing_of[row.node] = row.blocks.missing if row.blocks else 0
    return missing_of


async def knows(client: Client, nodes: int) -> bool:
    """Tell whether so many nodes have been folded."""
    return len(await missing(client)) >= nodes


async def stored(client: Client) -> int:
    """Return how many blocks the telemetry stream still holds."""
    state = await client.jetstream().stream_info(NAMES.telemetry, subjects_filter=NAMES.part("*", "samples"))
    return sum((state.state.subjects or {}).values())


def configured(url: str, folder: Path, *, nodes: int, keep_bytes: int) -> Settings:
    """Return the settings of all services."""
    options = {
        "nats_url": url,
        "data_dir": str(folder / "data"),
        "nats_partitions": str(PARTITIONS),
        "nats_telemetry_max_bytes": str(keep_bytes),
        "nats_estimates_max_bytes": str(16 << 30),
        "smoothing_publish": "false",
        "process_shed": "false",
        "simulated_nodes": str(nodes),
        "simulated_kinds": "samples",
        "log_format": "json",
    }
    return all_settings.load(options, environ={})


async def run(folder: Path, *, seconds: float, nodes: int, keep_bytes: int) -> dict[str, Any]:
    """Do it all; returns what came of it."""
    servers = Servers(folder, 1)
    await servers.start()
    settings = configured(servers.url, folder, nodes=nodes, keep_bytes=keep_bytes)
    with ended(servers) as services:
        async with connection.connect(settings, "backlog") as client:
            await stream.ensure(client, settings)
            process = Service(settings, folder / "process.log", "process")
            services.append(process)
            load = Service(settings, folder / "load.log", "load")
            services.append(load)
            await asyncio.sleep(_BEFORE_SECONDS)
            await eventually(lambda: knows(client, nodes), 60)
            await process.stop()
            await asyncio.sleep(seconds)
            await load.stop()
            waiting = await stored(client)
            began = time.monotonic()
            process.start()
            now = [
                part for part in parts(settings) if not part.startswith((processing.PREDICTION, processing.FORECAST))
            ]
            await folded(client, seconds + 600, now, 1)
            soon = time.monotonic() - began
            await folded(client, seconds + 600, parts(settings), 1)
            took = time.monotonic() - began
            await process.stop()
            messages = await missing(client)
            last = await stream.describe(client, NAMES.telemetry)
            whole = last.first == 1
            return {
                "stored_blocks": waiting,
                "worked_off_seconds": round(soon, 1),
                "times_real_time": round(waiting / nodes / soon, 1),
                "outlooks_too_seconds": round(took, 1),
                "outlooks_too_times_real_time": round(waiting / nodes / took, 1),
                "nodes": len(messages),
                "missing_blocks": sum(messages.values()),
                "fell_out": not whole,
                "rows": dict(await compare_rows(client, settings)) if whole else None,
            }


def main() -> None:
    """Run as a program."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--nodes", type=int, default=1000)
    options.add_argument("--keep-bytes", type=int, default=4 << 30, help="bound of the telemetry stream")
    chosen = options.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        result = run(folder, seconds=chosen.minutes * 60, nodes=chosen.nodes, keep_bytes=chosen.keep_bytes)
        print(json.dumps(asyncio.run(result), indent=2))


if __name__ == "__main__":
    main()
