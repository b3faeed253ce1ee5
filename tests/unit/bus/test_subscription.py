"""What a subscription hands out and what it refuses, whatever arrives and whatever breaks; on a server in memory."""

import asyncio
import contextlib
import time
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry, Counter

from bus import errors, stream, subscription
from bus.api import Refused as Rejected
from bus.reading.progress import Received
from bus.reading.reader import Reader
from bus.subscription import Subscription
from schemas import codec
from schemas import settings as all_settings
from schemas.messages.estimate import Availability
from schemas.messages.facts import NodeFacts
from schemas.messages.prediction import Forecast, Prediction
from schemas.messages.telemetry import SampleBlock
from schemas.subject import Names
from tests.support.extender.placement import report
from tests.support.nats.client import Connection, connect
from tests.support.nats.server import Server
from tests.support.processors import predicted
from tests.support.processors.telemetry import block

NAMES = Names()
SUBJECTS = [NAMES.of("availability", "*")]


def row(node: str, available: float = 1) -> bytes:
    return codec.encode(report(node, time.time_ns() // 1000, available))


async def publish(client: Connection, node: str, payload: bytes) -> None:
    await client.jetstream().publish(NAMES.node("availability", node), payload)


def reader(client: Connection, **named: int | bool) -> Reader:
    return Reader(client, NAMES.estimates, SUBJECTS, **named)  # type: ignore[arg-type] # numbers and switches


class Refused:
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.sequences: list[int] = []
        self.reasons: list[str] = []

    async def __call__(self, message: Received, reason: str) -> None:
        self.sequences.append(message.sequence)
        self.reasons.append(reason)


async def test_what_is_refused_is_reported_and_its_neighbours_are_handed_out(client: Connection) -> None:
    refused = Refused()
    for payload in (row("n", 1), b"{", row("other"), row("n", 4), b""):
        await publish(client, "n", payload)
    async with Subscription(reader(client), subscription.of(Availability), refused) as availabilities:
        while availabilities.position < 5:
            batch = await availabilities.read(linger_seconds=0.2)
            assert (batch.first, batch.last, batch.received, batch.pending) == (1, 5, 5, 0)
            assert [(each.sequence, each.message.available) for each in batch.messages] == [(1, 1), (4, 4)]
            assert [each.data for each in batch.messages] == [codec.encode(each.message) for each in batch.messages]
            assert {each.subject for each in batch.messages} == {NAMES.node("availability", "n")}
    assert refused.sequences == [2, 3, 5]
    assert "'other'" in refused.reasons[1]


async def test_a_buried_message_is_a_dead_letter_of_its_consumer_once_however_often_it_is_read(
    client: Connection,
) -> None:
    await publish(client, "n", b"nonsense")
    bury = subscription.bury(client, NAMES, "cache", NAMES.estimates, timeout_seconds=1)
    for _ in range(2):
        async with Subscription(reader(client), subscription.of(Availability), bury) as availabilities:
            assert not (await availabilities.read()).messages
    letter = await client.jetstream().get_last_msg(NAMES.dead_letters, NAMES.dead(NAMES.node("availability", "n")))
    assert (await stream.describe(client, NAMES.dead_letters)).last == 1
    assert letter.data == b"nonsense"
    assert (letter.headers or {})["Spazio-Consumer"] == "cache"


async def test_who_counts_or_ignores_leaves_the_dead_letters_to_others(client: Connection) -> None:
    await publish(client, "n", b"nonsense")
    await publish(client, "n", row("n"))
    missed = Counter("missed", "for this test", registry=CollectorRegistry())
    for policy in (subscription.count(missed), subscription.ignore):
        async with Subscription(reader(client), subscription.of(Availability), policy) as availabilities:
            count = 0
            while not count:
                count = len((await availabilities.read()).messages)
    assert missed._value.get() == 1
    assert (await stream.describe(client, NAMES.dead_letters)).last == 0


async def test_a_batch_has_at_most_so_many_and_says_how_many_are_behind_it(client: Connection) -> None:
    for number in range(7):
        await publish(client, "n", row("n", number) if number != 4 else b"")
    refused = Refused()
    async with Subscription(reader(client), subscription.of(Availability), refused, most=3) as availabilities:
        batches = [await availabilities.read(linger_seconds=0.2) for _ in range(3)]
        assert [(batch.first, batch.last, batch.pending) for batch in batches] == [(1, 3, 4), (4, 6, 1), (7, 7, 0)]
        assert [len(batch.messages) for batch in batches] == [3, 2, 1]
        assert refused.sequences == [5]
        empty = await availabilities.read(timeout_seconds=0.05)
        assert (empty.received, empty.first, empty.last, empty.pending) == (0, 0, 0, 0)
        assert availabilities.position == 7


async def test_what_a_newer_message_replaces_is_not_looked_at(client: Connection) -> None:
    for node, payload in (("a", b"{"), ("b", row("b")), ("a", row("a")), ("c", row("c")), ("c", b"{")):
        await publish(client, node, payload)
    refused = Refused()
    decode = subscription.of(Availability)
    async with Subscription(reader(client), decode, refused, newest_only=True) as availabilities:
        batch = await availabilities.read(linger_seconds=0.2)
    assert [each.sequence for each in batch.messages] == [2, 3]
    assert (batch.first, batch.last, batch.received) == (1, 5, 5)
    assert refused.sequences == [5]


async def test_a_read_that_is_cancelled_while_it_refuses_loses_nothing(client: Connection) -> None:
    blocked, waiting = asyncio.Event(), asyncio.Event()
    refused = Refused()

    async def refuse(message: Received, reason: str) -> None:
        blocked.set()
        await waiting.wait()
        await refused(message, reason)

    for payload in (row("n", 1), b"{", row("n", 3)):
        await publish(client, "n", payload)
    async with Subscription(reader(client), subscription.of(Availability), refuse) as availabilities:
        reading = asyncio.create_task(availabilities.read(linger_seconds=0.2))
        await blocked.wait()
        reading.cancel()
        await asyncio.wait({reading})
        assert availabilities.position == 0
        waiting.set()
        batch = await availabilities.read()
    assert [each.sequence for each in batch.messages] == [1, 3]
    assert refused.sequences == [2]


async def test_each_message_is_handed_out_or_refused_once_although_connections_break(
    server: Server, client: Connection
) -> None:
    refused, sequences = Refused(), list[int]()
    async with connect(server) as other:

        async def write() -> None:
            for number in range(1, 201):
                await publish(other, "n", row("n") if number % 10 else b"{")
                if number % 40 == 0:
                    with contextlib.suppress(ConnectionError):  # broken already
                        client.session.close()
                    await asyncio.sleep(0.1)

        async with (
            asyncio.timeout(60),
            asyncio.TaskGroup() as group,
            Subscription(reader(client), subscription.of(Availability), refused, most=7) as availabilities,
        ):
            group.create_task(write())
            async for batch in availabilities:
                sequences += [each.sequence for each in batch.messages]
                if availabilities.position == 200:
                    break
    assert client.stats["reconnects"] > 1
    assert refused.sequences == list(range(10, 201, 10))
    assert sequences == [number for number in range(1, 201) if number % 10]


async def test_work_begins_again_after_what_the_bus_or_its_owner_expects_and_ends_of_anything_else() -> None:
    class Expected(RuntimeError):
        pass

    ends: list[Exception] = [errors.BusError("broken"), TimeoutError(), Expected(), ZeroDivisionError()]
    remaining, reported = list(ends), list[Exception]()

    async def work() -> None:
        raise remaining.pop(0)

    with pytest.raises(ZeroDivisionError):
        await subscription.keep(work, reported.append, also=(Expected,), pause_seconds=0)
    assert reported == ends[:3]


async def test_a_bound_reader_of_a_stream_made_again_begins_again_by_its_keeper(client: Connection) -> None:
    settings = all_settings.load({"nats_partitions": "1"}, environ={})
    values, reported, done = list[float](), list[Exception](), asyncio.Event()

    async def work() -> None:
        bound = reader(client, bound=True)
        async with Subscription(bound, subscription.of(Availability), Refused()) as availabilities:
            async for batch in availabilities:
                values.extend(each.message.available for each in batch.messages)
                done.set()

    keeping = asyncio.create_task(subscription.keep(work, reported.append, pause_seconds=0.05))
    await publish(client, "n", row("n", 1))
    async with asyncio.timeout(60):
        await done.wait()
        done.clear()
        await client.jetstream().delete_stream(NAMES.estimates)
        await stream.ensure(client, settings)
        await publish(client, "n", row("n", 2))
        await done.wait()
    keeping.cancel()
    await asyncio.wait({keeping})
    assert values == [1, 2]
    assert [isinstance(error, errors.BusError) for error in reported] == [True]


async def test_in_a_stream_made_again_the_position_is_of_the_new_one(client: Connection) -> None:
    async with (
        asyncio.timeout(60),
        Subscription(reader(client), subscription.of(Availability), Refused()) as availabilities,
    ):
        for number in range(3):
            await publish(client, "n", row("n", number))
        while availabilities.position < 3:
            await availabilities.read()
        await client.jetstream().delete_stream(NAMES.estimates)
        await stream.ensure(client, all_settings.load({"nats_partitions": "1"}, environ={}))
        await publish(client, "n", row("n", 9))
        assert [each.message.available for each in (await availabilities.read()).messages] == [9]
        assert availabilities.position == 1


def test_a_kind_is_known_by_the_subject_and_an_unexpected_one_refused() -> None:
    kinds: dict[str, type[Prediction | Forecast | SampleBlock]] = {
        "prediction": Prediction,
        "forecast": Forecast,
        "samples": SampleBlock,
    }
    decode = subscription.by_kind(kinds)
    prediction, forecast = predicted.prediction(), predicted.forecast()
    assert decode(NAMES.node("prediction", prediction.node), codec.encode(prediction)) == prediction
    assert decode(NAMES.of("forecast", "shop", "web"), codec.encode(forecast)) == forecast
    assert isinstance(decode(NAMES.part(3, "samples", "n"), codec.encode(block("n", 1))), SampleBlock)
    for wrong in (NAMES.node("prediction", "another"), NAMES.node("reject", prediction.node)):
        with pytest.raises(codec.Refused):
            decode(wrong, codec.encode(prediction))


@pytest.mark.parametrize("decode", [subscription.of(NodeFacts), subscription.of(NodeFacts, by_node=False)])
def test_an_empty_message_is_a_deleted_key_only_for_whom_it_is_expected(
    decode: Callable[[str, bytes], NodeFacts],
) -> None:
    subject = f"$KV.{NAMES.nodes_bucket}.n"
    assert subscription.or_deleted(decode)(subject, b"") is None
    for payload, reader_of in ((b"", decode), (b"{", subscription.or_deleted(decode))):
        with pytest.raises(codec.Refused):
            reader_of(subject, payload)


async def test_the_next_message_of_a_subject_is_waited_for_only_so_long(server: Server, client: Connection) -> None:
    async with connect(server) as other:
        waiting = asyncio.create_task(subscription.next_payload(client, "any.subject", timeout_seconds=5))
        while not waiting.done():
            await other.publish("any.subject", b"1")
            await asyncio.sleep(0.02)
        assert waiting.result() == b"1"
    with pytest.raises(TimeoutError):
        await subscription.next_payload(client, "any.subject", timeout_seconds=0.05)


async def test_every_error_of_the_bus_is_one_to_who_catches_them(client: Connection) -> None:
    with pytest.raises(errors.NotFound):
        await stream.describe(client, "NONE")
    with pytest.raises(errors.NotFound):
        await stream.newest(client, "NONE", "s", 1)
    assert (await stream.newest(client, NAMES.estimates, NAMES.node("availability", "n"), 1)).sequence == 0
    assert all(issubclass(kind, errors.REQUEST_FAILED) for kind in (errors.NotFound, Rejected, TimeoutError))
