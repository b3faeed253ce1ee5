"""The client of a connection: nats-py, with fixes for what ends or blinds it.

An exception in one of its parts would stop receiving or reconnecting, although it reports to be connected. `Connection`
fixes the known cases; `bus.watchdog` detects the others.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import nats.errors
from nats.aio import client as library
from nats.aio.client import PING_PROTO, PONG_PROTO, Srv
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport
from prometheus_client import Counter

from bus.access import refusal
from bus.access.credential import Credential
from bus.access.refusal import Denials
from bus.access.trust import Trust
from bus.reading import tap
from bus.reading.tap import Parser, Tapped
from schemas import role

log = logging.getLogger(__name__)

# The client's own 32 KiB are an eighth of what the event loop reads at once: it would stop the transport after each
# reading, and start it again when it has parsed the eighth piece.
library.DEFAULT_BUFFER_SIZE = tap.PIECE_BYTES

_REPLIES = (role.INBOX, role.ACROSS, "$JS.ACK.", "$JS.FC.")  # all but inboxes are what the server itself names

READERS = Counter("spazio_nats_readers_ended_total", "times that the client's reader ended on its own")


class NoTls(nats.errors.Error):
    """The server offers no TLS, and only one with TLS will do."""


class _Transport(TcpTransport):
    """The client's transport, which answers a ping that comes instead of the first line expected.

    A server that takes over two seconds to accept a user pings it before it answers the client's own ping. The client
    would take that for an answer, and never flush what it is given to send.
    """

    def __bool__(self) -> bool:
        return True  # else the client would put one of its own in its place before it connects

    async def readline(self) -> bytes:
        """Return the next line that is not a ping; used until the connection is accepted."""
        while (line := await super().readline()) == PING_PROTO:  # type: ignore[no-untyped-call]
            self.write(PONG_PROTO)  # type: ignore[no-untyped-call]
        return bytes(line)


class _CountingParser(Parser):
    """The client's parser, which also counts the pieces of data that arrive from the server."""

    pieces = 0

    async def parse(self, data: bytes = b"") -> None:
        self.pieces += 1
        await super().parse(data)


