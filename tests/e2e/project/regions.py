"""A hub and a region's leaf server, as `deploy/` configures them, on free ports, and the link between them."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from bus import server
from schemas import settings as all_settings
from schemas.settings import Settings
from schemas.subject import token
from tests.support.server.natsd import Natsd

DEPLOY = Path(__file__).parents[3] / "deploy"
NODE, REGION = "far.away", "region-a"


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


class Server(Natsd):
    """A server with a configuration of `deploy/`."""

    def __init__(self, folder: Path, name: str, ports: Mapping[str, int], environ: Mapping[str, str]) -> None:
        home = folder / name
        home.mkdir(parents=True)
        (home / "credentials").mkdir()
        for public in ("server.conf", "leaf.conf"):
            shutil.copy(folder / "credentials" / public, home / "credentials")
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

    def restore(self) -> None:
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
    """Hub, link and leaf, with the credentials and certificates that users make for them.

    Args:
        folder: For all their files.
    """

    def __init__(self, folder: Path) -> None:
        self.credentials, self.certificates = folder / "credentials", folder / "certificates"
        (folder / "nodes").write_text(f"{NODE}\nother\n")
        given = ("--out", self.credentials, "--nodes", folder / "nodes", "--region", REGION)
        _run(sys.executable, "-m", "spazio", "credentials", *given)
        _run(DEPLOY / "certificates.sh", self.certificates, "127.0.0.1")
        certificate, key = (str(self.certificates / f"server.{kind}") for kind in ("crt", "key"))
        hub_ports = {"4222": server.free_port(0), "8222": server.free_port(0), "7422": server.free_port(0)}
        self.hub = Server(folder, "nats-hub.conf", hub_ports, {"SPAZIO_HUB_CERT": certificate, "SPAZIO_HUB_KEY": key})
        self.hub.start()
        self.link = Link(hub_ports["7422"])
        self.remote = {
            "SPAZIO_HUB_URL": f"tls://127.0.0.1:{self.link.port}",
            "SPAZIO_HUB_CA": str(self.certificates / "ca.crt"),
            "SPAZIO_REGION_CREDENTIALS": str(self.credentials / "regions" / f"{REGION}.creds"),
        }
        leaf_ports = {"4223": server.free_port(0), "8223": server.free_port(0)}
        environ = {"SPAZIO_LEAF_CERT": certificate, "SPAZIO_LEAF_KEY": key, **self.remote}
        self.leaf = Server(folder, "nats-leaf.conf", leaf_ports, environ)
        self.leaf.start()

    def central(self, folder: Path, role: str) -> Settings:
        """Return settings of a service at the hub."""
        return self._settings(folder, self.hub, self.credentials / "roles" / f"{role}.creds")

    def far(self, folder: Path, node: str = NODE) -> Settings:
        """Return settings of an agent at the leaf."""
        return self._settings(folder, self.leaf, self.credentials / "nodes" / f"{token(node)}.creds")

    def _settings(self, folder: Path, there: Server, credential: Path) -> Settings:
        given = {
            "nats_url": f"tls://127.0.0.1:{there.port}",
            "nats_ca": str(self.certificates / "ca.crt"),
            "nats_credentials": str(credential),
            "data_dir": str(folder),
            "nats_partitions": "2",
            "sample_node": NODE,
        }
        return all_settings.load(given, environ={})

    def end(self) -> None:
        self.leaf.kill()
        self.link.end()
        self.hub.kill()


@contextmanager
def running(settings: Settings, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a service of spazio as a process; killed at the end if it still lives. A test that fails shows its log."""
    environ = {**os.environ, **all_settings.environment(settings), "SPAZIO_HTTP_PORT": "0"}
    log = settings.data.dir.with_suffix(f".{'-'.join(arguments)}.log")
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "spazio", *arguments], env=environ, stdout=output, stderr=output
        )
    try:
        yield process
    except BaseException:
        print(f"{log.name}:\n{log.read_text()[-8000:]}")
        raise
    finally:
        process.kill()
        process.wait()
