"""Messages of which a task makes no rows: they move no cursor, and what is stored of the task stays usable."""

import asyncio
import logging
from collections.abc import Sequence

import pytest
from nats.aio.client import Client

from bus import stream
from bus.folding.checkpoint import Store
from bus.folding.journal import Batches
from bus.folding.task import OutputRow, Shared, Task
from bus.folding.task_runner import TaskRunner
from bus.health import Health
from schemas.codec import InvalidMessage
from schemas.live import Live
from schemas.settings import Settings
from tests.integration.bus.folding.test_poison import NAMES, Totals, fill, settings

__all__ = ["settings"]  # the fixture


class Quiet(Totals):
    """Counts all messages, and makes rows of numbers only."""

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[Sequence[OutputRow], Sequence[InvalidMessage]]:
        outputs, invalid = super().fold(messages)
        return [output for output in outputs if messages[output.index][1].isdigit()], invalid


async def term(client: Client, settings: Settings, last: int) -> None:
    """Fold up to a sequence, and end as a replica that is stopped."""
    task = Task("totals", NAMES.telemetry, (NAMES.partition(0),))
    journal = Batches(client, NAMES.estimates, NAMES.of("cursor", "totals"), timeout_seconds=1)
    working = TaskRunner(client, Live(settings), Health(), task, Quiet(), journal, Shared())
    running = asyncio.create_task(working.run())
    async with asyncio.timeout(30):
        while working.sequence < last:  # noqa: ASYNC110 # a fold sends no notice
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait({running})


@pytest.mark.slow
async def test_checkpoints_ahead_of_the_last_row_are_used_however_often_the_task_changes_hands(
    client: Client, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for payload in (b"1", b"quiet", b"quiet", b"quiet", b"quiet"):
        last = await fill(client, [payload])
        await term(client, settings, last)
    source = await stream.describe(client, NAMES.telemetry)
    newest = await Store(client, NAMES.checkpoints, timeout_seconds=1).load("totals", source.identity)
    assert newest is not None
    assert (newest.sequence, newest.published) == (5, 1)
    resumed = [record.__dict__["after"] for record in caplog.records if record.getMessage() == "fold.resumed"]
    assert resumed == [0, 1, 2, 3, 4]
    assert "rows.lost" not in caplog.messages
