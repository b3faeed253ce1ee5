"""Reservations for pods that are decided and not bound yet.

A reservation belongs to a pod's UID, so a pod has at most one; a new decision moves it. It ends when the pod is bound
(the pod itself counts then, wherever it is), when the pod is deleted or has ended, when the scheduler asks about it
again, and when it lapses, because no event tells of a decision that never led to a bind. `unconfirmed` limits those of
pods that the API has not reported. While the API reports nothing, such a pod may be bound for long, so its reservation
is held longer; once the API has reported that the pod waits, it is held as long as any other.

The bucket has one message per node with all its reservations. A writer must know the sequence of the previous message,
so concurrent writes of replicas are never lost. If messages of two nodes have the same pod, their order in the stream
decides.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from schemas.messages.placement import Held, Reservations
from sinks.extender.state import pod_sums
from sinks.extender.state.pods import Pods
from sinks.extender.state.rows import Rows
from sinks.extender.state.unconfirmed import Unconfirmed

_EXPIRED_US = 3_000_000  # lifetimes are whole seconds, and the server removes expired messages periodically
_SETTLED_US = 5_000_000  # after this time, all replicas know that a pod is bound


@dataclass(slots=True)
class _Reservation:
    row: int
    held: Held
    kind: str
    sequence: int


@dataclass(slots=True)
class ReservationTable:
    """All reservations, and their counts in the columns of `rows` that pods use too.

    Attributes:
        life_us: Time for which a reservation is held for a pod that the API has reported.
    """

    rows: Rows
    pods: Pods
    unconfirmed: Unconfirmed
    life_us: int
    _by_uid: dict[str, _Reservation] = field(default_factory=dict)
    _stored: dict[int, tuple[int, dict[str, Held]]] = field(default_factory=dict)
    _lapsing: list[tuple[int, str]] = field(default_factory=list)
    _released: dict[str, int] = field(default_factory=dict)
    _seen: dict[int, int] = field(default_factory=dict)  # sequences that were read back after a conflict

    def __len__(self) -> int:
        return len(self._by_uid)

    def hear(self, message: Reservations, sequence: int, *, sure: bool = False) -> None:
        """Store the bucket's message of a node; older messages than the stored one are ignored unless `sure`."""
        row = self.rows.row(message.node)
        stored_sequence, before = self._stored.get(row, (0, {}))
        if sequence <= stored_sequence and not sure:
            return
        self._stored[row] = (sequence, dict(message.pods))
        if sure:
            self._seen[row] = sequence
        for uid in before.keys() - message.pods.keys():
            reservation = self._by_uid.get(uid)
            if reservation is not None and reservation.row == row and reservation.sequence < sequence:
                self.drop(uid)
        for uid, held in message.pods.items():
            self._take(uid, _Reservation(row, held, self.pods.reserved.kind(held.workload, row), sequence))

    def gone(self, node: str, sequence: int) -> None:
        """Remove a node's reservations, since the bucket's message is deleted."""
        self.hear(Reservations(node=node, pods={}), sequence)

    def missing(self, node: str) -> None:
        """Remove a node's reservations, since the bucket has neither a message nor a sequence of it."""
        row = self.rows.row(node)
        self._seen.pop(row, None)
        _, before = self._stored.pop(row, (0, {}))
        for uid in before:
            if (reservation := self._by_uid.get(uid)) is not None and reservation.row == row:
                self.drop(uid)

    def renewed(self) -> None:
        """Forget all sequences, since the bucket was recreated."""
        self._stored.clear()
        self._seen.clear()
        for reservation in self._by_uid.values():
            reservation.sequence = 0

    def leave(self, row: int) -> None:
        """Forget the bucket's message of a node whose row is freed."""
        self._stored.pop(row, None)
        self._seen.pop(row, None)

    def sequence(self, row: int) -> int:
        """Return the sequence of the last known message of a node; 0: none."""
        return self._stored.get(row, (0, {}))[0]

    def expected(self, row: int, now_us: int) -> int:
        """Return the expected sequence of a node's message now; the message expires with its last reservation."""
        sequence, pods = self._stored.get(row, (0, {}))
        if self._seen.get(row) == sequence:
            return sequence
        last_us = max((held.until_us for held in pods.values()), default=now_us)
        return sequence if last_us + _EXPIRED_US > now_us else 0

    def held(self, row: int, now_us: int, but: str = "") -> dict[str, Held]:
        """Return the reservations that a node's next message must keep: those not known to all replicas as ended."""
        return {
            uid: held
            for uid, held in self._stored.get(row, (0, {}))[1].items()
            if uid != but and self._end(uid, held) > now_us and not self._settled(uid, row, held, now_us)
        }

    def row_of(self, uid: str) -> int | None:
        """Return the row of a pod's reservation; None: it has none."""
        reservation = self._by_uid.get(uid)
        return None if reservation is None else reservation.row

    def earliest(self, uid: str) -> int:
        """Return the least time of a pod's new reservation, which must differ from the released one's."""
        return self._released.get(uid, -1) + 1

    def drop(self, uid: str) -> None:
        """Remove a pod's reservation from this table, but not from the bucket."""
        reservation = self._by_uid.pop(uid, None)
        self.unconfirmed.discard(uid)
        if reservation is not None:
            self._count(reservation, -1)

    def lapse(self, now_us: int) -> list[str]:
        """Remove lapsed reservations; returns the UIDs of their pods."""
        lapsed = []
        while self._lapsing and self._lapsing[0][0] <= now_us:
            until_us, uid = heapq.heappop(self._lapsing)
            reservation = self._by_uid.get(uid)
            if reservation is not None and self._end(uid, reservation.held) <= until_us:
                self.release(uid)
                lapsed.append(uid)
        # While no watch runs, no pod is confirmed: what counts is how far it has reported.
        for uid in self.unconfirmed.lapsed(min(now_us, self.pods.heard_us)):
            self.release(uid)
            lapsed.append(uid)
        return lapsed

    def refusal(self, uid: str, row: int) -> str:
        """Return why a pod cannot have a reservation on a node; empty: it can."""
        return "" if uid in self.pods.pending or not self.pods.heard_us else self.unconfirmed.refusal(row)

    def settle(self, uid: str) -> None:
        """Remove a pod's reservation if the pod is bound or has ended; confirm it if the pod waits."""
        if uid in self.pods.bound or uid in self.pods.over:
            self.drop(uid)
        elif uid in self.pods.pending and uid in self.unconfirmed:
            self.unconfirmed.discard(uid)
            heapq.heappush(self._lapsing, (self._end(uid, self._by_uid[uid].held), uid))

    def all(self) -> Iterator[tuple[str, int, Held]]:
        """Yield (uid, row, reservation)."""
        for uid, reservation in self._by_uid.items():
            yield uid, reservation.row, reservation.held

    def on(self, row: int) -> Iterator[Held]:
        """Yield the reservations on a node."""
        for uid in self._stored.get(row, (0, {}))[1]:
            if (reservation := self._by_uid.get(uid)) is not None and reservation.row == row:
                yield reservation.held

    def _end(self, uid: str, held: Held) -> int:
        """Return when a reservation lapses."""
        return held.until_us if uid in self.unconfirmed else min(held.until_us, held.at_us + self.life_us)

    def _settled(self, uid: str, row: int, held: Held, now_us: int) -> bool:
        """Tell whether every replica knows by now that a stored reservation has ended."""
        reservation, bound = self._by_uid.get(uid), self.pods.bound.get(uid)
        if reservation is not None:
            return reservation.row != row
        if bound is not None:
            return bound.bound_us < now_us - _SETTLED_US
        if uid in self.pods.over or uid in self.pods.pending:
            return uid in self.pods.over
        return self.unconfirmed.is_over(held.at_us, min(now_us, self.pods.heard_us))

    def _take(self, uid: str, reservation: _Reservation) -> None:
        before = self._by_uid.get(uid)
        # A message repeats all reservations of its node, so a later message may have an earlier decision.
        if before is not None and (before.held.at_us, before.sequence) > (reservation.held.at_us, reservation.sequence):
            return
        if before is not None and before.row == reservation.row and before.held == reservation.held:
            before.sequence = reservation.sequence
            return
        if uid in self.pods.bound or uid in self.pods.over:
            return
        if before is None and self._dropped(uid, reservation):
            return
        self.drop(uid)
        self._by_uid[uid] = reservation
        self._count(reservation, 1)
        if uid not in self.pods.pending:
            self.unconfirmed.add(uid, reservation.row, reservation.held.at_us)
        heapq.heappush(self._lapsing, (self._end(uid, reservation.held), uid))

    def _dropped(self, uid: str, reservation: _Reservation) -> bool:
        """Tell whether this replica released this reservation; a node's message repeats it until it is rewritten."""
        return self._released.get(uid, -1) >= reservation.held.at_us

    def release(self, uid: str) -> int | None:
        """Release a pod's reservation before a new decision; returns its row, None: it had none."""
        reservation = self._by_uid.get(uid)
        if reservation is None:
            return None
        self._released[uid] = reservation.held.at_us
        if len(self._released) > 10_000:
            del self._released[next(iter(self._released))]
        self.drop(uid)
        return reservation.row

    def _count(self, reservation: _Reservation, sign: int) -> None:
        self.pods.reserved.add(reservation.row, reservation.kind, sign, reservation.held.requests)
        self.rows["starting"][reservation.row] += sign
        self.rows["placed"][reservation.row] += sign
        pod_sums.add(self.rows, reservation.row, reservation.held.requests, sign)
        self.rows["recent"][reservation.row] += sign * pod_sums.expected(reservation.held.requests)
