"""A connection with TLS comes back after its server was killed, with every version of Python."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus import connection
from tests.support.secured import Secured

CERTIFICATES = Path(__file__).parents[2] / "deploy" / "certificates.sh"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Secured]:
    keys = tmp_path / "keys"
    subprocess.run([CERTIFICATES, keys, "127.0.0.1"], check=True, capture_output=True)
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
