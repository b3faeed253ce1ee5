"""Reservations in the bucket: one compare-and-swap write per decision, before the extender answers."""

import math
from typing import Protocol

from bus import api, errors
from bus.client import Client
from bus.publishing import batch
from schemas import codec
from schemas.messages.placement import Held, Reservations
from schemas.subject import Names, token
from sinks.extender.state.reservations import ReservationTable


class Conflict(RuntimeError):
    """Another replica has written the node's reservations; the table has them now."""


class Unavailable(RuntimeError):
    """The bucket did not answer in time; the reservation may or may not be written."""


class ReservationStore(Protocol):
    """Writes reservations."""

    async def hold(self, node: str, uid: str, held: Held, now_us: int) -> None:
        """Write a pod's reservation on a node.

        Raises:
            Conflict: Another replica wrote first; evaluate again.
            Unavailable: The store cannot be written now.
        """

    async def release(self, node: str, uid: str, now_us: int) -> None:
        """Remove a pod's reservation from a node's message.

        Raises:
            Conflict: Another replica wrote first; try again if the reservation is still there.
            Unavailable: The store cannot be written now.
        """


class BucketReservationStore(ReservationStore):
    """Writes reservations into the bucket, and keeps the table equal to the bucket."""

    def __init__(self, client: Client, names: Names, reservations: ReservationTable, *, timeout_seconds: float) -> None:
        """Create a store whose writes wait for at most `timeout_seconds`."""
        self._client, self._reservations, self._timeout = client, reservations, timeout_seconds
        self._bucket = names.reservations_bucket

    async def hold(self, node: str, uid: str, held: Held, now_us: int) -> None:
        """Write a pod's reservation on a node, beside the other reservations there."""
        row = self._reservations.rows.row(node)
        pods = self._reservations.held(row, now_us, but=uid) | {uid: held}
        await self._write(node, pods, self._reservations.expected(row, now_us), now_us)

    async def release(self, node: str, uid: str, now_us: int) -> None:
        """Remove a pod's reservation from a node's message."""
        row = self._reservations.rows.row(node)
        await self._write(
            node, self._reservations.held(row, now_us, but=uid), self._reservations.expected(row, now_us), now_us
        )

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
        self._reservations.hear(message, sequence)

    async def _refresh(self, node: str, subject: str) -> None:
        stored = await batch.last(self._client, f"KV_{self._bucket}", subject, self._timeout)
        if not stored.sequence:
            self._reservations.missing(node)
            return
        try:
            self._reservations.hear(codec.decode(Reservations, stored.payload), stored.sequence, sure=True)
        except codec.Refused:
            self._reservations.gone(node, stored.sequence)
