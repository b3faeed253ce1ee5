"""The server as an object: connections, streams, and the ways to hurt it."""

import json
import time
from collections.abc import Callable, Mapping

from nats.nuid import NUID

from tests.support.nats.jetstream import interface
from tests.support.nats.jetstream.interface import Interface
from tests.support.nats.jetstream.stream import Stream, instant
from tests.support.nats.message import block
from tests.support.nats.routes import Routes
from tests.support.nats.session import Session, Subscription
from tests.support.nats.subject import matches

VERSION = "2.15.1"
_INTERFACE = "$JS.API."
_NEXT = "CONSUMER.MSG.NEXT."
_DIRECT = "DIRECT.GET."
_ACKNOWLEDGE = "$JS.ACK."
_CACHED = 1 << 16


class Server:
    """A nats-server with JetStream in this process; use it from one event loop.

    Attributes:
        delay_seconds: How long bytes take between server and clients from now on.
        max_payload: Largest message in bytes.
    """

    def __init__(self, *, clock: Callable[[], float] = time.time, max_payload: int = 1 << 20) -> None:
        """Start a server without streams.

        Args:
            clock: Seconds since the epoch: when messages are stored, how old they are. Whatever waits, waits by the
                event loop's time.
            max_payload: Largest message in bytes.
        """
        self.delay_seconds = 0.0
        self.max_payload = max_payload
        self._clock, self._newest_ns = clock, 0
        self._streams: dict[str, Stream] = {}
        self._interface = Interface(self._streams, self, self._forget_owners)
        self._routes, self._sessions = Routes(), dict[Session, None]()
        self._owners: dict[str, Stream | None] = {}
        self._identities, self._clients = NUID(), 0
        self._alive = True

    @property
    def sessions(self) -> list[Session]:
        """Connected clients, by age."""
        return list(self._sessions)

    def accept(self, receive: Callable[[bytes], None], lost: Callable[[], None]) -> Session:
        """Connect a client.

        Raises:
            ConnectionRefusedError: The server has been killed.
        """
        if not self._alive:
            raise ConnectionRefusedError("the server in memory is not running")
        self._clients += 1
        info = {
            "server_id": "MEMORY",
            "server_name": "memory",
            "version": VERSION,
            "proto": 1,
            "headers": True,
            "max_payload": self.max_payload,
            "jetstream": True,
            "client_id": self._clients,
        }

        def forget() -> None:
            self._sessions.pop(session, None)
            lost()

        session = Session(self, info, receive, forget, lambda: self.delay_seconds)
        self._sessions[session] = None
        return session

    def kill(self) -> None:
        """Die at once: connections break, what is on its way is lost, storage stays."""
        self._alive = False
        for session in self.sessions:
            session.close()
        for stream in self._streams.values():
            stream.crash()

    def start(self) -> None:
        """Come back with what is stored, after `kill`."""
        self._alive = True
        for stream in self._streams.values():
            for consumer in stream.consumers.values():
                consumer.resume()

    def publish(self, subject: str, reply: str, headers: bytes, data: bytes) -> None:
        """Take a message of a client: for listeners, for a stream, or for the server itself."""
        taken = self.deliver(subject, subject, reply, headers, data)
        if subject.startswith("$JS."):
            taken = self._serve(subject, reply, data) or taken
        elif (stream := self._owner(subject)) is not None:
            stream.publish(subject, "" if stream.config.get("no_ack") else reply, headers, data)
            taken = True
        if reply and not taken:
            self.deliver(reply, reply, "", block({"Nats-Subject": subject}, "503"), b"")

    def subscribe(self, subscription: Subscription) -> None:
        """Start to listen."""
        self._routes.add(subscription)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop to listen."""
        self._routes.remove(subscription)

    def deliver(self, inbox: str, subject: str, reply: str, headers: bytes, data: bytes) -> bool:
        """Send a message to all who listen on `inbox`, showing `subject`; False: nobody does."""
        receivers = self._routes.find(inbox)
        for subscription in receivers:
            subscription.session.deliver(subscription, subject, reply, headers, data)
        return bool(receivers)

    def has_interest(self, subject: str) -> bool:
        """Tell whether anybody listens on a subject."""
        return self._routes.any(subject)

    def advise(self, event: str, stream: str, consumer: str, fields: Mapping[str, str]) -> None:
        """Publish an advisory about a consumer."""
        subject = f"$JS.EVENT.ADVISORY.CONSUMER.{event}.{stream}.{consumer}"
        text = {
            "type": f"io.nats.jetstream.advisory.v1.consumer_group_{event.lower()}",
            "id": self.new_identity(),
            "timestamp": instant(self.now_ns()),
            "stream": stream,
            "consumer": consumer,
            **fields,
        }
        self.deliver(subject, subject, "", b"", json.dumps(text).encode())

    def new_identity(self) -> str:
        """Return a fresh identity."""
        return bytes(self._identities.next()).decode()

    def now_ns(self) -> int:
        """Return the time in nanoseconds since the epoch; never the same twice, never backwards."""
        self._newest_ns = max(self._newest_ns + 1, round(self._clock() * 1e6) * 1000)
        return self._newest_ns

    def _serve(self, subject: str, reply: str, data: bytes) -> bool:
        """Act on a message to the server itself; False: there is nobody to take it."""
        if subject.startswith(_ACKNOWLEDGE):
            _, _, stream, consumer, *rest = subject.split(".")
            return self._acknowledge(stream, consumer, rest, reply, data)
        if not subject.startswith(_INTERFACE):
            return False
        verb = subject[len(_INTERFACE) :]
        if verb.startswith(_NEXT):
            stream, _, consumer = verb[len(_NEXT) :].partition(".")
            return self._ask(stream, consumer, reply, data)
        if verb.startswith(_DIRECT):
            stream, _, key = verb[len(_DIRECT) :].partition(".")
            return self._direct(stream, key, reply, data)
        answer = self._interface.answer(verb.split("."), data)
        if answer is not None and reply:
            self.deliver(reply, reply, "", b"", answer)
        return True

    def _acknowledge(self, stream: str, consumer: str, rest: list[str], reply: str, data: bytes) -> bool:
        stream_entry = self._streams.get(stream)
        if stream_entry is None or consumer not in stream_entry.consumers:
            return False
        stream_entry.consumers[consumer].acknowledge(rest, data)
        if reply:
            self.deliver(reply, reply, "", b"", b"")
        return True

    def _ask(self, stream: str, consumer: str, reply: str, data: bytes) -> bool:
        stream_entry = self._streams.get(stream)
        if stream_entry is None or consumer not in stream_entry.consumers:
            return False
        stream_entry.consumers[consumer].ask(reply, data)
        return True

    def _direct(self, stream: str, key: str, reply: str, data: bytes) -> bool:
        stream_entry = self._streams.get(stream)
        if stream_entry is None or not stream_entry.config["allow_direct"]:
            return False
        self.deliver(reply, reply, "", *interface.direct(stream_entry, key, data))
        return True

    def _owner(self, subject: str) -> Stream | None:
        """Return the stream that stores a subject."""
        if subject not in self._owners and len(self._owners) < _CACHED:
            self._owners[subject] = self._find_owner(subject)
        return self._owners[subject] if subject in self._owners else self._find_owner(subject)

    def _find_owner(self, subject: str) -> Stream | None:
        for stream in self._streams.values():
            if any(matches(pattern, subject) for pattern in stream.config["subjects"]):
                return stream
        return None

    def _forget_owners(self) -> None:
        self._owners.clear()
