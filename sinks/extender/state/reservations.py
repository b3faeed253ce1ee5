"""Places held for pods that were decided and are not bound yet.

A place belongs to a pod's UID, so a pod has one at most: a new decision moves it. It goes when the pod is bound (then
the pod itself counts, wherever it landed), when the pod is deleted or over, when the scheduler asks about the pod
again, and when it lapses, since a decision that never became a bind is undone by nobody.

The bucket has one message a node with all its places. Who writes it must know the sequence of the one before; what
others wrote meanwhile is thus never lost. Messages of one pod on two nodes are settled by their order in the stream.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from schemas.messages.placement import Held, Reservations
from sinks.extender.state import pods as pod_sums
from sinks.extender.state.pods import Pods
from sinks.extender.state.rows import Rows

_EXPIRED_US = 3_000_000  # lifetimes are whole seconds, and the server looks for what is over now and then
_SETTLED_US = 5_000_000  # other replicas have learned by then that a pod is bound


@dataclass(slots=True)
class _Place:
    row: int
    held: Held
    kind: str
    sequence: int


@dataclass(slots=True)
class Book:
    """All places, and their counts in the columns of `rows` that pods use too."""

    rows: Rows
    pods: Pods
    _places: dict[str, _Place] = field(default_factory=dict)
    _stored: dict[int, tuple[int, dict[str, Held]]] = field(default_factory=dict)
    _lapsing: list[tuple[int, str]] = field(default_factory=list)
    _released: dict[str, int] = field(default_factory=dict)
    _seen: dict[int, int] = field(default_factory=dict)  # sequences that were looked up, when our guess had been wrong

    def __len__(self) -> int:
        return len(self._places)

    def hear(self, message: Reservations, sequence: int, *, sure: bool = False) -> None:
        """Take what the bucket has of a node; older messages than the known one are ignored unless it is sure."""
        row = self.rows.row(message.node)
        known, before = self._stored.get(row, (0, {}))
        if sequence <= known and not sure:
            return
        self._stored[row] = (sequence, dict(message.pods))
        if sure:
            self._seen[row] = sequence
        for uid in before.keys() - message.pods.keys():
            place = self._places.get(uid)
            if place is not None and place.row == row and place.sequence < sequence:
                self.drop(uid)
        for uid, held in message.pods.items():
            self._take(uid, _Place(row, held, self.pods.reserved.kind(held.workload), sequence))

    def gone(self, node: str, sequence: int) -> None:
        """Take note that the bucket has nothing of a node any more."""
        self.hear(Reservations(node=node, pods={}), sequence)

    def missing(self, node: str) -> None:
        """Take note that the bucket has nothing of a node, and no sequence to hold against."""
        row = self.rows.row(node)
        self._seen.pop(row, None)
        _, before = self._stored.pop(row, (0, {}))
        for uid in before:
            if (place := self._places.get(uid)) is not None and place.row == row:
                self.drop(uid)

    def renewed(self) -> None:
        """Take note that the bucket was made anew, so that its sequences begin again."""
        self._stored.clear()
        self._seen.clear()
        for place in self._places.values():
            place.sequence = 0

    def leave(self, row: int) -> None:
        """Forget what the bucket had of a node; its row is given to another."""
        self._stored.pop(row, None)
        self._seen.pop(row, None)

    def sequence(self, row: int) -> int:
        """Return the sequence that the bucket's message of a node had when we last saw it; 0: it has none."""
        return self._stored.get(row, (0, {}))[0]

    def expected(self, row: int, now_us: int) -> int:
        """Return the sequence that the bucket's message of a node should have now: it expires with its last place."""
        sequence, pods = self._stored.get(row, (0, {}))
        if self._seen.get(row) == sequence:
            return sequence
        last_us = max((held.until_us for held in pods.values()), default=now_us)
        return sequence if last_us + _EXPIRED_US > now_us else 0

    def held(self, row: int, now_us: int, but: str = "") -> dict[str, Held]:
        """Return what a new message of a node must still say: all places but those that everybody knows are gone."""
        return {
            uid: held
            for uid, held in self._stored.get(row, (0, {}))[1].items()
            if uid != but and held.until_us > now_us and not self._settled(uid, row, now_us)
        }

    def row_of(self, uid: str) -> int | None:
        """Return the row on which a pod has a place."""
        place = self._places.get(uid)
        return None if place is None else place.row

    def earliest(self, uid: str) -> int:
        """Return the least time of a new place of a pod: places that were given back are told by their time."""
        return self._released.get(uid, -1) + 1

    def drop(self, uid: str) -> None:
        """Give a pod's place back, here; what the bucket says of it does not count any more."""
        place = self._places.pop(uid, None)
        if place is not None:
            self._count(place, -1)

    def lapse(self, now_us: int) -> list[str]:
        """Give back the places whose time is over; returns whose they were."""
        lapsed = []
        while self._lapsing and self._lapsing[0][0] <= now_us:
            until_us, uid = heapq.heappop(self._lapsing)
            place = self._places.get(uid)
            if place is not None and place.held.until_us <= until_us:
                self.drop(uid)
                lapsed.append(uid)
        return lapsed

    def settle(self, uid: str) -> None:
        """Give a place back if its pod is bound or over."""
        if uid in self.pods.known or uid in self.pods.over:
            self.drop(uid)

    def all(self) -> Iterator[tuple[str, int, Held]]:
        """Yield (uid, row, place)."""
        for uid, place in self._places.items():
            yield uid, place.row, place.held

    def on(self, row: int) -> Iterator[Held]:
        """Yield the places that are held on a node."""
        for uid in self._stored.get(row, (0, {}))[1]:
            if (place := self._places.get(uid)) is not None and place.row == row:
                yield place.held

    def _settled(self, uid: str, row: int, now_us: int) -> bool:
        """Tell whether every replica knows by now that a place in the bucket is not held any more."""
        place, bound = self._places.get(uid), self.pods.known.get(uid)
        if place is not None:
            return place.row != row
        return uid in self.pods.over or (bound is not None and bound.bound_us < now_us - _SETTLED_US)

    def _take(self, uid: str, place: _Place) -> None:
        before = self._places.get(uid)
        # A message repeats all places of its node, so the later message may hold the earlier decision.
        if before is not None and (before.held.at_us, before.sequence) > (place.held.at_us, place.sequence):
            return
        if before is not None and before.row == place.row and before.held == place.held:
            before.sequence = place.sequence
            return
        if uid in self.pods.known or uid in self.pods.over:
            return
        if before is None and self._dropped(uid, place):
            return
        self.drop(uid)
        self._places[uid] = place
        self._count(place, 1)
        heapq.heappush(self._lapsing, (place.held.until_us, uid))

    def _dropped(self, uid: str, place: _Place) -> bool:
        """Tell whether we gave this very place back before; a node's message repeats it until it is rewritten."""
        return self._released.get(uid, -1) >= place.held.at_us

    def release(self, uid: str) -> int | None:
        """Give a place back for good, since the pod is decided anew; returns the row it was on."""
        place = self._places.get(uid)
        if place is None:
            return None
        self._released[uid] = place.held.at_us
        if len(self._released) > 10_000:
            del self._released[next(iter(self._released))]
        self.drop(uid)
        return place.row

    def _count(self, place: _Place, sign: int) -> None:
        self.pods.reserved.add(place.row, place.kind, sign)
        pod_sums.add(self.rows, place.row, place.held.requests, sign)
        self.rows["recent"][place.row] += sign * pod_sums.expected(place.held.requests)
