"""What a term leaves behind that ends before it has loaded a state."""

import asyncio

import nats.errors
import pytest
from nats.aio.client import Client

from bus.folding import resumption
from bus.folding.task import Task
from bus.health import Health
from bus.reading import leased
from bus.reading.lease import Lease, Lost
from bus.stream import Stream
from schemas.settings import Settings
from tests.integration.bus.folding.test_poison import fill, folded, rows, runner, settings

__all__ = ["settings"]  # the fixture


@pytest.mark.slow
async def test_a_term_that_ends_before_it_has_loaded_a_state_saves_none(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The term before has lost its lease, so what it folded is in no checkpoint."""
    never = settings.process.model_copy(update={"checkpoint_seconds": 3600})
    working = runner(client, settings.model_copy(update={"process": never}), Health())
    shown, lost, failed = list[tuple[int, int]](), asyncio.Event(), asyncio.Event()
    input_of, verify = resumption.input_of, Lease.verify

    async def lose(_lease: Lease) -> None:
        monkeypatch.setattr(Lease, "verify", verify)
        lost.set()
        raise Lost("another replica has it")

    async def fail(asking: Client, task: Task) -> Stream:
        if not working.since:  # it stands by
            return await input_of(asking, task)
        shown.append((working.sequence, working.lag))
        if len(shown) == 2:  # the first failed term has ended
            failed.set()
        raise nats.errors.ConnectionReconnectingError

    last = await fill(client, [b"1"] * 5)
    running = asyncio.create_task(working.run())
    await folded(client, last)
    with monkeypatch.context() as patched:
        patched.setattr(resumption, "input_of", fail)
        patched.setattr(leased, "_VERIFY_SECONDS", 0.0)
        monkeypatch.setattr(Lease, "verify", lose)
        async with asyncio.timeout(30):
            await lost.wait()
            last = await fill(client, [b"1"])  # the server gives the lease to nobody without a message
            await failed.wait()
        running.cancel()
        await asyncio.wait({running})
    running = asyncio.create_task(runner(client, settings, Health()).run())
    await folded(client, last)
    running.cancel()
    await asyncio.wait({running})
    assert [payload for _, payload in await rows(client)] == [b"%d" % number for number in range(1, 7)]
    assert shown == [(0, 0)] * 2
