"""A containerd that says what a test wants, and who listens to it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from producers import clock as grid
from producers.containers.sources.containerd import Containerd
from producers.containers.sources.source import Identity, Observation
from producers.containers.wire import protobuf
from producers.containers.wire.protobuf import field

WALL = 1_795_262_670 * grid.SECOND
UP = 3600 * grid.SECOND


def envelope(topic: str, container: str, *, process: str = "", namespace: str = "k8s.io") -> bytes:
    """Return an event as containerd sends it."""
    number = {"/tasks/exit": 2, "/tasks/delete": 5}.get(topic)
    payload = field(1, container) + (field(number, process) if number and process else b"")
    return (
        field(1, field(1, WALL // grid.SECOND) + field(2, 500_000_000))
        + field(2, namespace)
        + field(3, topic)
        + field(4, field(1, "type") + field(2, payload))
    )


class Clock(grid.System):
    """Stands a second after the events of these tests; before them when it is first asked."""

    def __init__(self) -> None:
        self._asked = 0

    def boottime(self) -> int:
        self._asked += 1
        return UP + grid.SECOND if self._asked > 1 else UP - grid.SECOND

    def realtime(self) -> int:
        return WALL + grid.SECOND


class Heard:
    def __init__(self) -> None:
        self.observed: asyncio.Queue[Observation] = asyncio.Queue()
        self.listed: asyncio.Queue[Mapping[str, tuple[Identity, bool]]] = asyncio.Queue()

    def observe(self, observation: Observation) -> None:
        self.observed.put_nowait(observation)

    def present(self, source: str, listed: Mapping[str, tuple[Identity, bool]], boottime_us: int) -> None:
        assert source == "containerd"
        self.listed.put_nowait(listed)

    async def events(self, number: int) -> list[Observation]:
        async with asyncio.timeout(5):
            return [await self.observed.get() for _ in range(number)]

    async def listing(self) -> Mapping[str, tuple[Identity, bool]]:
        async with asyncio.timeout(5):
            return await self.listed.get()


class Fake:
    """A gRPC server with the methods of containerd that are used."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "containerd.sock"
        self.containers: dict[str, bytes] = {}
        self.tasks: dict[str, int] = {}
        self.envelopes: list[bytes] = []
        self.asked: list[str] = []
        self.naming = asyncio.Event()
        self.naming.set()
        self.ends = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        grpc: Any = pytest.importorskip("grpc")
        self._grpc = grpc
        handlers = {
            "events.v1.Events": {"Subscribe": grpc.unary_stream_rpc_method_handler(self._subscribe)},
            "namespaces.v1.Namespaces": {"List": grpc.unary_unary_rpc_method_handler(self._namespaces)},
            "tasks.v1.Tasks": {"List": grpc.unary_unary_rpc_method_handler(self._tasks)},
            "containers.v1.Containers": {
                "Get": grpc.unary_unary_rpc_method_handler(self._get),
                "ListStream": grpc.unary_stream_rpc_method_handler(self._list),
            },
        }
        server = grpc.aio.server()
        for service, methods in handlers.items():
            handler = grpc.method_handlers_generic_handler(f"containerd.services.{service}", methods)
            server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"unix://{self.socket}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)

    async def _subscribe(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        self.asked.append(protobuf.text(request, 1))
        for envelope in self.envelopes:
            yield envelope
        await self.ends.wait()

    async def _namespaces(self, request: bytes, context: Any) -> bytes:
        return field(1, field(1, "k8s.io"))

    async def _tasks(self, request: bytes, context: Any) -> bytes:
        return b"".join(field(1, field(2, name) + field(4, status)) for name, status in self.tasks.items())

    async def _get(self, request: bytes, context: Any) -> bytes:
        await self.naming.wait()
        assert ("containerd-namespace", "k8s.io") in context.invocation_metadata()
        container = protobuf.text(request, 1)
        if container not in self.containers:
            await context.abort(self._grpc.StatusCode.NOT_FOUND, "no such container")
        return field(1, self.containers[container])

    async def _list(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for container in self.containers.values():
            yield field(1, container)


@asynccontextmanager
async def following(fake: Fake, heard: Heard) -> AsyncIterator[asyncio.Task[None]]:
    async with fake.serving():
        running = asyncio.create_task(Containerd(fake.socket, clock=Clock()).run(heard))
        try:
            yield running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
