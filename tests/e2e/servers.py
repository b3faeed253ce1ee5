"""NATS servers that tests kill: one alone, or three that hold every stream together."""

import asyncio
import json
from pathlib import Path

import nats
import nats.errors

from bus import server
from tests.support.server.natsd import Natsd

_CONFIG = """\
server_name: {name}
listen: 127.0.0.1:{port}
max_payload: 1MB
jetstream {{ store_dir: {store}, max_file_store: 64GB }}
"""
_CLUSTER = """\
cluster {{ name: chaos, listen: 127.0.0.1:{own}, routes: [{routes}] }}
"""


class Server(Natsd):
    """One server, by its name in the cluster."""

    def __init__(self, folder: Path, name: str, cluster: str = "") -> None:
        self.name, port, home = name, server.free_port(0), folder / name
        home.mkdir(parents=True)
        config = home / "server.conf"
        config.write_text(_CONFIG.format(name=name, port=port, store=json.dumps(str(home / "store"))) + cluster)
        super().__init__(config, port)


class Servers:
    """One server, or three in a cluster."""

    def __init__(self, folder: Path, count: int) -> None:
        ports = [server.free_port(0) for _ in range(count)]
        routes = ", ".join(f"nats://127.0.0.1:{port}" for port in ports)
        clusters = [_CLUSTER.format(own=port, routes=routes) if count > 1 else "" for port in ports]
        self.all = [Server(folder, f"s{number}", cluster) for number, cluster in enumerate(clusters)]

    @property
    def url(self) -> str:
        return self.all[0].url

    async def start(self) -> None:
        """Start all, and wait until JetStream answers."""
        for each in self.all:
            await asyncio.to_thread(each.start)
        async with asyncio.timeout(60):
            while True:
                try:
                    client = await nats.connect(self.url, max_reconnect_attempts=1)
                    try:
                        await client.jetstream(timeout=2).account_info()
                    finally:
                        await client.close()
                except (nats.errors.Error, TimeoutError, OSError):
                    await asyncio.sleep(0.3)
                else:
                    return

    def kill(self) -> None:
        for each in self.all:
            each.kill()

    def named(self, name: str) -> Server:
        return next(each for each in self.all if each.name == name)
