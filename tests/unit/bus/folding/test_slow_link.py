"""Checkpoints over a link on which each request takes seconds, in virtual time."""

import asyncio

from bus import stream
from bus.folding.checkpoint import Checkpoint, Store
from schemas import settings as all_settings
from schemas.subject import Names
from tests.support import virtual
from tests.support.nats.client import connect
from tests.support.nats.server import Server

SETTINGS = all_settings.load({}, environ={})
BODY = bytes(4 << 20)  # eight chunks


def test_a_checkpoint_that_could_be_written_over_a_slow_link_can_be_read() -> None:
    async def write_and_read() -> Checkpoint | None:
        server = Server()
        async with connect(server) as client:
            await stream.ensure(client, SETTINGS)
            server.delay_seconds = 1.0
            bucket = Names().checkpoints
            timeout_seconds = SETTINGS.nats.request_timeout_seconds
            await Store(client, bucket, timeout_seconds=timeout_seconds).save("0", Checkpoint("s", 1, BODY))
            began = asyncio.get_running_loop().time()
            checkpoint = await Store(client, bucket, timeout_seconds=timeout_seconds).load("0", "s")
            assert asyncio.get_running_loop().time() - began > 10
            return checkpoint

    assert virtual.run(write_and_read()) == Checkpoint("s", 1, BODY)
