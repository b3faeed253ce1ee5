"""A hub and a region's leaf server, as `deploy/` configures them, on free ports, and the link between them."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bus import server
from schemas import settings as all_settings
from schemas.settings import Settings
from tests.support.natsd import Natsd

DEPLOY = Path(__file__).parents[2] / "deploy"
PASSWORDS = {"SPAZIO_CENTRE_PASSWORD": "of-the-centre", "SPAZIO_REGION_PASSWORD": "of-a-region"}
AGENT_PASSWORD = "of-an-agent"


class Server(Natsd):
    """A server with a configuration of `deploy/`."""

    def __init__(self, folder: Path, name: str, ports: Mapping[str, int], environ: Mapping[str, str]) -> None:
        home = folder / name
        home.mkdir(parents=True)
        text = (DEPLOY / name).read_text()
        for old, new in ports.items():
            assert f"127.0.0.1:{old}" in text
            text = text.replace(f"127.0.0.1:{old}", f"127.0.0.1:{new}")
        config = home / "server.conf"
        config.write_text(re.sub(r"store_dir: \S+", f'store_dir: "{home}/store"', text))
        super().__init__(config, next(iter(ports.values())), environ)


class Link:
    """A TCP relay between leaf and hub, in a thread with a loop of its own."""

    def __init__(self, port: int) -> None:
        self.port, self._to = server.free_port(0), port
        self._loop = asyncio.new_event_loop()
        self._whole, self._pipes = True, set[asyncio.StreamWriter]()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._relay, "127.0.0.1", self.port)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._to if self._whole else 1)
        except OSError:
            writer.transport.abort()
            return
        self._pipes |= {writer, back}
        await asyncio.gather(self._copy(reader, back), self._copy(there, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.transport.abort()
            self._pipes.discard(writer)

    def cut(self) -> None:
        """Cut the link, with whatever is on it."""

        def abort() -> None:
            self._whole = False
            for writer in list(self._pipes):
                writer.transport.abort()

        self._loop.call_soon_threadsafe(abort)

    def mend(self) -> None:
        """Let it through again."""
        self._whole = True

    def end(self) -> None:
        """Stop for good."""
        self.cut()
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.call_later, 0.2, self._loop.stop)
        self._thread.join(5)
        self._loop.close()


class Region:
    """Hub, link and leaf."""

    def __init__(self, folder: Path) -> None:
        hub_ports = {"4222": server.free_port(0), "8222": server.free_port(0), "7422": server.free_port(0)}
        self.hub = Server(folder, "nats-hub.conf", hub_ports, PASSWORDS)
        self.hub.start()
        self.link = Link(hub_ports["7422"])
        url = f"nats-leaf://region-a:{PASSWORDS['SPAZIO_REGION_PASSWORD']}@127.0.0.1:{self.link.port}"
        environ = {"SPAZIO_HUB_URL": url, "SPAZIO_AGENT_PASSWORD": AGENT_PASSWORD}
        leaf_ports = {"4223": server.free_port(0), "8223": server.free_port(0)}
        self.leaf = Server(folder, "nats-leaf.conf", leaf_ports, environ)
        self.leaf.start()

    @property
    def centre_url(self) -> str:
        return f"nats://centre:{PASSWORDS['SPAZIO_CENTRE_PASSWORD']}@127.0.0.1:{self.hub.port}"

    @property
    def agent_url(self) -> str:
        return f"nats://agent:{AGENT_PASSWORD}@127.0.0.1:{self.leaf.port}"

    def settings(self, folder: Path, url: str) -> Settings:
        return all_settings.load(
            {"nats_url": url, "data_dir": str(folder), "nats_partitions": "2", "sample_node": "far.away"}, environ={}
        )

    def end(self) -> None:
        self.leaf.kill()
        self.link.end()
        self.hub.kill()


@contextmanager
def running(settings: Settings, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a service of spazio as a process; killed at the end if it still lives."""
    environ = {**os.environ, **all_settings.environment(settings), "SPAZIO_HTTP_PORT": "0"}
    log = settings.data.dir.with_suffix(f".{'-'.join(arguments)}.log")
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "spazio", *arguments], env=environ, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
