"""The server's side of one connection: the protocol, and what the client listens to."""

import json
from collections.abc import Callable
from typing import Protocol

from tests.support.nats.pipe import Pipe

_END = b"\r\n"


class Subscription:
    """What a client listens to.

    Attributes:
        pattern: Subjects.
        queue: Queue group; empty: none.
        left: Messages until it ends by itself; None: it does not.
    """

    __slots__ = ("left", "pattern", "prefix", "queue", "session", "sid")

    def __init__(self, session: "Session", pattern: str, queue: str, sid: str) -> None:
        self.session, self.pattern, self.queue, self.sid = session, pattern, queue, sid
        self.left: int | None = None


class Hub(Protocol):
    """What sessions need of their server."""

    max_payload: int

    def publish(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        """Take a message of a client."""

    def subscribe(self, subscription: Subscription) -> None:
        """Start to listen."""

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop to listen."""


class Session:
    """One connected client."""

    def __init__(
        self,
        hub: Hub,
        info: dict[str, object],
        receive: Callable[[bytes], None],
        lost: Callable[[], None],
        delay_seconds: Callable[[], float],
    ) -> None:
        """Greet a client.

        Args:
            hub: The server.
            info: What the server says of itself.
            receive: Takes bytes for the client.
            lost: Called when the connection breaks.
            delay_seconds: How long bytes take now.
        """
        self._hub, self._lost = hub, lost
        self.inbound = Pipe(self._feed, delay_seconds)
        self.outbound = Pipe(receive, delay_seconds)
        self._buffer = bytearray()
        self.subscriptions: dict[str, Subscription] = {}
        self.name = ""
        self.outbound.send(b"INFO " + json.dumps(info).encode() + _END)

    def close(self) -> None:
        """Break the connection; what is on its way is lost."""
        if not self.inbound.cut:
            self.inbound.close()
            self.outbound.close()
            for subscription in list(self.subscriptions.values()):
                self._forget(subscription)
            self._lost()

    def deliver(self, subscription: Subscription, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        """Send a message to a subscription."""
        reply = f" {reply}" if reply else ""
        if headers:
            head = f"HMSG {subject} {subscription.sid}{reply} {len(headers)} {len(headers) + len(data)}\r\n"
        else:
            head = f"MSG {subject} {subscription.sid}{reply} {len(data)}\r\n"
        self.outbound.send(b"".join((head.encode(errors="surrogateescape"), headers, data, _END)))
        if subscription.left is not None:
            subscription.left -= 1
            if subscription.left <= 0:
                self._forget(subscription)

    def _forget(self, subscription: Subscription) -> None:
        self.subscriptions.pop(subscription.sid, None)
        self._hub.unsubscribe(subscription)

    def _feed(self, data: bytes) -> None:
        self._buffer += data
        start = 0
        while (end := self._buffer.find(_END, start)) >= 0:
            line = self._buffer[start:end].decode(errors="surrogateescape")
            verb, _, rest = line.partition(" ")
            behind = end + 2
            if verb in ("PUB", "HPUB"):
                size = int(rest.rsplit(" ", 1)[-1])
                if len(self._buffer) < behind + size + 2:
                    break
                body = bytes(self._buffer[behind : behind + size])
                behind += size + 2
                self._published(verb, rest.split(), body)
            else:
                self._obey(verb, rest)
            start = behind
            if self.inbound.cut:
                return
        del self._buffer[:start]

    def _published(self, verb: str, words: list[str], body: bytes) -> None:
        if len(body) > self._hub.max_payload:
            self.outbound.send(b"-ERR 'Maximum Payload Violation'\r\n")
            self.close()
            return
        if verb == "PUB":
            reply, size = (words[1] if len(words) == 3 else ""), 0
        else:
            reply, size = (words[1] if len(words) == 4 else ""), int(words[-2])
        self._hub.publish(words[0], reply, body[:size], body[size:])

    def _obey(self, verb: str, rest: str) -> None:
        words = rest.split()
        if verb == "PING":
            self.outbound.send(b"PONG\r\n")
        elif verb == "SUB":
            subscription = Subscription(self, words[0], words[1] if len(words) == 3 else "", words[-1])
            self.subscriptions[words[-1]] = subscription
            self._hub.subscribe(subscription)
        elif verb == "UNSUB" and (existing := self.subscriptions.get(words[0])) is not None:
            if len(words) == 1:
                self._forget(existing)
            else:
                existing.left = int(words[1])
        elif verb == "CONNECT":
            self.name = json.loads(rest).get("name", "")
