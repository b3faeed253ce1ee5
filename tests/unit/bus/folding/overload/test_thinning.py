"""A task that is far behind is not even sent the blocks before, and does not read what comes for ever."""

from collections import Counter
from collections.abc import Sequence

import pytest

from bus import stream
from bus.accounting import ledger
from bus.accounting.ledger import Account
from bus.folding.overload.shedding import BLOCKS, NONE, PREDICTIONS, Shedding
from bus.folding.overload.thinning import Thinning
from bus.health import Health
from bus.reading.lease import Lease
from bus.reading.leased import Ahead, Calm, LeasedReader
from bus.reading.progress import Received
from schemas.settings import load
from schemas.subject import Names
from tests.support.nats.client import Connection, connect
from tests.support.nats.server import Server

NAMES = Names()
NODES = 31
SUBJECTS = ("spazio.part.0.>", "spazio.model")
KINDS = ("samples", "pods", "edge")


def message(sequence: int, kind: str = "samples", node: str = "n") -> Received:
    return Received(f"spazio.part.0.{kind}.{node}", sequence, b"{}", sequence * 1_000_000)


class Behind:
    """A reader of a stream that gets longer while it is read; it skips if it may."""

    def __init__(self, pending: int, fact: Received) -> None:
        self.pending, self.fact, self.reads, self.asked = pending, fact, 0, list[str]()
        self.position, self._skipped = 100, 0

    async def read(self, **_: float) -> list[Received]:
        self.reads += 1
        self.position += 10
        return [message(self.position + index) for index in range(10)]

    async def skip_ahead(self, seconds: float, apart: Sequence[str], calm: Calm) -> Ahead:
        assert seconds > 1
        self.asked, self._skipped, self.position, self.pending = list(apart), 500, 1000, 60
        return Ahead(calm([self.fact]), continues=True)

    def take_skipped(self) -> int:
        count, self._skipped = self._skipped, 0
        return count


def shedding(level: int) -> Shedding:
    made = Shedding(KINDS, lambda: 1.0)
    made.level = level
    return made


async def thinned(reader: Behind, level: int, *, seconds: int) -> tuple[list[Received], Account]:
    account = Account("process", "S")
    thinning = Thinning(shedding(level), "0", Health(), account, patient=False, subjects=SUBJECTS)
    kept = await thinning.thinned(reader, [message(1), message(1 + seconds)])  # type: ignore[arg-type] # what it asks for
    account.receive(len(kept))
    account.add("folded", len(kept))
    assert ledger.faults(account.statement()) == []
    return kept, account


async def test_blocks_before_the_end_are_skipped_and_counted_and_the_rest_is_folded() -> None:
    reader = Behind(1000, message(700, "podfacts"))
    kept, account = await thinned(reader, BLOCKS, seconds=4)
    assert reader.fact in kept
    assert "spazio.part.0.podfacts.*" in reader.asked
    assert "spazio.part.0.edge.*" in reader.asked
    assert "spazio.model" in reader.asked
    assert not any(".samples." in each for each in reader.asked)
    assert kept[-1].sequence == reader.position + 9
    read = 2 + 1 + 10 * reader.reads
    assert account.statement().outcomes == {"folded": len(kept), "skipped": 500 + read - len(kept)}


async def test_what_comes_while_it_reads_is_not_read_for_ever() -> None:
    reader = Behind(1000, message(700, "podfacts"))
    await thinned(reader, BLOCKS, seconds=4)
    assert 6 <= reader.reads <= 14  # sixty waited, and twice as many are read at most


class Flooded(Behind):
    """A reader of a stream in which one node says nearly everything."""

    async def read(self, **_: float) -> list[Received]:
        self.reads += 1
        self.position += 100
        us = self.position * 1000
        return [Received(f"spazio.part.0.samples.{'bad' if index else 'n'}", 1, b"", us) for index in range(100)]


async def test_a_flood_is_not_read_for_ever_either() -> None:
    reader = Flooded(9000, message(1))
    thinning = Thinning(shedding(BLOCKS), "0", Health(), Account("process", "S"), patient=False, subjects=SUBJECTS)
    await thinning.thinned(reader, [message(1)])  # type: ignore[arg-type] # what it asks for
    assert 90 <= reader.reads <= 182


class Noisy(Behind):
    """A reader that reads apart what one node says of its containers, without end, and two events of another."""

    async def skip_ahead(self, seconds: float, apart: Sequence[str], calm: Calm) -> Ahead:
        kept = (await super().skip_ahead(seconds, apart, calm)).messages
        for _ in range(40):
            kept += calm([message(600, "containers", "bad")] * 500)
        kept += calm([message(600, "containers", "n")] * 2)
        return Ahead(kept, continues=True, left_out=1 + 40 * 500 + 2 - len(kept))


