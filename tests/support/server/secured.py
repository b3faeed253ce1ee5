"""A real nats-server with the accounts and roles that `spazio credentials` and `spazio up` make."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
from nats.aio.client import Client

from bus import server
from schemas import role
from schemas import settings as all_settings
from schemas.settings import Settings
from schemas.subject import Names
from spazio.credentials import authority, command
from spazio.credentials.command import Wanted
from tests.support.server.natsd import Natsd
from tests.support.server.raw import reached

NAMES = Names()


class Secured(Natsd):
    """A server whose credentials are in a folder beside its storage."""

    def __init__(self, folder: Path, nodes: Sequence[str] = ("n1", "n2")) -> None:
        self.folder = folder / "credentials"
        self.issue(nodes=nodes)
        settings, port = all_settings.load({"data_dir": str(folder)}, environ={}), server.free_port(0)
        super().__init__(server.write_config(settings, port, self.folder / authority.SERVER), port)

    def issue(self, **wanted: Any) -> list[str]:
        """Run `spazio credentials`; have a running server read the result."""
        return list(command.issue(self.folder, NAMES, Wanted(**wanted)))

    def reload(self) -> None:
        assert self.process is not None
        before = self.log.count("Reloaded server configuration")
        os.kill(self.process.pid, signal.SIGHUP)
        deadline = time.monotonic() + 5
        while self.log.count("Reloaded server configuration") == before:
            assert time.monotonic() < deadline, self.log[-2000:]
            time.sleep(0.01)

    def credential(self, name: str) -> Path:
        for kind in ("roles", "nodes"):
            if (file := self.folder / kind / f"{name}.creds").exists():
                return file
        return self.folder / authority.READER

    def settings(self, name: str, **more: str) -> Settings:
        """Return the settings of a service with a credential."""
        flags = {
            "nats_url": self.url,
            "nats_credentials": str(self.credential(name)),
            "data_dir": str(self.folder.parent / "data"),
            "nats_partitions": "2",
            "nats_request_timeout_seconds": "1",
        }
        return all_settings.load(flags | more, environ={})


@contextmanager
def secured(folder: Path) -> Iterator[Secured]:
    running = Secured(folder)
    authority.local(running.folder, NAMES, "n1")
    running.start()
    try:
        yield running
    finally:
        running.kill()


class Attacker:
    """The library's own client with a stolen credential: it checks nothing, and hears what the server refuses."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.refused: list[str] = []

    async def publish(self, subjects: Sequence[str], payload: bytes) -> set[str]:
        """Publish to each subject; return those that the server has refused, in lower case, as the client says."""
        refused: set[str] = set()
        for subject in subjects:
            await self.client.publish(subject, payload)
            refused |= await self.refusals()
        return refused

    async def subscribe(self, subjects: Sequence[str]) -> set[str]:
        """Subscribe to each subject; return those that the server has refused, as `publish` does."""
        refused: set[str] = set()
        for subject in subjects:
            await self.client.subscribe(subject)
            refused |= await self.refusals()
        return refused

    async def refusals(self) -> set[str]:
        """Return the subjects that the server has refused since the last call, in lower case, as the client says."""
        await reached(self.client)
        result = {text.split('"')[1] for text in self.refused if "permissions violation" in text}
        self.refused.clear()
        return result


async def attacker(running: Secured, name: str, inbox: str = role.INBOX) -> Attacker:
    refused: list[str] = []

    async def hear(error: Exception) -> None:
        refused.append(str(error))

    credential = str(running.credential(name))
    client = await nats.connect(running.url, user_credentials=credential, inbox_prefix=inbox, error_cb=hear)
    made = Attacker(client)
    made.refused = refused
    return made
