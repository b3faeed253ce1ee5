"""What a reader does when a connection breaks or a server is slow; on a server in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bus import api, stream
from bus.reading import lease as lease_module
from bus.reading.consumer import StreamRecreated
from bus.reading.lease import Lease
from bus.reading.leased import LeasedReader
from bus.reading.reader import REPAIRED, Reader
from schemas import settings as all_settings
from schemas.subject import Names
from tests.support.nats.client import Connection, connect
from tests.support.nats.server import Server

NAMES = Names()
SUBJECT = NAMES.of("samples", "n1")


def repairs() -> float:
    return float(REPAIRED.labels(NAMES.telemetry)._value.get())


@pytest.mark.slow
async def test_what_came_last_into_a_connection_that_broke_is_read_although_nothing_follows(
    server: Server, client: Connection
) -> None:
    async with connect(server) as other, Reader(client, NAMES.telemetry, [">"]) as reader:
        await other.jetstream().publish(SUBJECT, b"1")
        assert [message.data for message in await reader.read()] == [b"1"]
        client.session.outbound.stalled = True
        await other.jetstream().publish(SUBJECT, b"2")
        client.session.close()
        async with asyncio.timeout(3):
            assert [message.data for message in await reader.read()] == [b"2"]


def lease_of(client: Connection, taken: Callable[[], None] = lambda: None, *, name: str = "c") -> Lease:
    """Return a lease that is lost after three seconds."""

    async def nothing() -> int:
        return 0

    subjects, terms = [NAMES.partition(0)], {"failover_seconds": 3.0, "timeout_seconds": 1.0}
    return Lease(client, NAMES.telemetry, name, subjects, **terms, covered=nothing, taken=taken)


@asynccontextmanager
async def leased(client: Connection) -> AsyncIterator[Reader]:
    """Hold a lease that is lost after three seconds, and hand out a reader that waits for a sign for one."""
    lease = lease_of(client)
    await client.jetstream().publish(SUBJECT, b"1")
    await lease.acquire()
    async with LeasedReader(client, lease) as reader:
        assert [message.data for message in await reader.read()] == [b"1"]
        yield reader
    await lease.release()


@pytest.mark.slow
async def test_who_stands_by_hears_that_another_holds_the_lease_and_nothing_while_nobody_does(
    server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it has no problem with what it cannot do, as after it has hung while it stored rows."""
    monkeypatch.setattr(lease_module, "_EXPIRES_SECONDS", 0.4)
    monkeypatch.setattr(lease_module, "_HEARTBEAT_SECONDS", 0.1)
    taken = asyncio.Event()
    async with connect(server) as other:
        waiting = asyncio.create_task(lease_of(other, taken.set, name="d").acquire())
        await asyncio.sleep(1)
        assert not taken.is_set()
        waiting.cancel()
        await asyncio.wait({waiting})
        async with leased(client):
            waiting = asyncio.create_task(lease_of(other, taken.set).acquire())
            async with asyncio.timeout(30):
                await taken.wait()
            waiting.cancel()
            await asyncio.wait({waiting})


@pytest.mark.slow
async def test_a_consumer_is_not_set_back_because_its_server_is_slow(
    server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(server) as other, leased(client) as reader:
        before = repairs()
        client.session.outbound.stalled = True
        await other.jetstream().publish(SUBJECT, b"2")
        reading = asyncio.create_task(reader.read())
        await asyncio.sleep(1.7)
        client.session.outbound.resume()
        async with asyncio.timeout(1):
            assert [message.data for message in await reading] == [b"2"]
        assert repairs() == before

        asked: list[str] = []
        publish = client.publish

        async def note(subject: str, *arguments: Any, **more: Any) -> None:
            asked.extend([subject] if ".MSG.NEXT." in subject else [])
            await publish(subject, *arguments, **more)

        monkeypatch.setattr(client, "publish", note)
        await reader.read(timeout_seconds=4)
        assert 3 <= len(asked) <= 6  # one request stands open for a second; two would be eight


async def test_a_last_message_that_is_lost_on_its_way_shows_in_the_next_heartbeat(
    server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connect(server) as other, leased(client) as reader:
        pipe, lost = client.session.outbound, list[bytes]()
        send = pipe.send

        def lossy(data: bytes) -> None:
            if b" spazio.part.0.samples.n1 " in data and not lost:
                lost.append(data)
            else:
                send(data)

        reading = asyncio.create_task(reader.read())
        await asyncio.sleep(0.1)
        monkeypatch.setattr(pipe, "send", lossy)
        await other.jetstream().publish(SUBJECT, b"2")
        async with asyncio.timeout(3):
            assert [message.data for message in await reading] == [b"2"]
        assert len(lost) == 1


async def test_a_stream_made_again_is_read_from_its_start_but_by_whom_keeps_positions(client: Connection) -> None:
    js, settings = client.jetstream(), all_settings.load({"nats_partitions": "1"}, environ={})
    async with (
        Reader(client, NAMES.telemetry, [">"]) as free,
        Reader(client, NAMES.telemetry, [">"], bound=True) as own,
    ):
        for number in range(3):
            await js.publish(SUBJECT, b"old %d" % number)
        for reader in (free, own):
            while reader.position < 3:
                await reader.read()
        await js.delete_stream(NAMES.telemetry)
        await stream.ensure(client, settings)
        await js.publish(SUBJECT, b"new")
        async with asyncio.timeout(5):
            assert [message.data for message in await free.read()] == [b"new"]
            with pytest.raises(StreamRecreated):
                await own.read()


async def test_a_stream_made_again_is_read_from_its_start_although_the_first_attempt_fails(
    client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    js, settings = client.jetstream(), all_settings.load({"nats_partitions": "1"}, environ={})
    request, failed = api.request, list[str]()

    async def fail_once(to: Connection, verb: str, *arguments: Any) -> dict[str, Any]:
        if verb.startswith("CONSUMER.CREATE.") and not failed:
            failed.append(verb)
            raise TimeoutError
        return await request(to, verb, *arguments)

    async with Reader(client, NAMES.telemetry, [">"]) as reader:
        for number in range(3):
            await js.publish(SUBJECT, b"old %d" % number)
        while reader.position < 3:
            await reader.read()
        await js.delete_stream(NAMES.telemetry)
        await stream.ensure(client, settings)
        await js.publish(SUBJECT, b"new")
        monkeypatch.setattr(api, "request", fail_once)
        async with asyncio.timeout(5):
            assert [message.data for message in await reader.read()] == [b"new"]
    assert failed
