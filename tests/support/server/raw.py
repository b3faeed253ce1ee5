"""JetStream by its raw requests, for tests that look at every answer."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg

from bus.reading.progress import delivery

Answer = dict[str, Any]
SECOND = 10**9


async def reached(client: Client) -> None:
    """Wait until the server has read all that this client of the library has sent.

    The library writes the ping of `flush` ahead of what it has buffered, so its answer says little; that of a second
    one comes after all of it. `bus.connection.Connection` needs no such thing.
    """
    await client.flush()
    await client.flush()


async def api(client: Client, verb: str, request: Answer | None = None) -> Answer:
    body = b"" if request is None else json.dumps(request).encode()
    answer: Answer = json.loads((await client.request(f"$JS.API.{verb}", body, timeout=2)).data)
    return answer


async def stream(client: Client, **config: object) -> Answer:
    """Make the stream S and return the answer."""
    answer = await api(client, "STREAM.CREATE.S", {"name": "S", "subjects": ["s.*", "cursor"], **config})
    assert "error" not in answer, answer
    return answer


async def info(client: Client) -> Answer:
    result: Answer = (await api(client, "STREAM.INFO.S"))["state"]
    return result


async def publish(
    client: Client, subject: str, data: bytes = b"", *, expected: int | None = None, **headers: object
) -> Answer:
    """Publish and return the answer; `expected` is the sequence of its subject, `Nats_Msg_Id=...` a header."""
    named = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    if expected is not None:
        named["Nats-Expected-Last-Subject-Sequence"] = str(expected)
    reply = await client.request(subject, data, timeout=2, headers=named or None)
    answer: Answer = json.loads(reply.data) if reply.data else {}
    return answer


async def fill(client: Client, count: int, subject: str = "s.a", first: int = 1) -> None:
    for number in range(first, first + count):
        assert "error" not in await publish(client, subject, b"%d" % number)


async def consumer(client: Client, name: str = "", **config: object) -> Answer:
    """Make a consumer; with a name it is durable."""
    verb = f"CONSUMER.CREATE.S.{name}" if name else "CONSUMER.CREATE.S"
    config = {"ack_policy": "none", "deliver_policy": "all", **({"durable_name": name} if name else {}), **config}
    answer = await api(client, verb, {"stream_name": "S", "config": config})
    assert "error" not in answer, answer
    return answer


async def eventually(check: Callable[[], Awaitable[bool]], seconds: float = 5) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if await check():
                return
            await asyncio.sleep(0.02)


def error(answer: Answer) -> int:
    """Return the error code of an answer; 0: it is none."""
    result: int = answer.get("error", {}).get("err_code", 0)
    return result


class Puller:
    """One client of a pull consumer, with an inbox of its own."""

    def __init__(self, client: Client, consumer: str, group: str = "") -> None:
        self._client, self._consumer, self._group = client, consumer, group
        self._inbox = client.new_inbox()
        self._arrived: asyncio.Queue[Msg] = asyncio.Queue()

    async def ask(self, batch: int = 1, expires: float = 3.0, **more: object) -> None:
        if not hasattr(self, "_subscription"):
            self._subscription = await self._client.subscribe(self._inbox, cb=self._arrived.put)
        request = {"batch": batch, "expires": int(expires * SECOND), **more}
        if self._group:
            request["group"] = self._group
        await self._client.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.S.{self._consumer}", json.dumps(request).encode(), reply=self._inbox
        )

    async def take(self, count: int, seconds: float = 3.0) -> list[Msg]:
        async with asyncio.timeout(seconds):
            return [await self._arrived.get() for _ in range(count)]

    async def status(self, seconds: float = 3.0) -> str:
        """Return the next status, passing over nothing."""
        (message,) = await self.take(1, seconds)
        headers = message.headers or {}
        assert "Status" in headers, message.data
        return f"{headers['Status']} {headers.get('Description', '')}"

    async def nothing(self, seconds: float = 0.15) -> bool:
        await asyncio.sleep(seconds)
        return self._arrived.empty()

    async def leave(self) -> None:
        await self._subscription.unsubscribe()
        await self._client.flush()


def places(messages: list[Msg]) -> list[tuple[int, int]]:
    """Return (stream sequence, consumer sequence) of deliveries."""
    return [delivery(message.reply.encode())[:2] for message in messages]


def times(message: Msg) -> int:
    """Return which delivery of its message this is."""
    return int(message.reply.split(".")[-5])


def pin(message: Msg) -> str:
    return (message.headers or {})["Nats-Pin-Id"]
