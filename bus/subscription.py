"""Decoded messages of a stream: the one loop that reads, decodes and refuses.

A `Reader` hands out bytes; what they mean, and what to do with bytes that mean nothing, differs by consumer. Both are
named when a `Subscription` is made: a decoder, and a policy for what it refuses. Whoever stores messages, folds them or
acts on them buries (`bury`); a letter's id makes it one, however many do. Whoever only shows them, or follows a bucket
in which a deleted key is no message, counts (`count`) or passes over (`ignore`). The reader waits by itself while the
server is away; what it cannot recover from ends `read`, and `keep` begins again.

Two readers stay without: a fold decodes by itself, since it has to give the same bytes without a bus
(`bus.folding.task_runner`), and the search for a cursor takes what it cannot read for an older one's
(`bus.publishing.batch`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, NoReturn, Self, TypeVar

from prometheus_client import Counter

from bus import errors
from bus.client import Client
from bus.publishing import dead
from bus.reading.progress import Received
from bus.reading.reader import Reader
from schemas import codec
from schemas.codec import AnyMessage
from schemas.subject import Names, kind_of

Decodable = TypeVar("Decodable")

# Subject and payload to a message; raises `codec.Refused`.
Decode = Callable[[str, bytes], Decodable]
# What happens to a message that was refused, and why it was.
Refuse = Callable[[Received, str], Awaitable[None]]


class Decoded(NamedTuple, Generic[Decodable]):
    """One message: the subject it is stored under, its stream sequence, its bytes, and what they mean."""

    subject: str
    sequence: int
    data: bytes
    message: Decodable


@dataclass(frozen=True, slots=True)
class Batch(Generic[Decodable]):
    """What one `read` handed out.

    Attributes:
        messages: Those that were not refused, in stream order.
        received: Number of messages that came, the refused ones among them.
        first: Sequence of the first that came; 0: none came.
        last: Sequence of the last that came; 0: none came.
        pending: Messages behind them when they were sent; -1: not known yet.
    """

    messages: Sequence[Decoded[Decodable]]
    received: int
    first: int
    last: int
    pending: int


class Subscription(Generic[Decodable]):
    """Decoded messages in stream order, each once; use as an async context manager, which closes the reader."""

    def __init__(
        self,
        reader: Reader,
        decode: Decode[Decodable],
        refuse: Refuse,
        *,
        most: int | None = None,
        newest_only: bool = False,
    ) -> None:
        """Describe the subscription; nothing is sent before the first `read`.

        Args:
            reader: What to read; nobody else reads from it.
            decode: Makes messages of bytes.
            refuse: What to do with bytes that are none.
            most: Messages decoded at once; other tasks run in between. None: all that have arrived.
            newest_only: Of the messages that have arrived, leave out those that a later one of the same subject
                follows, without a look at them.
        """
        self._reader, self._decode, self._refuse = reader, decode, refuse
        self._most, self._newest_only = most, newest_only
        self._waiting: list[Received] = []
        self._handed = reader.position

    @property
    def position(self) -> int:
        """Sequence of the last message that was handed out or refused."""
        return self._handed if self._waiting else self._reader.position

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._reader.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch[Decodable]:
        return await self.read()

    async def read(self, *, linger_seconds: float = 0, timeout_seconds: float | None = None) -> Batch[Decodable]:
        """Wait for messages and return those that have arrived, at most `most`.

        A call that is cancelled loses nothing: what it had not handed out, the next one does.

        Args:
            linger_seconds: How long to go on collecting after the first message.
            timeout_seconds: Return an empty batch after so long without a message; None waits for ever.

        Raises:
            BusError: As `Reader.read`.
        """
        if self._waiting:
            await asyncio.sleep(0)
        else:
            self._waiting = await self._reader.read(linger_seconds=linger_seconds, timeout_seconds=timeout_seconds)
        part = self._waiting[: self._most]
        messages = []
        for received in _newest(part) if self._newest_only else part:
            try:
                message = self._decode(received.subject, received.data)
            except codec.Refused as refusal:
                await self._refuse(received, str(refusal))
            else:
                messages.append(Decoded(*received, message))
        del self._waiting[: len(part)]
        if not part:
            return Batch(messages, 0, 0, 0, self._reader.pending)
        self._handed = part[-1].sequence
        pending = self._reader.pending + len(self._waiting)
        return Batch(messages, len(part), part[0].sequence, self._handed, pending)


def _newest(messages: Sequence[Received]) -> list[Received]:
    """Return the last message of each subject, in stream order."""
    newest = {message.subject: message.sequence for message in messages}
    return [message for message in messages if newest[message.subject] == message.sequence]


def of(kind: type[AnyMessage], *, by_node: bool = True) -> Decode[AnyMessage]:
    """Return a decoder of one kind.

    Args:
        kind: Its message type.
        by_node: The last token of the subject is the message's node; another node's is refused.
    """
    if by_node:
        return lambda source, payload: codec.decode_from(kind, payload, source)
    return lambda _, payload: codec.decode(kind, payload)


def by_kind(kinds: Mapping[str, type[AnyMessage]], *, by_node: bool = True) -> Decode[AnyMessage]:
    """Return a decoder that tells the kind from the subject; as `of`."""
    decoders = {name: of(kind, by_node=by_node) for name, kind in kinds.items()}

    def decode(source: str, payload: bytes) -> AnyMessage:
        decoder = decoders.get(kind_of(source))
        if decoder is None:
            raise codec.Refused(f"no message is expected on {source}")
        return decoder(source, payload)

    return decode


def or_deleted(decode: Decode[Decodable]) -> Decode[Decodable | None]:
    """Return a decoder for a bucket, which makes None of a message without payload: it marks a deleted key."""
    return lambda source, payload: decode(source, payload) if payload else None


def bury(client: Client, names: Names, consumer: str, stream: str, *, timeout_seconds: float) -> Refuse:
    """Return the policy of whoever answers for a kind of message: a dead letter for each; see `dead.bury`."""

    async def refuse(message: Received, reason: str) -> None:
        await dead.bury(client, names, consumer, stream, message, reason, timeout_seconds=timeout_seconds)

    return refuse


def count(counter: Counter) -> Refuse:
    """Return the policy of a consumer whose messages another one buries, but that misses them."""

    async def refuse(_message: Received, _reason: str) -> None:
        counter.inc()

    return refuse


async def ignore(_message: Received, _reason: str) -> None:
    """Do nothing: what is refused is expected, as what marks a deleted key, or another consumer buries it."""


async def keep(
    work: Callable[[], Awaitable[None]],
    report: Callable[[Exception], None],
    *,
    also: tuple[type[Exception], ...] = (),
    pause_seconds: float = 1.0,
) -> NoReturn:
    """Do some work, and begin again whenever the server or the connection has ended it.

    Args:
        work: Reads a subscription, mostly.
        report: Told why it has ended.
        also: Other errors after which it begins again.
        pause_seconds: Time in between.
    """
    while True:
        try:
            await work()
        except (*errors.REQUEST_FAILED, *also) as error:
            report(error)
        await asyncio.sleep(pause_seconds)


async def one(client: Client, subject: str, *, timeout_seconds: float) -> bytes:
    """Return the payload of the next message that is published on a subject, without a stream.

    Raises:
        BusError: The connection broke.
        TimeoutError: None came in time.
    """
    listening = await client.subscribe(subject)
    try:
        return (await listening.next_msg(timeout_seconds)).data
    finally:
        await listening.unsubscribe()
