"""The servers of docker-compose.yml and of the manifests speak TLS only: services connect, and others are refused."""

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from bus import connection, server
from bus.connection import Refused
from schemas.settings import Settings
from tests.support.server.raw import eventually
from tests.support.server.secured import Secured

DEPLOY = Path(__file__).parents[4] / "deploy"


def certified(folder: Path) -> Path:
    """Make certificates of an authority of their own for 127.0.0.1; return their folder."""
    subprocess.run([DEPLOY / "certificates.sh", folder, "127.0.0.1"], check=True, capture_output=True)
    return folder


class Deployed(Secured):
    """A server with a deployed configuration, whose addresses and folders are replaced by ones of this test."""

    def __init__(self, folder: Path, text: str) -> None:
        super().__init__(folder)
        self.certificates = certified(folder / "certificates")
        monitor = server.free_port(0)
        for deployed, own in (
            ("0.0.0.0:4222", f"127.0.0.1:{self.port}"),
            ("127.0.0.1:8222", f"127.0.0.1:{monitor}"),
            ("0.0.0.0:8222", f"127.0.0.1:{monitor}"),
            ("/etc/nats/tls", str(self.certificates)),
            ("store_dir: /data", f"store_dir: {folder / 'store'}"),
            ("accounts/accounts.conf", str((self.folder / "server.conf").relative_to(folder))),
        ):
            text = text.replace(deployed, own)
        self.config = folder / "deployed.conf"
        self.config.write_text(text)

    @property
    def url(self) -> str:
        return f"tls://127.0.0.1:{self.port}"


def configuration(where: str) -> str:
    """Return the configuration of the server of compose, or of that of the manifests."""
    if where == "compose":
        return (DEPLOY / "nats.conf").read_text()
    objects = yaml.safe_load_all((DEPLOY / "kubernetes" / "nats.yaml").read_text())
    (text,) = (each["data"]["spazio.conf"] for each in objects if each["kind"] == "ConfigMap")
    return str(text)


@pytest.fixture(params=["compose", "kubernetes"])
def deployed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Deployed]:
    running = Deployed(tmp_path, configuration(request.param))
    running.start()
    try:
        yield running
    finally:
        running.kill()


async def answered(settings: Settings) -> str:
    async with connection.connect(settings, "test") as client:
        return str(client.connected_server_version)


@pytest.mark.slow
async def test_a_service_connects_by_the_authority_of_the_certificate_and_not_by_another(
    deployed: Deployed, tmp_path: Path
) -> None:
    authority = {"nats_ca": str(deployed.certificates / "ca.crt")}
    for name in ("process", "cache", "n1"):
        assert await answered(deployed.settings(name, **authority))
    other = await asyncio.to_thread(certified, tmp_path / "other")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(answered(deployed.settings("cache", nats_ca=str(other / "ca.crt"))), 0.5)


@pytest.mark.slow
async def test_a_client_without_tls_gets_nothing_although_it_has_a_credential(deployed: Deployed) -> None:
    with socket.create_connection(("127.0.0.1", deployed.port), timeout=5) as link, link.makefile("rwb") as file:
        greeting = json.loads(file.readline().removeprefix(b"INFO "))
        assert greeting["tls_required"] is True
        jwt = deployed.credential("cache").read_text().splitlines()[1]
        file.write(b"CONNECT " + json.dumps({"verbose": False, "jwt": jwt}).encode() + b"\r\nPING\r\n")
        file.flush()
        # The server reads the first bytes as the beginning of a handshake, which they are not.
        with contextlib.suppress(ConnectionError):
            assert b"PONG" not in file.read()

    async def logged() -> bool:
        return "TLS handshake error" in deployed.log

    await eventually(logged)


@pytest.mark.slow
async def test_a_client_that_knows_no_authority_does_not_trust_the_server(deployed: Deployed) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(answered(deployed.settings("cache")), 0.5)


@pytest.mark.slow
async def test_a_server_without_tls_in_its_place_is_refused(deployed: Deployed) -> None:
    deployed.kill()
    plain = "\n".join(line for line in deployed.config.read_text().splitlines() if not line.strip().startswith("tls"))
    deployed.config.write_text(plain)
    deployed.start()
    settings = deployed.settings("cache", nats_ca=str(deployed.certificates / "ca.crt"))
    with pytest.raises(Refused, match="offers no TLS"):
        await asyncio.wait_for(answered(settings), 5)


def test_the_deployed_clients_connect_by_tls_with_the_authority() -> None:
    stack = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text())["services"]
    clients = [service["environment"] for name, service in stack.items() if name not in ("credentials", "nats")]
    for environment in clients:
        assert environment["SPAZIO_NATS_URL"].startswith("tls://")
        assert environment["SPAZIO_NATS_CA"] == "/etc/spazio/ca.crt"
    assert len(clients) == 7
