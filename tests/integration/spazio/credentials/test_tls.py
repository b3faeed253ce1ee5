"""TLS between clients and a real server."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus import connection
from bus.connection import Refused
from tests.integration.spazio.credentials.hearing import hears
from tests.support.extender.asking import make_keys
from tests.support.server.secured import Secured


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[tuple[Secured, Path]]:
    """A server that wants certificates of its clients."""
    keys = tmp_path / "keys"
    keys.mkdir()
    make_keys(keys)
    running = Secured(tmp_path)
    files = f'cert_file: "{keys}/server.pem", key_file: "{keys}/server.key", ca_file: "{keys}/ca.pem"'
    with running.config.open("a") as config:
        config.write(f"tls {{ {files}, verify: true }}\n")
    running.start()
    yield running, keys
    running.kill()


@pytest.mark.slow
async def test_client_and_server_verify_each_other(tls: tuple[Secured, Path]) -> None:
    running, keys = tls
    files = {"nats_ca": keys / "ca.pem", "nats_cert": keys / "client.pem", "nats_key": keys / "client.key"}
    good = {name: str(file) for name, file in files.items()}
    assert await hears(running.settings("cache", **good))
    for present in (["nats_cert", "nats_key"], ["nats_ca"]):
        rest = {name: good[name] for name in present}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(hears(running.settings("cache", **rest)), 0.5)
    with pytest.raises(Refused, match=r"nats cert: .*cannot be used"):
        await hears(running.settings("cache", **good | {"nats_cert": str(keys / "ca.pem")}))
    with pytest.raises(Refused, match="has no certificate"):
        await hears(running.settings("cache", nats_key=good["nats_key"]))
    with pytest.raises(Refused, match=r"nats ca: .*holds no certificates"):
        await hears(running.settings("cache", **good | {"nats_ca": os.devnull + "x"}))


async def test_no_secret_is_sent_to_a_server_that_offers_no_tls(running: Secured, tmp_path: Path) -> None:
    make_keys(tmp_path)
    settings = running.settings("cache", nats_ca=str(tmp_path / "ca.pem"))
    with pytest.raises(Refused, match="offers no TLS"):
        await asyncio.wait_for(hears(settings), 2)
    async with asyncio.timeout(2):
        with pytest.raises(Refused, match="offers no TLS"):
            async with connection.probe(settings, "test"):
                pass
