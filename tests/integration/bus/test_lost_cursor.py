"""The search for a cursor ends, also where what it searches for has expired since it was seen."""

import asyncio

import pytest
from nats.aio.client import Client

from bus import stream
from bus.publishing import batch, coverage
from bus.publishing.coverage import Covered
from bus.stream import Stored
from schemas.settings import Settings
from schemas.subject import Names

NAMES = Names()


@pytest.mark.slow
async def test_a_cursor_that_expires_before_it_is_read_again_covers_nothing(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def last(*_: object) -> Stored:
        return Stored(b"no cursor of this input", 7)

    await stream.ensure(client, settings)
    monkeypatch.setattr(batch, "last", last)
    source = await stream.describe(client, NAMES.telemetry)
    async with asyncio.timeout(20):
        result = await coverage.covered(client, NAMES.estimates, NAMES.node("availability", "n"), source)
    assert result == Covered(0, 7)
