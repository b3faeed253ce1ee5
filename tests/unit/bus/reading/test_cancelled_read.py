"""A read that is cancelled loses no message, and a lease is renewed although a request fails; on a server in memory."""

import asyncio
from typing import Any

import nats.errors
import pytest

from bus import stream
from bus.reading.consumer import Consumers
from bus.reading.reader import Reader
from schemas import settings as all_settings
from schemas.subject import Names
from tests.support import virtual
from tests.support.nats.client import Connection, connect
from tests.support.nats.server import Server
from tests.unit.bus.reading.test_pull import SUBJECT, leased

NAMES = Names()


async def test_messages_before_a_gap_are_returned_although_each_read_is_cancelled_while_it_closes_the_gap(
    server: Server, client: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe, go, messages = client.session.outbound, asyncio.Event(), list[bytes]()
    send, delete = pipe.send, Consumers.delete

    def lossy(data: bytes) -> None:
        if not data.endswith(b"\r\n3\r\n"):
            send(data)

    async def wait(consumers: Consumers, name: str) -> None:
        await go.wait()
        await delete(consumers, name)

    monkeypatch.setattr(Consumers, "delete", wait)
    async with connect(server) as other, Reader(client, NAMES.telemetry, [">"]) as reader:
        await other.jetstream().publish(SUBJECT, b"1")
        assert [message.data for message in await reader.read()] == [b"1"]
        with monkeypatch.context() as patched:
            patched.setattr(pipe, "send", lossy)
            for number in (2, 3, 4):
                await other.jetstream().publish(SUBJECT, b"%d" % number)
            await asyncio.sleep(0.1)
        try:
            for _ in range(2):
                reading = asyncio.create_task(reader.read())
                await asyncio.sleep(0.1)
                reading.cancel()
                await asyncio.wait({reading})
                messages += [] if reading.cancelled() else [message.data for message in reading.result()]
            assert messages == [b"2"]
        finally:
            go.set()
        async with asyncio.timeout(10):
            while len(messages) < 3:
                messages += [message.data for message in await reader.read()]
        assert messages == [b"2", b"3", b"4"]


def test_a_lease_is_renewed_after_a_request_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def scenario() -> None:
        async with connect(Server()) as client:
            publish = client.publish

            async def fail_once(subject: str, *arguments: Any, **more: Any) -> None:
                asked.append(subject)
                if len(asked) == 1:
                    raise nats.errors.OutboundBufferLimitError
                await publish(subject, *arguments, **more)

            await stream.ensure(client, all_settings.load({"nats_partitions": "1"}, environ={}))
            async with leased(client):
                monkeypatch.setattr(client, "publish", fail_once)
                await asyncio.sleep(6)  # as in a long fold

    virtual.run(scenario())
    assert len([subject for subject in asked if ".MSG.NEXT." in subject]) >= 2
