"""Decoded messages of a stream: the one loop that reads, decodes and refuses.

A `Reader` returns bytes. Each consumer decodes them in its own way and treats invalid bytes in its own way, so a
`Subscription` takes a decoder and a policy for refused messages. A consumer that stores messages, folds them or acts on
them writes dead letters (`bury`); several consumers of one message write one letter, since its id is the same. A
consumer that only shows messages, or follows a bucket in which a deleted key is no message, counts them (`count`) or
ignores them (`ignore`). The reader itself waits while the server is away. An error from which it cannot recover ends
`read`, and `keep` starts again.

Two modules use a `Reader` directly: a fold decodes messages itself, since it must give the same bytes without a bus
(`bus.folding.task_runner`), and the search for a cursor skips messages that are none (`bus.publishing.coverage`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, NoReturn, Self, TypeVar

from prometheus_client import Counter

from bus import errors
from bus.accounting.ledger import Account
from bus.client import Client
from bus.link import cancellable
from bus.publishing import dead
from bus.reading.progress import Received
from bus.reading.reader import Reader
from bus.reading.setback import Mark
from schemas import codec
from schemas.codec import AnyMessage
from schemas.subject import Names, kind_of

Decodable = TypeVar("Decodable")

# From subject and payload to a message; raises `codec.Refused`.
Decode = Callable[[str, bytes], Decodable]
# Called with a refused message and the reason.
Refuse = Callable[[Received, str], Awaitable[None]]


class Decoded(NamedTuple, Generic[Decodable]):
    """One message: its stored subject, stream sequence, bytes, and decoded form."""

    subject: str
    sequence: int
    data: bytes
    message: Decodable


@dataclass(frozen=True, slots=True)
class Batch(Generic[Decodable]):
    """Result of one `read`.

    Attributes:
        messages: Messages that were not refused, in stream order.
        received: Number of messages that arrived, including refused ones.
        first: Sequence of the first message that arrived; 0: none arrived.
        last: Sequence of the last message that arrived; 0: none arrived.
        pending: Number of messages behind them when they were sent; -1: not known yet.
        stored_us: When the server stored the last message that arrived, in microseconds; 0: none arrived.
    """

    messages: Sequence[Decoded[Decodable]]
    received: int
    first: int
    last: int
    pending: int
    stored_us: int = 0


class Subscription(Generic[Decodable]):
    """Decoded messages in stream order, each once; an async context manager, which closes the reader."""

    def __init__(
        self,
        reader: Reader,
        decode: Decode[Decodable],
        refuse: Refuse,
        *,
        most: int | None = None,
        newest_only: bool = False,
        account: Account | None = None,
    ) -> None:
        """Describe the subscription; nothing is sent before the first `read`.

        Args:
            reader: Reader that only this subscription uses.
            decode: Decodes a message.
            refuse: Called with each message that cannot be decoded.
            most: Messages decoded at once; other coroutines run in between. None: all that have arrived.
            newest_only: Of the messages that have arrived, skip each that is followed by a later one of the same
                subject, without decoding it.
            account: Account of the messages that are returned, refused and skipped.
        """
        self._reader, self._decode, self._refuse = reader, decode, refuse
        self._most, self._newest_only, self._account = most, newest_only, account
        self._waiting: list[Received] = []
        self._handed = reader.mark

    @property
    def position(self) -> int:
        """Sequence of the last message that was returned or refused."""
        return self.mark.sequence

    @property
    def mark(self) -> Mark:
        """The last message that was returned or refused: its sequence, and when the server stored it."""
        return self._handed if self._waiting else self._reader.mark

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

        A cancelled call loses nothing: the next call returns its messages.

        Args:
            linger_seconds: Time to collect more messages after the first.
            timeout_seconds: Time without a message after which to return an empty batch; None: wait for ever.

        Raises:
            BusError: As `Reader.read`.
        """
        if self._waiting:
            await asyncio.sleep(0)
        else:
            self._waiting = await self._reader.read(linger_seconds=linger_seconds, timeout_seconds=timeout_seconds)
        part = self._waiting[: self._most]
        messages, wanted = [], _newest(part) if self._newest_only else part
        for received in wanted:
            try:
                message = self._decode(received.subject, received.data)
            except codec.Refused as refusal:
                await self._refuse(received, str(refusal))
            except Exception as error:  # noqa: BLE001 # any exception is the fault of that message
                await self._refuse(received, f"decoding raised {type(error).__name__}: {error}")
            else:
                messages.append(Decoded(received.subject, received.sequence, received.data, message))
        del self._waiting[: len(part)]
        if not part:
            return Batch(messages, 0, 0, 0, self._reader.pending)
        if self._account is not None:
            self._account.receive(len(part), part[-1].sequence)
            self._account.add("superseded", len(part) - len(wanted))
            self._account.add("refused", len(wanted) - len(messages))
            self._account.add("taken", len(messages))
        self._handed = Mark(part[-1].sequence, part[-1].stored_us)
        pending = self._reader.pending + len(self._waiting)
        return Batch(messages, len(part), part[0].sequence, self._handed.sequence, pending, part[-1].stored_us)


