"""Certificates of the bus that are renewed, damaged and lost while server and clients run."""

import asyncio
import logging
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus import connection
from schemas.settings import Settings
from tests.support.extender.asking import make_keys
from tests.support.server import handshake
from tests.support.server.raw import eventually
from tests.support.server.secured import Secured

pytestmark = pytest.mark.slow

USED = {"nats_ca": "ca.pem", "nats_cert": "client.pem", "nats_key": "client.key"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    for authority in ("old", "new"):
        (folder / authority).mkdir()
        make_keys(folder / authority)
    return folder


@pytest.fixture
def running(made: Path, tmp_path: Path) -> Iterator[Secured]:
    server = Secured(tmp_path)
    shutil.copytree(made / "old", tmp_path / "keys")
    files = {"cert_file": "server.pem", "key_file": "server.key", "ca_file": "ca.pem"}
    section = ", ".join(f'{name}: "{tmp_path / "keys" / file}"' for name, file in files.items())
    with server.config.open("a") as config:
        config.write(f"tls {{ {section}, verify: true }}\n")
    server.start()
    yield server
    server.kill()


def settings_of(running: Secured, folder: Path) -> Settings:
    return running.settings("cache", **{name: str(folder / file) for name, file in USED.items()})


async def back(client: connection.Connection) -> None:
    async def answers() -> bool:
        return await connection.alive(client, 1)

    await eventually(answers)


async def test_a_service_comes_back_after_authority_and_certificates_were_replaced(
    running: Secured, made: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    shutil.copytree(made / "old", own)
    async with connection.connect(settings_of(running, own), "test") as client:
        running.kill()
        for folder in (own, tmp_path / "keys"):
            shutil.copytree(made / "new", folder, dirs_exist_ok=True)
        await asyncio.to_thread(running.start)
        await back(client)


@pytest.mark.parametrize("how", handshake.DAMAGES)
@pytest.mark.parametrize("name", USED)
async def test_files_of_a_service_that_cannot_be_used_leave_those_before_in_use(
    name: str, how: str, running: Secured, made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = tmp_path / "own"
    shutil.copytree(made / "old", own)
    async with connection.connect(settings_of(running, own), "test") as client:
        running.kill()
        handshake.damage(own / USED[name], how)
        await asyncio.to_thread(running.start)
        await back(client)
    (reason,) = [vars(each)["reason"] for each in caplog.records if each.message == "nats.tls_renewal_failed"]
    assert str(own / USED[name]) in reason
    assert reason.endswith("those read before stay in use")


async def test_a_server_that_reloads_shows_a_renewed_certificate_and_keeps_the_old_one_if_it_is_damaged(
    running: Secured, made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    settings, keys = settings_of(running, made / "old"), tmp_path / "keys"

    async def shown() -> str:
        async with connection.probe(settings, "test") as client:
            link = client._transport._io_writer.get_extra_info("peercert")  # type: ignore[union-attr] # the client has no way
            return str(link["subject"][0][0][1])

    async with connection.connect(settings, "test") as client:
        assert await shown() == "server"
        for name in ("pem", "key"):
            shutil.copy(keys / f"renewed.{name}", keys / f"server.{name}")
        await asyncio.to_thread(running.reload)
        assert await shown() == "renewed"
        handshake.damage(keys / "server.pem", "truncated")
        assert running.process is not None
        running.process.send_signal(signal.SIGHUP)

        async def refused() -> bool:
            return "Failed to reload server configuration" in running.log

        await eventually(refused)
        assert await shown() == "renewed"
        assert await connection.alive(client, 1)
    assert not caplog.records