class Connection(Tapped):
    """The client, with fixes for bytes from outside and hanging servers that could stop it.

    Attributes:
        closed: Set once the client has given up for good; only a new connection helps then.
        attempted: Time of the event loop at which it last began to connect.
        refusal: Why the server does not accept the user now; empty: it does.
        denials: Subjects that the user was lately refused.
        left_out: Requests that this service leaves to others, since its user may not send them.
        crowded: Streams that refused the last batch, as they do while too many of others are not ended.
    """

    def __init__(self, own: Credential | None = None, trusted: Trust | None = None, *, verified: bool = False) -> None:
        """Describe the client.

        Args:
            own: Credential of its user, if it has one.
            trusted: Its TLS files, if it has some.
            verified: Only a server with TLS will do.
        """
        super().__init__()
        self._own, self._trusted, self._verified = own, trusted, verified
        self.refusal, self.denials = "", Denials()
        self.left_out: set[str] = set()
        self.crowded: set[str] = set()
        self.closed = asyncio.Event()
        self.attempted = 0.0
        self._ps: _CountingParser = _CountingParser(self)

    @property
    def heard(self) -> int:
        """Number of pieces of data that have arrived from the server; it grows while the connection works."""
        return self._ps.pieces

    def abort(self) -> None:
        """Drop the connection now. Closing it would first wait for a hanging server to accept the buffered data."""
        # This is the socket below TLS. The TLS transport of Python 3.11.2 (Debian 12) raises an exception if it is
        # aborted a second time, after the client has closed it, and no attempt to connect would get further.
        writer = getattr(self._transport, "_bare_io_writer", None)
        if writer is not None:
            writer.transport.abort()
            stream = writer._protocol  # noqa: SLF001 # a writer offers no other way to it
            if writer.transport.get_protocol() is not stream:
                # TLS has taken its place, so it never hears of the loss; closing the client would wait for it for ever.
                stream.connection_lost(None)

    async def _connect_to_server(self, s: Srv) -> None:
        # After an attempt that failed half way, the client keeps its socket, bytes that are not parsed yet, and its
        # tasks: a reader would consume bytes of the next connection.
        self.abort()
        for task in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        self._ps.reset()
        self.attempted = asyncio.get_running_loop().time()
        if self._trusted is not None:
            self.options["tls"] = self._trusted.context()
        if self._transport is None and s.uri.scheme not in ("ws", "wss"):
            self._transport = _Transport()  # type: ignore[no-untyped-call]
        await super()._connect_to_server(s)

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except BaseException:
            self.abort()  # before the client waits for the end of a handshake that was broken off
            raise
        if not self.is_connected:  # the client goes on after any line but a refusal
            self.abort()
            raise nats.errors.Error("the server answers the first ping with something else than PONG")

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Take in what the server says of its cluster, and forget servers that are no longer in it.

        The client would try their addresses for ever. Certificates are of the name that the user knows the cluster by,
        and not of addresses, also where those were learned from a server that was itself found by its address.
        """
        await super()._process_info(info, initial_connection)
        listed, current = set(info.get("connect_urls") or ()), self._current_server
        for server in [each for each in self._server_pool if listed and each.discovered and each is not current]:
            if server.uri.netloc not in listed:
                self._server_pool.remove(server)
            elif current is not None and current.tls_name is not None:
                server.tls_name = current.tls_name

    async def _attempt_reconnect(self) -> None:
        self.attempted = asyncio.get_running_loop().time()
        self.abort()
        # Requests on the broken connection get no answer any more; failing them now lets callers retry sooner.
        for waiting in list(self._resp_map.values()):
            if not waiting.done():
                waiting.set_exception(nats.errors.ConnectionReconnectingError())
        try:
            await super()._attempt_reconnect()
        except Exception as error:  # noqa: BLE001 # after any exception the client would never reconnect
            log.warning("nats.reconnect_failed", extra={"reason": repr(error)})
            await self.close()

    async def _read_loop(self) -> None:
        await super()._read_loop()
        # The loop also ends without a log message when anything in it raises; then nothing would be received any more.
        current = self._reading_task is asyncio.current_task()
        if current and self.is_connected and not asyncio.get_running_loop().is_closed():
            READERS.inc()
            log.warning("nats.reader_ended")
            await self.force_reconnect()

    def _connect_command(self) -> bytes:
        if self._verified and not self._server_info.get("tls_required"):
            # A man in the middle could remove TLS from the greeting, and would then read everything.
            raise NoTls("the server offers no TLS, and --nats-ca or tls:// asks for it: switch it on in the server")
        return super()._connect_command()

    async def _process_err(self, err_msg: str) -> None:
        if refusal.refuses(err_msg):  # the client would close for good
            await self._error_cb(nats.errors.Error(f"nats: {err_msg}"))
            await self._process_op_err(nats.errors.AuthorizationError())
        else:
            await super()._process_err(err_msg)

    @property
    def max_payload(self) -> int:
        """Largest message in bytes, with its headers: what the server takes, and the user's credential allows."""
        largest = super().max_payload
        own = 0 if self._own is None else self._own.payload_bytes
        return min(largest, own) if own else largest

    @property
    def role(self) -> str:
        """Role of the user, by the inboxes that its credential gives it; empty: it has no credential, or no role."""
        return "" if self._own is None else self._own.inbox.removeprefix(role.INBOX).removeprefix("_")

    def may_publish(self, subject: str) -> bool:
        """Tell whether the user may publish to a subject, as far as its credential says."""
        return self._own is None or self._own.may_publish(subject)

    def _checked(self, subject: str) -> str:
        """Return the subject as the user's account names it; refuse what the server would refuse without an answer."""
        if self._own is None:
            return subject
        if not self._own.may_publish(subject):
            denied = self._own.denied("publish", subject)
            if text := self.denials.add(subject, str(denied)):
                log.error("nats.denied", extra={"reason": text})
            raise denied
        return self._own.subject(subject)

    async def publish(self, subject: str, *arguments: Any, **named: Any) -> None:
        """Publish a message, as `Client.publish`; raise `Denied` if the user may not."""
        await super().publish(self._checked(subject), *arguments, **named)

    async def request(self, subject: str, *arguments: Any, **named: Any) -> Msg:
        """Send a request and wait for its answer, as `Client.request`; raise `Denied` if the user may not."""
        with cancellable():
            return await super().request(self._checked(subject), *arguments, **named)

    async def flush(self, *arguments: Any, **named: Any) -> None:
        """Wait until the server has received everything sent, as `Client.flush`."""
        with cancellable():
            await super().flush(*arguments, **named)

    async def rtt(self, *arguments: Any, **named: Any) -> float:
        """Ping the server, and return the seconds until its answer, as `Client.rtt`."""
        with cancellable():
            return await super().rtt(*arguments, **named)

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        with cancellable():
            return await super()._flush_pending(force_flush)

    async def _send_ping(self, future: asyncio.Future[Any] | None = None) -> None:
        # The client would send the ping ahead of buffered data, so its answer would not confirm that data.
        if self._pending and self._transport is not None and self.is_connected:
            self._transport.writelines(self._pending)
            self._pending, self._pending_data_size = [], 0
        await super()._send_ping(future)

    async def _process_pong(self) -> None:
        # A pong whose waiter was cancelled would raise and end the reader.
        if self._pongs and self._pongs[0].done():
            self._pongs.pop(0)
            self._pings_outstanding = 0
        else:
            await super()._process_pong()

    def _answerable(self, reply: str) -> str:
        """Return a reply subject, or nothing instead of one to which the asker could not publish itself.

        An answer is sent with the rights of this user: otherwise a requester could write a key by naming it.
        """
        return reply if self._own is None or not reply or reply.startswith(_REPLIES) else ""

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        # The server forwards subjects that are not UTF-8; the client's own decoding would end its read loop.
        return self.msg_class(
            subject=subject.decode(errors="replace"),
            reply=self._answerable(reply.decode(errors="replace")),
            data=data,
            headers=headers,
            _client=self,
            _sid=sid,
        )


@contextmanager
def cancellable() -> Iterator[None]:
    """Raise a cancellation that something in the block has swallowed; otherwise the cancelled task would go on.

    The client swallows one while it flushes or closes, as does `wait_for` of Python 3.11 if what it waits for comes or
    fails at the same instant: a message, an answer, the end of the connection or of an attempt to connect.
    """
    before = cancellations()
    try:
        yield
    finally:
        if cancellations() > before:
            raise asyncio.CancelledError


def cancellations() -> int:
    """Return how often the present task was asked to end."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0
