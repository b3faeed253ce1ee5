"""Everything dies, again and again, while telemetry comes; then each row is compared with an undisturbed replay.

    python -m tests.e2e.chaos --minutes 10 --nodes 2000 --seed 7 [--cluster]

Replicas of the processors are killed, stopped and continued, the server is made to take parts from them, sinks are
killed, and so is the server itself, or with --cluster the leader of the telemetry stream among three. What they
leave behind must be, message by message and in order, what one process makes of the recorded streams.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats.errors
from nats.aio.client import Client

from bus import api, connection, stream
from schemas import settings as all_settings
from schemas.sections.generator import SIMULATED_KINDS
from schemas.settings import Settings
from sinks.history import layout
from tests.e2e.comparison import NAMES, PARTITIONS, compare, consumer, folded, last_sequence, parts
from tests.e2e.servers import Servers
from tests.e2e.silence import Silence, steady_parts
from tests.support.server.program import SPAZIO, Program

REPLICAS = 3


class Service(Program):
    """One service as a process that is started again whenever it has died."""

    def __init__(self, settings: Settings, log: Path, *arguments: str) -> None:
        environ = {**os.environ, **all_settings.environment(settings), "SPAZIO_HTTP_PORT": "0"}
        super().__init__((*SPAZIO, *arguments), log, environ)
        self.start()

    def revive(self) -> None:
        if not self.alive:
            self.start()

    async def stop(self) -> int:
        return await asyncio.to_thread(self.end, 30)


@contextmanager
def ended(servers: Servers) -> Iterator[list[Service]]:
    """Hand out a list of services, and kill them and the servers at the end."""
    services: list[Service] = []
    try:
        yield services
    finally:
        for service in services:
            service.kill()
        servers.kill()


class Chaos:
    """Does harm, in an order that the seed decides."""

    def __init__(
        self,
        servers: Servers,
        replicas: list[Service],
        sinks: list[Service],
        client: Client,
        seed: int,
        work: list[str],
    ) -> None:
        self._parts = work
        self._servers, self._replicas, self._sinks, self._client = servers, replicas, sinks, client
        self._random = random.Random(seed)
        self.done: Counter[str] = Counter()

    async def run(self, seconds: float) -> None:
        harms: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self.kill_replica, 5),
            (self.stop_replica, 4),
            (self.unpin, 4),
            (self.kill_sink, 2),
            (self.kill_server, 2),
        ]
        end = time.monotonic() + seconds
        first = [harm for harm, _ in harms]  # each at least once, however short the run
        while time.monotonic() < end:
            weights = [weight for _, weight in harms]
            harm = first.pop() if first else self._random.choices([left for left, _ in harms], weights)[0]
            self.done[harm.__name__] += 1
            await harm()
            await asyncio.sleep(self._random.uniform(1, 6))
            for service in (*self._replicas, *self._sinks):
                service.revive()

    async def kill_replica(self) -> None:
        first = self._random.choice(self._replicas)
        first.kill()
        await asyncio.sleep(self._random.uniform(0, 3))
        first.start()

    async def stop_replica(self) -> None:
        first = self._random.choice(self._replicas)
        first.send(signal.SIGSTOP)
        await asyncio.sleep(self._random.uniform(0.5, 6))
        first.send(signal.SIGCONT)

    async def unpin(self) -> None:
        part = self._random.choice(self._parts)
        with contextlib.suppress(nats.errors.Error, TimeoutError):
            await api.request(self._client, f"CONSUMER.UNPIN.{consumer(part)}", {"group": "owner"}, 2)

    async def kill_sink(self) -> None:
        first = self._random.choice(self._sinks)
        first.kill()
        first.start()

    async def kill_server(self) -> None:
        first = self._servers.all[0]
        if len(self._servers.all) > 1:
            with contextlib.suppress(nats.errors.Error, TimeoutError):
                info = await self._client.jetstream(timeout=2).stream_info(NAMES.telemetry)
                if info.cluster and info.cluster.leader:
                    first = self._servers.named(info.cluster.leader)
        await asyncio.to_thread(first.kill)
        await asyncio.sleep(self._random.uniform(0.2, 2))
        await asyncio.to_thread(first.start)


def _configured(servers: Servers, folder: Path, *, nodes: int, seed: int, kinds: str, ahead: bool) -> Settings:
    """Return the settings of all services."""
    options = {
        "nats_url": servers.url,
        "data_dir": str(folder / "data"),
        "nats_partitions": str(PARTITIONS),
        "nats_replicas": str(len(servers.all)),
        "nats_telemetry_max_bytes": str(16 << 30),
        "nats_estimates_max_bytes": str(16 << 30),
        "cache_expiry_seconds": "3600",
        "process_shed": "false",  # what is left out for lack of CPU time is in no replay
        "simulated_nodes": str(nodes),
        "simulated_seed": str(seed),
        "simulated_kinds": kinds,
        "log_format": "json",
        **({} if ahead else dict.fromkeys(("predict_enabled", "reject_enabled", "forecast_enabled"), "false")),
    }
    return all_settings.load(options, environ={})


async def run(
    folder: Path,
    *,
    seconds: float,
    nodes: int,
    seed: int,
    cluster: bool,
    kinds: str = ",".join(SIMULATED_KINDS),
    ahead: bool = True,
) -> dict[str, Any]:
    """Do it all; returns what was compared.

    Raises:
        Difference: Something was lost, doubled or changed.
    """
    servers = Servers(folder, 3 if cluster else 1)
    await servers.start()
    settings = _configured(servers, folder, nodes=nodes, seed=seed, kinds=kinds, ahead=ahead)
    with ended(servers) as services:
        async with connection.connect(settings, "chaos") as client:
            await stream.ensure(client, settings)
            load = Service(settings, folder / "load.log", "load")
            replicas = [Service(settings, folder / f"process-{number}.log", "process") for number in range(REPLICAS)]
            sinks = [Service(settings, folder / f"{name}.log", "sink", name) for name in ("cache", "history")]
            services += [load, *replicas, *sinks]
            silence = Silence(client, steady_parts(settings))
            watching = asyncio.create_task(silence.run())
            await asyncio.sleep(5)
            chaos = Chaos(servers, replicas, sinks, client, seed, parts(settings))
            await chaos.run(seconds)
            status = await load.stop()
            caught_up = await folded(client, 120, parts(settings), REPLICAS)
            await written(client, settings, 600, sinks)
            watching.cancel()
            for service in (*replicas, *sinks):
                service.revive()
                await service.stop()
            return {
                "harms": dict(chaos.done),
                "load_exit_status": status,
                "caught_up_seconds": round(caught_up, 1),
                **await compare(client, settings),
                "gaps": silence.gaps,
                "longest_silence_seconds": round(max(silence.longest.values()), 2),
                "longest_silence_while_served_seconds": round(max(silence.longest_served.values()), 2),
            }


async def written(client: Client, settings: Settings, seconds: float, sinks: list[Service]) -> None:
    """Wait until history has everything that the streams have, and the cache what it is to have."""
    async with asyncio.timeout(seconds):
        subjects = {NAMES.telemetry: NAMES.part("*", "samples"), NAMES.estimates: NAMES.of("availability", "*")}
        for name, subject in subjects.items():
            identity = (await stream.describe(client, name)).identity
            last = await last_sequence(client, name, subject)
            while (layout.read_cursor(settings.history_dir, name, identity) or 0) < last:
                await asyncio.sleep(1)
                for sink in sinks:
                    sink.revive()


def main() -> None:
    """Run as a program."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--minutes", type=float, default=10)
    options.add_argument("--nodes", type=int, default=2000)
    options.add_argument("--seed", type=int, default=7)
    options.add_argument("--cluster", action="store_true", help="three servers; the leader is killed")
    options.add_argument("--kinds", default=",".join(SIMULATED_KINDS), help="kinds of messages; pods are the most")
    options.add_argument("--now-only", action="store_true", help="nothing of what is to come is made")
    options.add_argument("--folder", type=Path, help="where everything is kept; default: a temporary one")
    chosen = options.parse_args()
    with contextlib.ExitStack() as stack:
        folder = chosen.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        result = asyncio.run(
            run(
                folder,
                seconds=chosen.minutes * 60,
                nodes=chosen.nodes,
                seed=chosen.seed,
                cluster=chosen.cluster,
                kinds=chosen.kinds,
                ahead=not chosen.now_only,
            )
        )
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
