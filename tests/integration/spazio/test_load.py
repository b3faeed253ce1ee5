"""`spazio load` on a real server: its status says whether the server has stored what was sent."""

import asyncio
import json

import pytest

from bus import connection, stream
from schemas.settings import Settings
from tests.e2e.pipeline import spazio


@pytest.mark.slow
async def test_a_load_of_which_nothing_is_stored_has_failed(settings: Settings) -> None:
    options = ("--nodes", "3", "--seconds", "1", "--nats", settings.nats_url, "--data-dir", str(settings.data.dir))
    failed = await asyncio.to_thread(spazio, "load", *options)
    assert failed.returncode == 1
    assert "0 messages stored" in failed.stdout
    assert "attempts refused" in failed.stdout
    assert "spazio: the server stored nothing; there is no stream for it\n" in failed.stderr
    async with connection.connect(settings, "test") as client:
        await stream.ensure(client, settings)
    stored = await asyncio.to_thread(spazio, "load", "--json", *options)
    assert stored.returncode == 0, stored.stderr
    assert json.loads(stored.stdout)["unanswered"] == 0
