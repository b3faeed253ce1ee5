"""A replay and a server that does not answer for a moment."""

import asyncio
from pathlib import Path

import pytest

from bus import connection, stream
from bus.reading.reader import Reader
from producers.recorded import recording
from schemas.sections.generator import Replay
from schemas.settings import Settings
from schemas.subject import Names
from spazio.command.replay import _Replay

NAMES = Names()
_SECONDS_OF_QUIET = 2.0


@pytest.mark.slow
async def test_a_server_that_does_not_answer_ends_nothing_and_is_not_taken_for_quiet(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("node,seconds,cpu_util\nn,1700000000,0.5\n")
    async with connection.connect(settings, "replay") as client:
        await stream.ensure(client, settings)
        with recording.opened([tmp_path / "a.csv"], Replay(), tmp_path / "work") as opened:
            replay = _Replay(settings, opened, feed_only=False)
        async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
            await reader.read(timeout_seconds=0.1)
            await replay._look(client)
            assert replay._readers == 1
            await client.jetstream().delete_stream(NAMES.telemetry)
            await replay._look(client)
            assert replay._readers == 1
        async with asyncio.timeout(30):
            # The estimates are there and quiet; how far the telemetry is read cannot be told.
            waiting = asyncio.create_task(replay._until_processed(client))
            done, _ = await asyncio.wait({waiting}, timeout=1.5 * _SECONDS_OF_QUIET)
            assert not done
            await client.jetstream().delete_stream(NAMES.estimates)
            done, _ = await asyncio.wait({waiting}, timeout=1.5 * _SECONDS_OF_QUIET)
            assert not done
            await stream.ensure(client, settings)
            await waiting
