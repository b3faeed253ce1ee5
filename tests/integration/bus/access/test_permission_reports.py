"""What a client says of things that its user may not do, and what credentials hold."""

import asyncio
import json
from pathlib import Path

import pytest

from bus import connection, stream
from bus.access.credential import Denied
from bus.reading import setback
from schemas import role
from schemas.subject import matches
from tests.integration.bus.access.contract import _create, contract
from tests.support.server.secured import NAMES, Secured, secured


async def test_the_client_says_at_once_what_its_user_may_not_do_and_the_remedy(running: Secured) -> None:
    async with connection.connect(running.settings("n1"), "agent") as client:
        began = asyncio.get_running_loop().time()
        with pytest.raises(Denied, match=r"user node n1 may not publish spazio\.samples\.n2: .*spazio credentials"):
            await client.jetstream().publish("spazio.samples.n2", b"")
        assert asyncio.get_running_loop().time() - began < 0.1
        assert "may not publish spazio.samples.n2" in client.denials.newest()


async def test_what_only_the_server_knows_to_be_forbidden_is_reported_too(
    running: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    async with connection.connect(running.settings("n1"), "agent") as client:
        for _ in range(3):
            await client.subscribe("spazio.availability.*")
        await client.flush()
        assert "may not subscribe to spazio.availability.*" in client.denials.newest()
    assert [record.getMessage() for record in caplog.records].count("nats.denied") == 1


@pytest.mark.slow
async def test_a_role_that_may_not_create_streams_waits_for_the_processors(tmp_path: Path) -> None:
    with secured(tmp_path) as server:
        settings = server.settings("history")
        async with connection.connect(settings, "history") as client:
            waiting = asyncio.create_task(stream.ensure(client, settings))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await _create(server)
            await asyncio.wait_for(waiting, 3)
            assert client.denials.newest() == ""


def test_every_credential_fits_into_one_line_of_the_protocol(running: Secured) -> None:
    for file in running.folder.rglob("*.creds"):
        # A line has at most 4,096 bytes: 290 are signature, names and versions, and 300 are kept for a longer prefix.
        assert len(file.read_text().splitlines()[1]) < 3500


def test_each_channel_has_a_role_that_may_publish_it() -> None:
    granted = [pattern for each in role.ROLES if each.name != role.ADMIN for pattern in each.grant(NAMES).publish]
    missing = [subject for subject in contract("n1") if not any(matches(pattern, subject) for pattern in granted)]
    assert missing == []


def test_the_accounts_hold_no_secret(running: Secured) -> None:
    text = (running.folder / "server.conf").read_text()
    assert not [file for file in running.folder.glob("*.nk") if file.read_text().strip() in text]
    issued = json.loads((running.folder / "issued.json").read_text())
    assert not [key for keys in issued["users"].values() for key in keys if not key.startswith("U")]


@pytest.mark.parametrize(
    ("role_name", "source"),
    [
        *((name, NAMES.telemetry) for name in ("process", "history", "extender", "watch", "load", "reader")),
        *((name, NAMES.estimates) for name in ("process", "history", "cache", "metrics", "extender", "kubernetes")),
    ],
)
async def test_every_role_that_reads_a_stream_may_find_out_whether_it_came_back_with_less(
    running: Secured, role_name: str, source: str
) -> None:
    async with asyncio.timeout(60), connection.connect(running.settings(role_name), "test") as client:
        last = (await stream.describe(client, source)).last
        with pytest.raises(setback.SetBack):
            await setback.check(client, source, setback.Mark(last + 1, 1), 1)
