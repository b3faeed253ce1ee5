"""A containerd that is absent, leaves, hangs or is none."""

import asyncio
import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from producers.containers.sources import containerd
from producers.containers.sources.containerd import Containerd
from tests.unit.producers.containers.sources.containerd import Fake, Heard, following


async def test_no_socket_and_one_that_is_closed_to_us_are_reported_with_the_place(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(FileNotFoundError, match=r"containerd\.sock"):
        await Containerd(tmp_path / "containerd.sock").run(Heard())
    fake = Fake(tmp_path)
    async with fake.serving():
        fake.socket.chmod(0)
        request.getfixturevalue("unprivileged")
        with pytest.raises(PermissionError, match=r"containerd\.sock"):
            await Containerd(fake.socket).run(Heard())


async def test_a_daemon_that_leaves_is_a_lost_connection(tmp_path: Path) -> None:
    fake, heard = Fake(tmp_path), Heard()
    async with following(fake, heard) as running:
        await heard.listing()
        fake.ends.set()
        with pytest.raises(ConnectionError, match="ended the stream"):
            await asyncio.wait_for(running, 5)


async def test_a_daemon_that_is_stuck_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containerd, "_ANSWER_SECONDS", 0.1)
    fake = Fake(tmp_path)

    async def stuck(request: bytes, context: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr(fake, "_namespaces", stuck)
    async with following(fake, Heard()) as running:
        with pytest.raises(TimeoutError, match=r"Namespaces/List: DEADLINE_EXCEEDED"):
            await asyncio.wait_for(running, 5)


async def test_a_server_that_is_no_containerd_is_refused(tmp_path: Path) -> None:
    fake = Fake(tmp_path)

    @asynccontextmanager
    async def empty() -> AsyncIterator[None]:
        grpc: Any = pytest.importorskip("grpc")
        server = grpc.aio.server()
        server.add_insecure_port(f"unix://{fake.socket}")
        await server.start()
        yield
        await server.stop(None)

    async with empty():
        with pytest.raises(ValueError, match="UNIMPLEMENTED"):
            await Containerd(fake.socket).run(Heard())


async def test_without_grpcio_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    fake = Fake(tmp_path)
    async with fake.serving():
        monkeypatch.setattr(importlib, "import_module", absent)
        with pytest.raises(FileNotFoundError, match=r"\.\[containerd\]"):
            await Containerd(fake.socket).run(Heard())
