"""What each reader of the bus does with bytes that are no message, on a real server that is killed in between."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from nats.aio.client import Client

from bus import stream, subscription
from bus.accounting.ledger import Ledger
from bus.health import Health
from bus.reading.reader import Reader
from bus.subscription import Subscription
from schemas import codec
from schemas.messages.estimate import Availability
from schemas.settings import Settings
from schemas.subject import Names
from sinks import cache
from sinks.extender.feed import source as extender
from sinks.extender.feed.follow import Followed
from sinks.extender.state.cluster_state import ClusterState
from sinks.kubernetes import latest as kubernetes
from sinks.metrics import service
from spazio.terminal import latest
from tests.conftest import NatsServer
from tests.e2e.kubernetes.watch.watching import until
from tests.support.extender.placement import report

NAMES = Names()


def row(node: str, available: float = 1) -> bytes:
    return codec.encode(report(node, time.time_ns() // 1000, available))


async def publish(client: Client, node: str, payload: bytes) -> None:
    await client.jetstream().publish(NAMES.node("availability", node), payload)


_Nodes = service.Nodes


async def mixed(client: Client) -> None:
    """Publish what is no message, what is of another node, and a message."""
    await publish(client, "bad", b"{")
    await publish(client, "liar", row("other"))
    await publish(client, "good", row("good", 3))


async def dead(client: Client) -> list[tuple[str, str]]:
    """Return consumer and subject of each dead letter."""
    last, letters = (await stream.describe(client, NAMES.dead_letters)).last, list[tuple[str, str]]()
    for sequence in range(1, last + 1):
        headers = (await client.jetstream().get_msg(NAMES.dead_letters, sequence)).headers or {}
        letters.append((headers["Spazio-Consumer"], headers["Spazio-Subject"]))
    return letters


@asynccontextmanager
async def working(work: Awaitable[None]) -> AsyncIterator[None]:
    running = asyncio.ensure_future(work)
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait({running})


async def soon(condition: Callable[[], bool]) -> None:
    async def look() -> bool:
        return condition()

    await until(look, 10, lambda: "it does not come")


async def test_the_cache_buries_and_goes_on_where_it_was(client: Client, settings: Settings) -> None:
    await mixed(client)
    written = cache.WRITTEN._value.get()
    async with working(cache.run(client, settings, Health())):
        await soon(lambda: cache.WRITTEN._value.get() == written + 1)
    assert await dead(client) == [("cache", NAMES.node("availability", node)) for node in ("bad", "liar")]
    await publish(client, "good", row("good", 4))
    async with working(cache.run(client, settings, Health())):
        await soon(lambda: cache.WRITTEN._value.get() == written + 2)
    kept = await client.jetstream().get_last_msg(
        f"KV_{NAMES.availability_bucket}", f"$KV.{NAMES.availability_bucket}.good"
    )
    assert codec.decode(Availability, kept.data or b"").available == 4
    assert len(await dead(client)) == 2


async def test_rows_that_another_cache_kept_from_being_written_count_once_they_are(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "LEDGER", ledger := Ledger())
    account = ledger.account("cache rows", NAMES.estimates)
    cursor, js = NAMES.of("cache", "cursor"), client.jetstream()
    async with working(cache.run(client, settings, Health())):
        await publish(client, "a", row("a"))
        await soon(lambda: account.statement().outcomes == {"written": 1})
        await js.publish(cursor, (await js.get_last_msg(f"KV_{NAMES.availability_bucket}", cursor)).data or b"")
        await publish(client, "b", row("b"))
        await soon(lambda: account.statement().outcomes == {"written": 2})
    assert (account.statement().received, account.statement().waiting) == (2, 0)


async def test_the_output_to_kubernetes_buries_too_and_the_letter_is_the_same(
    client: Client, settings: Settings
) -> None:
    await mixed(client)
    latest = kubernetes.Latest()
    written = cache.WRITTEN._value.get()
    async with working(kubernetes.follow(client, settings, latest, time.time)), asyncio.timeout(60):
        await latest.current.wait()
    assert set(latest.availabilities) == {"good"}
    assert [consumer for consumer, _ in await dead(client)] == ["kubernetes"] * 2
    async with working(cache.run(client, settings, Health())):
        await soon(lambda: cache.WRITTEN._value.get() == written + 1)
    assert [consumer for consumer, _ in await dead(client)] == ["kubernetes"] * 2


async def test_metrics_count_and_bury_nothing(client: Client, settings: Settings) -> None:
    await mixed(client)
    refused = service.REFUSED._value.get()
    async with working(service.run(client, settings)):
        await soon(lambda: service.REFUSED._value.get() == refused + 2)
    assert await dead(client) == []


@pytest.mark.slow
async def test_metrics_free_a_silent_node_although_nobody_scrapes(
    client: Client, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[service.Nodes] = []

    def brief(_expiry_seconds: float) -> service.Nodes:
        made.append(_Nodes(1.0))
        return made[-1]

    monkeypatch.setattr(service, "_FREE_SECONDS", 0.1)
    monkeypatch.setattr(service, "Nodes", brief)
    await publish(client, "good", row("good", 3))
    async with working(service.run(client, settings)):
        await soon(lambda: bool(made) and len(made[0]) == 1)
        await soon(lambda: len(made[0]) == 0)


async def test_the_extender_counts_by_kind_says_it_once_for_a_subject_and_is_ready_all_the_same(
    client: Client, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = f"$KV.{NAMES.availability_bucket}"
    for number in range(3):
        await client.jetstream().publish(f"{bucket}.bad", b"%d" % number)
    await client.jetstream().publish(f"{bucket}.gone", b"")
    await client.jetstream().publish(f"{bucket}.good", row("good", 3))
    refused, taken = (each.labels("availability")._value.get() for each in (extender.REFUSED, extender.TAKEN))
    cluster_state = ClusterState(settings)
    followed = Followed(client, settings, cluster_state)
    async with working(followed.run()), asyncio.timeout(60):
        await followed.ready.wait()
        assert extender.TAKEN.labels("availability")._value.get() == taken + 3
        await client.jetstream().publish(f"{bucket}.bad", b"3")
        await soon(lambda: extender.REFUSED.labels("availability")._value.get() == refused + 2)
    assert cluster_state.nodes() == ["good"]
    warned = [record for record in caplog.records if record.message == "extender.refused"]
    assert [record.__dict__["subject"] for record in warned if record.levelname == "WARNING"] == [f"{bucket}.bad"]
    assert await dead(client) == []


async def test_top_passes_over_deleted_keys_and_what_is_no_row(client: Client, settings: Settings) -> None:
    bucket = f"$KV.{NAMES.availability_bucket}"
    for key, payload in (("a", row("a")), ("gone", b""), ("bad", b"{"), ("liar", row("a", 9))):
        await client.jetstream().publish(f"{bucket}.{key}", payload)
    async with latest.follow(settings) as nodes:
        rows = await nodes.read_all(10)
        assert nodes.unread == 0
    assert [(each.node, each.available) for each in rows] == [("a", 1)]
    assert await dead(client) == []


@pytest.mark.slow
async def test_top_keeps_its_rows_and_counts_while_the_server_is_away(
    client: Client, settings: Settings, nats_server: NatsServer
) -> None:
    await client.jetstream().publish(f"$KV.{NAMES.availability_bucket}.a", row("a"))
    brief = settings.model_copy(update={"cache": settings.cache.model_copy(update={"expiry_seconds": 2})})
    async with latest.follow(brief) as nodes:
        assert len(await nodes.read_all(10)) == 1
        assert nodes.silent_seconds is None
        nats_server.kill()
        await soon(lambda: (nodes.silent_seconds or 0.0) > 2.5)
        assert len(await nodes.read(0.1)) == 1


async def test_each_message_is_handed_out_or_buried_once_although_the_server_is_killed(
    client: Client, settings: Settings, nats_server: NatsServer
) -> None:
    sequences: list[int] = []
    bury = subscription.bury(client, NAMES, "cache", NAMES.estimates, timeout_seconds=1)
    reader = Reader(client, NAMES.estimates, [NAMES.of("availability", "*")], timeout_seconds=1)
    async with asyncio.timeout(60), Subscription(reader, subscription.of(Availability), bury) as availabilities:
        for begin in (0, 20, 40):
            for number in range(begin, begin + 20):
                await publish(client, f"n{number}", row(f"n{number}") if number % 5 else b"{")
            if begin == 20:  # while it waits to be read
                nats_server.kill()
                nats_server.start()
            while availabilities.position < begin + 20:
                sequences += [each.sequence for each in (await availabilities.read()).messages]
    assert sequences == [number + 1 for number in range(60) if number % 5]
    assert [subject for _, subject in await dead(client)] == [
        NAMES.node("availability", f"n{number}") for number in range(0, 60, 5)
    ]
