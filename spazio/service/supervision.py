"""Child processes of a command: a server unless one is configured, and services."""

import asyncio
import secrets
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Self

from bus import server
from schemas import role
from schemas import settings as all_settings
from schemas.settings import Settings
from spazio.credentials import embedded
from spazio.service import addresses, child
from spazio.service.child import Child, Recipe, Unstartable

_START_SECONDS = 15.0
_SERVICE_SECONDS = 20.0  # history may have much to write
_SERVER_SECONDS = 5.0


class Supervised:
    """Child processes for the length of a block.

    Attributes:
        url: Address of the server, once it is started.
        failed: Done when a process cannot be kept running; its exception gives the reason.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings, self.url = settings, settings.nats.url
        self._access = embedded.other(settings)
        self._children: dict[str, Child] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for name in sorted(self._children, key=lambda name: name == "nats"):
            self._tasks[name].cancel()
            await asyncio.wait({self._tasks[name]})
            await self._children[name].end(_SERVER_SECONDS if name == "nats" else _SERVICE_SECONDS)
        self.failed.cancel()

    async def start_server(self, *, aggregate: bool) -> Settings:
        """Start a server if none is configured; return settings with its address and a credential for everything.

        Args:
            aggregate: Whether processors make the global model.

        Raises:
            bus.server.Unusable: There is no server program.
        """
        if not self.url:
            program, port, start = server.find(), server.free_port(0), secrets.token_hex(4)
            output = self._settings.data.dir / "nats" / server.OUTPUT
            self._access = embedded.prepare(self._settings)
            config = server.write_config(self._settings, port, self._access.accounts, start)
            self.url = f"nats://127.0.0.1:{port}"
            command = server.command(program, config)
            self._add(Recipe("nats", command, lambda _: child.listening(port, start), log_file=output))
            await self._ready("nats")
        own = self._access.of(role.ADMIN, self._settings)
        nats = self._settings.nats.model_copy(update={"url": self.url, "credentials": own})
        http = self._settings.http.model_copy(update={"port": 0})
        process = self._settings.process.model_copy(
            update={"aggregate": aggregate, "collect": not aggregate, "shed": False}
        )
        self._settings = self._settings.model_copy(update={"nats": nats, "http": http, "process": process})
        return self._settings

    async def start(self, services: Mapping[str, Sequence[str]]) -> None:
        """Start commands of spazio by name, and wait until they are ready; of processors as many as the settings say.

        Raises:
            Unstartable: One of them does not start.
        """
        replicas = {"process": self._settings.process.replicas}
        started = [
            self._add_service(name, arguments, replica)
            for name, arguments in services.items()
            for replica in range(1, 1 + replicas.get(name, 1))
        ]
        for name in started:
            await self._ready(name)

    def _add_service(self, service: str, arguments: Sequence[str], replica: int) -> str:
        name = addresses.child(service, replica)
        nats = self._settings.nats.model_copy(update={"credentials": self._access.of(service, self._settings)})
        process = self._settings.process.model_copy(update={"replica": replica})
        own = all_settings.environment(self._settings.model_copy(update={"nats": nats, "process": process}))
        note = self._settings.data.dir / "run" / f"{name}.json"
        command = [sys.executable, "-m", "spazio", *arguments]
        self._add(Recipe(name, command, partial(child.noted, [note]), partial(child.environment, own)))
        return name

    def _add(self, recipe: Recipe) -> None:
        made = self._children[recipe.name] = Child(recipe, lambda: None)
        task = self._tasks[recipe.name] = asyncio.create_task(made.run(), name=recipe.name)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def _ready(self, name: str) -> None:
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._children[name].ready.wait()
        except TimeoutError:
            # The folder of a server, and with it its log, may be removed at the end.
            reason = server.tail(self._settings.data.dir) if name == "nats" else "see its log"
            raise Unstartable(f"{name} did not start within {_START_SECONDS:.0f} s; {reason}") from None
