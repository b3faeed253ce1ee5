"""A fold that takes longer than a lease lasts loses no lease, and the service goes on answering."""

import asyncio
import time
from collections.abc import Sequence

import pytest
from nats.aio.client import Client
from prometheus_client import REGISTRY

from bus.folding.journal import Batches
from bus.folding.task import OutputRow, Shared, Task
from bus.folding.task_runner import TaskRunner
from bus.health import Health
from schemas.codec import InvalidMessage
from schemas.live import Live
from schemas.settings import Settings
from tests.integration.bus.folding.test_poison import NAMES, Totals, fill, folded, rows, settings

__all__ = ["settings"]  # the fixture

_FOLD_SECONDS = 4.0


class Slow(Totals):
    """Computes for four times as long as a lease lasts."""

    folds = 0

    def fold(self, messages: Sequence[tuple[str, bytes]]) -> tuple[Sequence[OutputRow], Sequence[InvalidMessage]]:
        type(self).folds += 1
        end = time.monotonic() + _FOLD_SECONDS
        while time.monotonic() < end:
            pass
        return super().fold(messages)


def counted(name: str) -> float:
    return REGISTRY.get_sample_value(name) or 0.0


@pytest.mark.slow
async def test_a_fold_longer_than_a_lease_keeps_it_and_leaves_the_loop_free(client: Client, settings: Settings) -> None:
    def runner(fold: Totals) -> TaskRunner:
        task = Task("totals", NAMES.telemetry, (NAMES.partition(0),))
        journal = Batches(client, NAMES.estimates, NAMES.of("cursor", "totals"), timeout_seconds=1)
        return TaskRunner(client, Live(settings), Health(), task, fold, journal, Shared())

    lost, fenced = counted("spazio_leases_lost_total"), counted("spazio_folds_fenced_total")
    last = await fill(client, [b"1"] * 20)
    slow, rival = runner(Slow()), runner(Totals())
    running = asyncio.create_task(slow.run())
    while not Slow.folds:  # noqa: ASYNC110 # another thread counts
        await asyncio.sleep(0.01)
    waiting, longest = asyncio.create_task(rival.run()), 0.0
    done = asyncio.create_task(folded(client, last))
    while not done.done():
        began = time.monotonic()
        await asyncio.sleep(0.01)
        longest = max(longest, time.monotonic() - began)
    assert slow.since
    assert not rival.since
    assert longest < _FOLD_SECONDS / 2
    for task in (running, waiting):
        task.cancel()
    await asyncio.wait({running, waiting})
    assert counted("spazio_leases_lost_total") == lost
    assert counted("spazio_folds_fenced_total") == fenced
    assert [payload for _, payload in await rows(client)] == [b"%d" % number for number in range(1, 21)]
