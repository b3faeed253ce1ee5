"""A Docker daemon that says what a test wants, and who listens to it."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from producers import clock as grid
from producers.containers.sources.docker import Docker
from producers.containers.sources.source import Identity, Observation

WALL = 1_795_262_670 * grid.SECOND
UP = 3600 * grid.SECOND
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


class Clock(grid.System):
    """Stands, two seconds after the events of these tests."""

    def boottime(self) -> int:
        return UP + 2 * grid.SECOND

    def realtime(self) -> int:
        return WALL + 2 * grid.SECOND


class Early(Clock):
    """Stands before the events of these tests, then after them: the source has asked in time."""

    def __init__(self) -> None:
        self._asked = 0

    def boottime(self) -> int:
        self._asked += 1
        return super().boottime() if self._asked > 1 else UP - grid.SECOND


class Heard:
    """Keeps what a source says, in order."""

    def __init__(self) -> None:
        self.observed: asyncio.Queue[Observation | Mapping[str, tuple[Identity, bool]]] = asyncio.Queue()

    def observe(self, observation: Observation) -> None:
        self.observed.put_nowait(observation)

    def present(self, source: str, listed: Mapping[str, tuple[Identity, bool]], boottime_us: int) -> None:
        assert source == "docker"
        self.observed.put_nowait(listed)

    async def events(self, number: int) -> list[Observation]:
        observations: list[Observation] = []
        while len(observations) < number:
            item = await asyncio.wait_for(self.observed.get(), 5)
            if isinstance(item, Observation):
                observations.append(item)
        return observations

    async def listing(self) -> Mapping[str, tuple[Identity, bool]]:
        while True:
            item = await asyncio.wait_for(self.observed.get(), 5)
            if not isinstance(item, Observation):
                return item


class Daemon:
    """Answers as the Engine API does: a listing, and a stream of events that stays open until it is closed."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "docker.sock"
        self.rows: list[Any] = []
        self.events: list[bytes] = []
        self.asked: list[str] = []
        self.answer = CHUNKED
        self.hangs_up = False
        self.is_stuck = False
        self._serving: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self.socket)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving |= {task} if (task := asyncio.current_task()) else set()
        target = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.asked.append(target)
        if target.startswith("/events"):
            writer.write(self.answer + b"".join(self.events))
            if not self.hangs_up:
                await self._forever(reader)
        elif self.is_stuck:
            await self._forever(reader)
        else:
            body = json.dumps(self.rows).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def _forever(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()


async def follow(daemon: Daemon, heard: Heard, **options: Any) -> None:
    await Docker(daemon.socket, clock=Early(), **options).run(heard)
