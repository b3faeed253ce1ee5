"""A server that comes back with less than it had acknowledged, as after a loss of power."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
from nats.aio.client import Client

from bus import stream
from bus.folding.checkpoint import Checkpoint, Store
from bus.folding.resumption import find
from bus.health import Health
from bus.publishing import batch, coverage
from bus.publishing.batch import Row
from bus.reading.reader import Reader
from bus.reading.setback import Mark, SetBack, last_until
from schemas import codec
from schemas.live import Live
from schemas.messages.estimate import Cursor
from schemas.settings import Settings
from schemas.subject import Names
from sinks import cache
from sinks.history import service, view
from sinks.history.continuity.gap import GAPS, SET_BACK
from spazio.service import processing
from tests.conftest import NatsServer
from tests.support.processors import telemetry
from tests.support.server.power import Power, publish

NAMES = Names()
NODES = {"n0", "n1", "n2", "n3"}


@pytest.fixture
def power(nats_server: NatsServer, tmp_path: Path) -> Power:
    return Power(nats_server, tmp_path / "copy")


async def feed(client: Client, seconds: range, nodes: int = 1) -> None:
    for second in seconds:
        for node in range(nodes):
            block = telemetry.block(f"n{node}", second, cpu_util=0.3, memory_util=0.4, pods=2.0)
            await publish(client, NAMES.node("samples", block.node), codec.encode(block))


async def read(reader: Reader, last: int) -> list[int]:
    sequences: list[int] = []
    async with asyncio.timeout(60):
        while not sequences or sequences[-1] < last:
            sequences += [message.sequence for message in await reader.read()]
    return sequences


async def test_a_reader_goes_on_behind_what_the_server_kept(client: Client, power: Power) -> None:
    subjects = [NAMES.part("*")]
    free = Reader(client, NAMES.telemetry, subjects, timeout_seconds=1)
    own = Reader(client, NAMES.telemetry, subjects, timeout_seconds=1, bound=True)
    async with free, own:
        await feed(client, range(5))
        await power.synced()
        await feed(client, range(5, 10))
        for reader in (free, own):
            assert await read(reader, 10) == list(range(1, 11))
        position = own.mark
        power.lose()
        # More than it had: the sequence alone says nothing any more.
        await feed(client, range(10, 30))
        assert await read(free, 25) == list(range(6, 26))
        with pytest.raises(SetBack) as raised:
            async with asyncio.timeout(60):
                await own.read()
    assert (raised.value.read, raised.value.kept.sequence) == (position, 5)
    assert await last_until(client, NAMES.telemetry, raised.value.kept.stored_us, 1) == 5
    async with Reader(client, NAMES.telemetry, subjects, after=raised.value.kept, bound=True) as later:
        assert await read(later, 25) == list(range(6, 26))
    async with Reader(client, NAMES.telemetry, subjects, after=26, bound=True) as old:  # of an earlier version
        with pytest.raises(SetBack):
            await old.read()


async def test_cursors_and_checkpoints_hold_as_far_as_the_server_kept_their_input(client: Client, power: Power) -> None:
    subject, store = NAMES.of("cursor", "0"), Store(client, NAMES.checkpoints, timeout_seconds=1)
    await feed(client, range(5))
    source = await stream.describe(client, NAMES.telemetry)
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
        await read(reader, 5)
        early = reader.mark
        await store.save("0", Checkpoint(source.identity, early.sequence, b"early", early.stored_us, 5))
        await power.synced()
        await feed(client, range(5, 8))
        await read(reader, 8)
        late = reader.mark
    power.lose()
    await feed(client, range(8, 20))
    source = await stream.describe(client, NAMES.telemetry)
    # What was folded after the power failed is stored by the processor that still had it.
    await store.save("0", Checkpoint(source.identity, late.sequence, b"late", late.stored_us, 8))
    cursor = Cursor(stream=source.name, created=source.identity, sequence=late.sequence, stored_us=late.stored_us)
    await batch.publish(client, NAMES.estimates, [], Row(subject, codec.encode(cursor)), 0, timeout_seconds=1)
    assert (await coverage.covered(client, NAMES.estimates, subject, source))[0] == 5
    result = await find(client, Store(client, NAMES.checkpoints, timeout_seconds=1), "0", source, 5, 1)
    assert result is not None
    assert (result.sequence, result.body) == (5, b"early")


async def test_a_checkpoint_is_older_than_the_rows_that_the_server_lost(client: Client) -> None:
    store = Store(client, NAMES.checkpoints, timeout_seconds=1)
    await feed(client, range(9))
    source = await stream.describe(client, NAMES.telemetry)
    async with Reader(client, NAMES.telemetry, [NAMES.part("*")]) as reader:
        marks: list[Mark] = []
        async with asyncio.timeout(60):
            while reader.position < 9:
                marks += [Mark(message.sequence, message.stored_us) for message in await reader.read()]
    for sequence in (4, 8):
        await store.save("0", Checkpoint(source.identity, sequence, b"", marks[sequence - 1].stored_us, sequence))
    covered = {rows: await find(client, store, "0", source, rows, 1) for rows in (0, 3, 5, 9)}
    assert {rows: result.sequence if result else 0 for rows, result in covered.items()} == {0: 8, 3: 8, 5: 4, 9: 8}


@asynccontextmanager
async def history(client: Client, settings: Settings) -> AsyncIterator[Health]:
    health = Health()
    writing = asyncio.create_task(service.run(client, Live(settings), health))
    try:
        yield health
    finally:
        writing.cancel()
        await asyncio.wait({writing})


def stored(folder: Path, table: str, key: str) -> list[tuple[str, int, int]]:
    with view.connect(folder) as connection:
        statement = f"SELECT node, {key}, count(*) FROM {table} GROUP BY ALL ORDER BY ALL"
        return connection.execute(statement).fetchall()


async def until(folder: Path, expected: set[int]) -> None:
    """Wait until the samples of exactly these seconds of the node are stored, each once."""
    rows: list[tuple[str, int, int]] = []
    try:
        async with asyncio.timeout(60):
            while rows != [("n0", 1000 + second, 10) for second in sorted(expected)]:
                await asyncio.sleep(0.1)
                rows = stored(folder, "samples", "seq") if (folder / view.FILE).exists() else []
    except TimeoutError:
        raise AssertionError(rows) from None


@pytest.fixture
def quick(settings: Settings) -> Settings:
    return settings.model_copy(update={"history": settings.history.model_copy(update={"flush_seconds": 0.2})})


@pytest.mark.slow
async def test_a_stopped_history_notices_that_other_messages_took_the_place_of_its_last(
    client: Client, quick: Settings, power: Power
) -> None:
    folder = quick.history_dir
    async with history(client, quick):
        await feed(client, range(5))
        await until(folder, set(range(5)))
        await power.synced()
        await feed(client, range(5, 10))
        await until(folder, set(range(10)))
    power.lose()
    await feed(client, range(10, 30))
    before = GAPS.labels(NAMES.telemetry, SET_BACK)._value.get()
    async with history(client, quick):
        await until(folder, set(range(30)))
    assert GAPS.labels(NAMES.telemetry, SET_BACK)._value.get() - before == 1
    async with history(client, quick):  # and nothing again
        await feed(client, range(30, 31))
        await until(folder, set(range(31)))
    assert GAPS.labels(NAMES.telemetry, SET_BACK)._value.get() - before == 1


@pytest.mark.slow
async def test_what_a_producer_sends_again_after_a_loss_of_power_is_stored_once(
    client: Client, quick: Settings, power: Power
) -> None:
    folder = quick.history_dir
    async with history(client, quick):
        await feed(client, range(3))
        await until(folder, set(range(3)))
        await power.synced()
        await feed(client, range(3, 6))
        await until(folder, set(range(6)))
    power.lose()
    await feed(client, range(4, 9))  # its acknowledgements came too late
    async with history(client, quick):
        await until(folder, set(range(9)))


class Cluster:
    """Four nodes that publish a block every 50 ms, and what the history should have of them."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client, self._folder, self._random = client, folder, np.random.default_rng(3)
        self.seconds = 0

    async def run(self, count: int) -> None:
        for second in range(self.seconds, self.seconds + count):
            for node in sorted(NODES):
                block = telemetry.noisy(node, second, 2, self._random)
                await publish(self._client, NAMES.node("samples", node), codec.encode(block))
            await asyncio.sleep(0.05)
        self.seconds += count

    async def settled(self) -> None:
        """Wait until the history has each row once."""
        expected = [(node, 1000 + second, 10) for node in sorted(NODES) for second in range(self.seconds)]
        await self._until(lambda: self.rows("samples", "seq") == expected)

    async def estimated(self) -> None:
        """Wait until the history has estimates of the last seconds."""
        late_us = (telemetry.START + self.seconds - 3) * 1_000_000
        await self._until(lambda: {row[0] for row in self.rows("availability", "at_us") if row[1] > late_us} == NODES)

    async def healthy(self, health: Health) -> None:
        """Wait until the history has no problem; it notices that a moment after it has written the rows."""
        await self._until(lambda: not health.problems)

    def rows(self, table: str, key: str) -> list[tuple[str, int, int]]:
        return stored(self._folder, table, key) if (self._folder / view.FILE).exists() else []

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(40):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.2)


@pytest.mark.slow
async def test_after_three_losses_of_power_every_row_published_since_is_in_history_once(
    client: Client, quick: Settings, power: Power
) -> None:
    process = quick.process.model_copy(update={"failover_seconds": 1.5, "checkpoint_seconds": 0.5})
    settings, health = quick.model_copy(update={"process": process}), Health()
    cluster = Cluster(client, quick.history_dir)
    before = GAPS.labels(NAMES.telemetry, SET_BACK)._value.get()
    working = [
        asyncio.create_task(processing.run(client, Live(settings), Health())),
        asyncio.create_task(service.run(client, Live(settings), health)),
        asyncio.create_task(cache.run(client, settings, Health())),
    ]
    try:
        for _ in range(3):
            await cluster.run(20)
            await power.synced()
            await cluster.run(15)
            await cluster.settled()
            power.lose()
            await cluster.run(30)
            await cluster.settled()
        await cluster.estimated()
        await cluster.healthy(health)
    finally:
        for task in working:
            task.cancel()
        await asyncio.wait(working)
    assert {count for *_, count in cluster.rows("availability", "at_us")} == {1}
    assert GAPS.labels(NAMES.telemetry, SET_BACK)._value.get() - before == 3
