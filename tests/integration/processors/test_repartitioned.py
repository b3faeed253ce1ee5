"""A telemetry stream that is made again with another number of partitions, under processors that run."""

import asyncio
import os
import sys

import pytest

from bus import connection, stream
from schemas import settings as all_settings
from schemas.settings import Settings
from schemas.subject import Names
from tests.conftest import NatsServer
from tests.integration.bus.test_wiped_server import wipe

TELEMETRY = Names().telemetry


def partitioned(settings: Settings, number: int) -> Settings:
    nats = settings.nats.model_copy(update={"partitions": number, "probe_seconds": 0.3})
    return settings.model_copy(update={"nats": nats})


@pytest.mark.slow
async def test_processors_end_so_that_they_start_with_the_tasks_of_the_new_partitions(
    settings: Settings, nats_server: NatsServer
) -> None:
    environ = {**os.environ, **all_settings.environment(partitioned(settings, 4)), "SPAZIO_HTTP_PORT": "0"}
    command = (sys.executable, "-m", "spazio", "process")
    async with connection.connect(settings, "test") as client, asyncio.timeout(40):
        await stream.ensure(client, partitioned(settings, 2))
        process = await asyncio.create_subprocess_exec(*command, env=environ, stderr=asyncio.subprocess.PIPE)
        try:
            while len(await stream.consumers(client, TELEMETRY)) < 2:  # noqa: ASYNC110 # another process asks
                await asyncio.sleep(0.1)
            wipe(nats_server)
            _, log = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
    assert process.returncode == 1
    assert b"stream.partitions_changed" in log
    assert b"4 partitions now, and had 2" in log
    assert b"Traceback" not in log