def _newest(messages: Sequence[Received]) -> list[Received]:
    """Return the last message of each subject, in stream order."""
    newest = {message.subject: message.sequence for message in messages}
    return [message for message in messages if newest[message.subject] == message.sequence]


def of(kind: type[AnyMessage], *, by_node: bool = True) -> Decode[AnyMessage]:
    """Return a decoder of one kind.

    Args:
        kind: Message type.
        by_node: The last token of the subject is the message's node; a message of another node is refused.
    """
    if by_node:
        return lambda source, payload: codec.decode_from(kind, payload, source)
    return lambda _, payload: codec.decode(kind, payload)


def by_kind(kinds: Mapping[str, type[AnyMessage]], *, by_node: bool = True) -> Decode[AnyMessage]:
    """Return a decoder that reads the kind from the subject; as `of`."""
    decoders = {name: of(kind, by_node=by_node) for name, kind in kinds.items()}

    def decode(source: str, payload: bytes) -> AnyMessage:
        decoder = decoders.get(kind_of(source))
        if decoder is None:
            raise codec.Refused(f"no message is expected on {source}")
        return decoder(source, payload)

    return decode


def or_deleted(decode: Decode[Decodable]) -> Decode[Decodable | None]:
    """Return a decoder for a bucket: a message without payload, which marks a deleted key, becomes None."""
    return lambda source, payload: decode(source, payload) if payload else None


def bury(client: Client, names: Names, consumer: str, stream: str, *, timeout_seconds: float) -> Refuse:
    """Return the policy that writes a dead letter for each refused message; see `dead.bury`."""

    async def refuse(message: Received, reason: str) -> None:
        await dead.bury(client, names, consumer, stream, message, reason, timeout_seconds=timeout_seconds)

    return refuse


def count(counter: Counter) -> Refuse:
    """Return the policy that only counts; another consumer writes the dead letters."""

    async def refuse(_message: Received, _reason: str) -> None:
        counter.inc()

    return refuse


async def ignore(_message: Received, _reason: str) -> None:
    """Do nothing: refusals are expected, as for deleted keys, or another consumer writes the dead letters."""


async def keep(
    work: Callable[[], Awaitable[None]],
    report: Callable[[Exception], None],
    *,
    also: tuple[type[Exception], ...] = (),
    pause_seconds: float = 1.0,
) -> NoReturn:
    """Do some work, and start again whenever the server or the connection ended it.

    Args:
        work: Usually reads a subscription.
        report: Called with the error that ended it.
        also: Other errors after which to start again.
        pause_seconds: Pause before each new start.
    """
    while True:
        try:
            await work()
        except (*errors.REQUEST_FAILED, *also) as error:
            report(error)
        await asyncio.sleep(pause_seconds)


async def next_payload(client: Client, subject: str, *, timeout_seconds: float) -> bytes:
    """Return the payload of the next message that is published on a subject, without a stream.

    Raises:
        BusError: The connection broke.
        TimeoutError: No message arrived in time.
    """
    listening = await client.subscribe(subject)
    try:
        with cancellable():
            return (await listening.next_msg(timeout_seconds)).data
    finally:
        await listening.unsubscribe()
