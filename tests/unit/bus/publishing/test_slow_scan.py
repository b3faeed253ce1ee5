"""A search for the newest cursor of a server that takes long to send what it has; in memory."""

import pytest

from bus import stream
from bus.folding.journal import Batches, Singles
from bus.publishing import coverage
from schemas.subject import Names
from tests.support.nats.client import Connection
from tests.support.nats.server import Server
from tests.unit.bus.folding.test_parts import model, sums

NAMES = Names()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coverage, "_SCAN_SECONDS", 0.05)


async def test_a_server_that_is_slow_has_a_cursor_all_the_same(server: Server, client: Connection) -> None:
    await sums(client, 9)
    source = await stream.describe(client, NAMES.estimates)
    await model(client, Singles(client, NAMES.telemetry, NAMES.model, timeout_seconds=1), 7)
    await client.jetstream().publish(NAMES.model, b"garbage")
    server.delay_seconds = 0.2
    assert await Singles(client, NAMES.telemetry, NAMES.model, timeout_seconds=1).covered(source) == 7


async def test_a_newest_row_that_has_gone_since_ends_the_search(client: Connection) -> None:
    subject = NAMES.of("cursor", "0")
    await client.jetstream().publish(subject, b"garbage")
    assert [each.data async for each in coverage.up_to(client, NAMES.estimates, subject, 99)] == [b"garbage"]
    journal = Batches(client, NAMES.estimates, subject, timeout_seconds=1)
    assert await journal.covered(await stream.describe(client, NAMES.telemetry)) == 0
