"""Places in the bucket: one compare-and-swap write for a decision, before anybody hears of it."""

import math
from typing import Protocol

from bus import api, errors
from bus.client import Client
from bus.publishing import batch
from schemas import codec
from schemas.messages.placement import Held, Reservations
from schemas.subject import Names, token
from sinks.extender.state.reservations import Book


class Conflict(RuntimeError):
    """Another replica has written the node's places meanwhile; the book knows by now what it wrote."""


class Unavailable(RuntimeError):
    """The bucket did not answer in time; whether the place is held is not known."""


class Places(Protocol):
    """Where places are held."""

    async def hold(self, node: str, uid: str, held: Held, now_us: int) -> None:
        """Hold a place for a pod on a node.

        Raises:
            Conflict: Judge again.
            Unavailable: Nothing can be held now.
        """

    async def release(self, node: str, uid: str, now_us: int) -> None:
        """Take a pod's place out of a node's message.

        Raises:
            Conflict: Another has written it; try again if it still has the place.
            Unavailable: Nothing can be written now.
        """


class Store(Places):
    """Writes places into the bucket, and keeps the book at what it has."""

    def __init__(self, client: Client, names: Names, book: Book, *, timeout_seconds: float) -> None:
        """Write with so much patience."""
        self._client, self._book, self._timeout = client, book, timeout_seconds
        self._bucket = names.reservations_bucket

    async def hold(self, node: str, uid: str, held: Held, now_us: int) -> None:
        """Hold a place for a pod on a node, beside those that others hold there."""
        row = self._book.rows.row(node)
        pods = self._book.held(row, now_us, but=uid) | {uid: held}
        await self._write(node, pods, self._book.expected(row, now_us), now_us)

    async def release(self, node: str, uid: str, now_us: int) -> None:
        """Take a pod's place out of a node's message."""
        row = self._book.rows.row(node)
        await self._write(node, self._book.held(row, now_us, but=uid), self._book.expected(row, now_us), now_us)

    async def _write(self, node: str, pods: dict[str, Held], expected: int, now_us: int) -> None:
        subject = f"$KV.{self._bucket}.{token(node)}"
        message = Reservations(node=node, pods=pods)
        last = max((held.until_us for held in pods.values()), default=now_us)
        row = batch.Row(subject, codec.encode(message), max(1, math.ceil((last - now_us) / 1e6)))
        try:
            try:
                sequence = await batch.swap(self._client, row, expected, self._timeout)
            except batch.Fenced:
                await self._refresh(node, subject)
                raise Conflict(node) from None
        except api.Refused as refused:
            raise Unavailable(f"bucket {self._bucket} refuses: {refused}") from refused
        except errors.REQUEST_FAILED as error:
            raise Unavailable(f"NATS does not answer for bucket {self._bucket}: {error!r}") from error
        self._book.hear(message, sequence)

    async def _refresh(self, node: str, subject: str) -> None:
        stored = await batch.last(self._client, f"KV_{self._bucket}", subject, self._timeout)
        if not stored.sequence:
            self._book.missing(node)
            return
        try:
            self._book.hear(codec.decode(Reservations, stored.payload), stored.sequence, sure=True)
        except codec.Refused:
            self._book.gone(node, stored.sequence)
