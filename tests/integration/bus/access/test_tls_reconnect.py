"""A connection with TLS comes back after its server was killed, whatever Python it has and wherever the server was."""

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus import connection
from spazio.terminal import latest
from tests.support.server.secured import Secured

CERTIFICATES = Path(__file__).parents[4] / "deploy" / "certificates.sh"


def certify(folder: Path) -> None:
    subprocess.run([CERTIFICATES, folder, "127.0.0.1"], check=True, capture_output=True)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Secured]:
    keys = tmp_path / "keys"
    certify(keys)
    server = Secured(tmp_path)
    with server.config.open("a") as config:
        config.write(f'tls {{ cert_file: "{keys}/server.crt", key_file: "{keys}/server.key" }}\n')
    server.start()
    yield server
    server.kill()


async def comes_back(client: connection.Connection) -> bool:
    for _ in range(200):
        if await connection.alive(client, 1):
            return True
        await asyncio.sleep(0.05)
    return False


@pytest.mark.slow
async def test_a_service_comes_back_as_often_as_its_server_with_tls_is_killed(
    running: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here with the transport of Python 3.11.2 (Debian 12), which cannot be aborted after it was closed twice."""

    def abort(transport: Any) -> None:
        transport._closed = True
        transport._ssl_protocol._abort()

    monkeypatch.setattr("asyncio.sslproto._SSLProtocolTransport.abort", abort)
    settings = running.settings("cache", nats_ca=str(tmp_path / "keys" / "ca.crt"))
    async with connection.connect(settings, "test") as client:
        for _ in range(2):
            running.kill()
            await asyncio.to_thread(running.start)
            assert await comes_back(client)


@pytest.mark.slow
async def test_a_command_names_what_it_needs_to_trust_a_server(running: Secured) -> None:
    settings = running.settings("cache", nats_connect_timeout_seconds="0.5")
    with pytest.raises(latest.Unreachable, match=r"accepts no connection within 0.5 s, .*certificate.*with --nats-ca$"):
        async with latest.dial(settings):
            pass


def breaking_off(port: int) -> asyncio.Task[None]:
    """Listen from now on, and greet one client as a server that ends within the handshake."""
    return asyncio.create_task(asyncio.to_thread(break_off, socket.create_server(("127.0.0.1", port))))


def break_off(listening: socket.socket) -> None:
    with listening:
        listening.settimeout(20)
        link, _ = listening.accept()
        with link:
            link.sendall(b'INFO {"version":"2.15.0","headers":true,"max_payload":1048576,"tls_required":true}\r\n')
            link.recv(1)


@pytest.mark.slow
async def test_a_service_that_starts_while_its_server_ends_connects_to_the_next_one(
    running: Secured, tmp_path: Path
) -> None:
    running.kill()
    settings = running.settings("cache", nats_ca=str(tmp_path / "keys" / "ca.crt"))
    broken = breaking_off(running.port)
    dialling = asyncio.create_task(connection.dial(settings, "test"))
    await asyncio.wait_for(broken, 10)
    await asyncio.to_thread(running.start)
    client = await asyncio.wait_for(dialling, 10)
    assert await connection.alive(client, 1)
    await client.close()


@pytest.mark.slow
async def test_a_probe_by_another_authority_than_the_servers_ends(running: Secured, tmp_path: Path) -> None:
    await asyncio.to_thread(certify, tmp_path / "others")
    settings = running.settings("admin", nats_ca=str(tmp_path / "others" / "ca.crt"))
    with pytest.raises(OSError, match="certificate verify failed"):
        async with asyncio.timeout(60), connection.probe(settings, "test"):
            pytest.fail("it connected")


async def test_a_client_whose_handshake_was_broken_off_can_be_closed(running: Secured) -> None:
    running.kill()
    broken = breaking_off(running.port)
    client = connection.Connection()
    with contextlib.suppress(OSError):
        await client.connect(f"tls://127.0.0.1:{running.port}", allow_reconnect=False)
    await broken
    await asyncio.wait_for(client.close(), 5)