async def test_of_events_that_are_read_apart_those_of_a_flood_are_left_out_and_counted() -> None:
    reader = Noisy(1000, message(700, "podfacts"))
    kept, account = await thinned(reader, BLOCKS, seconds=4)
    events = Counter(event.subject for event in kept if ".containers." in event.subject)
    assert events == {"spazio.part.0.containers.bad": 10_000 + 20, "spazio.part.0.containers.n": 2}
    assert account.statement().outcomes["flooded"] == 10_000 - 20


class Late(Behind):
    """A reader that the server answers in time at the second attempt only; a node has sent all that its agent kept."""

    attempts = 0

    async def skip_ahead(self, seconds: float, apart: Sequence[str], calm: Calm) -> Ahead:
        self.attempts += 1
        kept = [event for _ in range(24) for event in calm([message(600, "containers", "away")] * 500)]
        if self.attempts == 1:
            return Ahead([])
        ahead = await super().skip_ahead(seconds, apart, calm)
        return Ahead(kept + ahead.messages, continues=True, left_out=24 * 500 - len(kept))


async def test_what_was_read_apart_in_vain_is_neither_counted_nor_taken_off_a_credit() -> None:
    reader, account = Late(50, message(700, "podfacts")), Account("process", "S")
    thinning = Thinning(shedding(BLOCKS), "0", Health(), account, patient=False, subjects=SUBJECTS)
    for flooded in (0, 2000 - 4):
        kept = await thinning.thinned(reader, [message(1), message(5)])  # type: ignore[arg-type] # what it asks for
        assert account.statement().outcomes.get("flooded", 0) == flooded
    assert reader.attempts == 2
    assert sum(".containers." in each.subject for each in kept) == 10_000 + 4


class Waiting(Behind):
    """A reader of a stream with so many messages, of which all are blocks."""

    async def read(self, **_: float) -> list[Received]:
        count = min(1000, self.pending)
        self.pending -= count
        return [message(1)] * count


@pytest.mark.parametrize("count", [1000, 8000, 16_000])
async def test_predictions_are_made_of_one_of_four_batches_however_much_waits(count: int) -> None:
    thinning = Thinning(shedding(PREDICTIONS), "0", Health(), Account("process", "S"), patient=True, subjects=SUBJECTS)
    folded: list[int] = []
    for _ in range(8):
        reader = Waiting(count - 1000, message(1))
        folded.append(len(await thinning.thinned(reader, [message(1)] * 1000)))  # type: ignore[arg-type] # what it asks for
    assert folded == [1, 1, 1, count] * 2


async def nothing() -> int:
    return 0


async def publish(client: Connection, seconds: int, now: list[float]) -> None:
    """Let each node send two blocks a second."""
    for number in range(2 * NODES * seconds):
        now[0] += 1 / (2 * NODES)
        subject = NAMES.node("samples" if number % 2 else "pods", f"n{number // 2 % NODES}")
        await client.jetstream().publish(subject, b"{}")


async def test_after_a_skip_the_newest_block_of_each_node_is_folded_and_no_other() -> None:
    now = [1_700_000_000.0]
    async with connect(Server(clock=lambda: now[0])) as client:
        await stream.ensure(client, load({"nats_partitions": "1"}, environ={}))
        await publish(client, 10, now)
        names = NAMES.telemetry, "c", [NAMES.partition(0)]
        async with Lease(client, *names, failover_seconds=3, timeout_seconds=1, covered=nothing) as lease:
            await lease.acquire()
            async with LeasedReader(client, lease, batch=200) as reader:
                health, account, patterns = Health(), Account("process", "S"), (NAMES.partition(0), NAMES.model)
                thinning = Thinning(shedding(BLOCKS), "0", health, account, patient=False, subjects=patterns)
                kept = await thinning.thinned(reader, await reader.read(linger_seconds=0.5))
                assert account.statement().outcomes["skipped"] > 5 * 2 * NODES
                assert reader.pending == 0
    assert len(kept) == 2 * NODES
    assert max(now[0] - message.stored_us / 1e6 for message in kept) < 1.05


@pytest.mark.parametrize(("level", "seconds"), [(NONE, 1000), (BLOCKS, 0)])
async def test_nothing_is_skipped_by_a_task_that_catches_up_or_is_near_the_end(level: int, seconds: int) -> None:
    reader = Behind(20, message(700, "podfacts"))
    kept, account = await thinned(reader, level, seconds=seconds)
    assert not reader.asked
    assert reader.fact not in kept
    assert account.statement().outcomes.get("skipped", 0) < 500
