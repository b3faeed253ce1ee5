"""NATS servers that tests kill: one alone, or three that hold every stream together."""

import asyncio
import json
import socket
import subprocess
import time
from pathlib import Path

import nats
import nats.errors

from bus import server

_CONFIG = """\
server_name: {name}
listen: 127.0.0.1:{port}
max_payload: 1MB
jetstream {{ store_dir: {store}, max_file_store: 64GB }}
feature_flags {{ js_ack_fc_v2: {acks_v2} }}
"""
_CLUSTER = """\
cluster {{ name: chaos, listen: 127.0.0.1:{own}, routes: [{routes}] }}
"""


class Server:
    """One server; `kill` leaves its storage for the next `start`."""

    def __init__(self, folder: Path, name: str, cluster: str = "", *, acks_v2: bool = False) -> None:
        self.name, self.port = name, server.free_port(0)
        self._folder = folder / name
        self._folder.mkdir(parents=True)
        self._config = self._folder / "server.conf"
        store = json.dumps(str(self._folder / "store"))
        text = _CONFIG.format(name=name, port=self.port, store=store, acks_v2=str(acks_v2).lower())
        self._config.write_text(text + cluster)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            command = server.command(server.find(), self._config)
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise AssertionError((self._folder / "log").read_text())

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


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
        for one in self.all:
            await asyncio.to_thread(one.start)
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
        for one in self.all:
            one.kill()

    def named(self, name: str) -> Server:
        return next(one for one in self.all if one.name == name)
