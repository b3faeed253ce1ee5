"""Receives messages of an inbox without the client's work on each message.

nats-py decodes headers, creates an object and wakes a task for every message, which costs more than folding it. A tap
takes subject, reply subject and payload from the wire; headers stay bytes, since few of them are read.

The server sends thousands of messages a second in pieces of a few. For each piece the event loop wakes up, asks the
kernel twice and takes the interpreter away from a fold. A client that rests after each piece gets larger ones.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol import parser

log = logging.getLogger(__name__)

PIECE_BYTES = 256 << 10  # most that a client reads at once
_LARGE = PIECE_BYTES // 4

# Takes subject, reply subject, payload and headers.
Sink = Callable[[bytes, bytes, bytes, bytes | None], None]


class Tapped(Client):
    """A client that can tap its inboxes.

    Attributes:
        taps: What takes the messages of an inbox, by the number of its subscription.
        rest_seconds: Time for which it reads nothing after a small piece of data; 0: it reads on at once. Every answer
            of the server is late by up to as much.
    """

    def __init__(self) -> None:
        super().__init__()
        self.taps: dict[int, Sink] = {}
        self.rest_seconds = 0.0

    async def rest(self) -> None:
        """Leave what arrives to the kernel's buffer for a while."""
        writer = getattr(self._transport, "_io_writer", None)
        if not self.rest_seconds or writer is None:
            return
        writer.transport.pause_reading()
        try:
            await asyncio.sleep(self.rest_seconds)
        finally:
            writer.transport.resume_reading()

    async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        tap = self.taps.get(sid)
        if tap is None:
            await super()._process_msg(sid, subject, reply, data, headers)
        else:
            tap(subject, reply, data, headers)


class Parser(parser.Parser):
    """The client's parser, which first removes complete tapped messages from the buffer.

    The client's own parser matches patterns, wakes a coroutine, and shortens the buffer for each message.
    """

    async def parse(self, data: bytes = b"") -> None:
        """Process received bytes; see `parser.Parser`."""
        if self.state == parser.AWAITING_CONTROL_LINE and isinstance(self.nc, Tapped):
            size = len(data)
            self.buf.extend(data)
            if not self._hand_over(self.nc.taps):
                await super().parse(b"")
            if size < _LARGE:  # otherwise more is waiting
                await self.nc.rest()
        else:
            await super().parse(data)

    def _hand_over(self, taps: dict[int, Sink]) -> bool:
        """Pass tapped messages on; return whether the rest, if any, is the beginning of another tapped message."""
        buffer, done, rest = self.buf, 0, False
        while (end := buffer.find(b"\r\n", done)) >= 0:
            # Kind, subject, subscription id, optional reply subject, with headers their size, and the total size.
            words = bytes(buffer[done:end]).split(b" ")
            begin = end + 2
            try:
                tap, stop = taps[int(words[2])], begin + int(words[-1])
                if words[0] == b"HMSG":
                    body, plain = begin + int(words.pop(-2)), len(words)
                else:
                    body, plain = begin, len(words) if words[0] == b"MSG" else 0
            except (IndexError, KeyError, ValueError):
                break
            if not 4 <= plain <= 5:
                break
            if len(buffer) < stop + 2:
                rest = True
                break
            headers = bytes(buffer[begin:body]) if body > begin else None
            tap(words[1], words[3] if plain == 5 else b"", bytes(buffer[body:stop]), headers)
            done = stop + 2
        del buffer[:done]
        return rest or not buffer


class Tap:
    """A subscription to a new inbox; `inbox` is its subject."""

    def __init__(self, client: Client, subscription: Subscription, number: int) -> None:
        self._client, self._subscription, self._number = client, subscription, number
        self.inbox = subscription.subject

    async def close(self) -> None:
        """Unsubscribe; the sink receives nothing afterwards."""
        if isinstance(self._client, Tapped):
            # Otherwise messages in flight would reach the client's own handling, which does not know the subscription.
            self._client.taps[self._number] = _discard
        try:
            await self._subscription.unsubscribe()
        except nats.errors.Error:
            log.debug("tap.unsubscribe_failed")
        if isinstance(self._client, Tapped):
            self._client.taps.pop(self._number, None)


async def listen(client: Client, sink: Sink, *, below: str = "") -> Tap:
    """Subscribe to a new inbox, or to the subjects `below` it. Any client works; a `Tapped` one is fast."""
    inbox = client.new_inbox() + below
    if isinstance(client, Tapped):
        subscription = await client.subscribe(inbox)
        number: int = subscription._id  # noqa: SLF001 # the client has no public name for it
        client.taps[number] = sink
        return Tap(client, subscription, number)

    async def pass_on(message: Msg) -> None:
        sink(message.subject.encode(), message.reply.encode(), message.data, _bytes(message.headers))

    return Tap(client, await client.subscribe(inbox, cb=pass_on), 0)


def _discard(*_: object) -> None:
    """Drop a message that arrives after its tap was closed."""


def _bytes(headers: dict[str, Any] | None) -> bytes | None:
    if not headers:
        return None
    first = f"NATS/1.0 {headers.get('Status', '')} {headers.get('Description', '')}".rstrip()
    rest = (f"{key}: {value}" for key, value in headers.items() if key not in ("Status", "Description"))
    return "\r\n".join((first, *rest, "\r\n")).encode()


def fields(headers: bytes | None) -> dict[str, str]:
    r"""Return headers by name; `Status` and `Description` come from the first line.

    >>> fields(b"NATS/1.0 408 Request Timeout\r\nNats-Pending-Messages: 3\r\n\r\n")
    {'Status': '408', 'Description': 'Request Timeout', 'Nats-Pending-Messages': '3'}
    """
    first, *rest = (headers or b"").decode(errors="replace").split("\r\n")
    _, status, description = [*first.split(" ", 2), "", ""][:3]
    named = dict(line.split(":", 1) for line in rest if ":" in line)
    return {"Status": status, "Description": description} | {name: text.strip() for name, text in named.items()}
