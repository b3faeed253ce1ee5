"""Limits for reservations of pods that `spazio watch` has not reported: they are few, and they are short.

A client can ask about pods that do not exist, and each answer would reserve room until it lapses.
kube-scheduler asks about a pod at about the time at which the watch reports it. A reservation of a true pod is
therefore unconfirmed for a moment only, and these limits do not reach it. If the watch is far behind, the pod waits and
is asked about again. While the watch is away, nothing tells true pods from invented ones, so reservations do not end
before it has reported what came later, or their own time is over, which is longer then.
"""

from collections import Counter

from prometheus_client import Gauge

from schemas.sections.placement import Extender

_NODES = 16  # so many nodes' worth of unconfirmed reservations in total
_LATE_US = 5_000_000  # replicas hear of a pod at different times

UNCONFIRMED = Gauge(
    "spazio_extender_unconfirmed_reservations", "reservations of pods that the cluster watch has not reported"
)


class Unconfirmed:
    """Unconfirmed reservations, in the order in which they were made."""

    def __init__(self, settings: Extender) -> None:
        """Start with none; `settings` state their life and their number on a node."""
        self._life_us = round(settings.unconfirmed_seconds * 1e6)
        self._most = settings.unconfirmed_pods
        self._until_us: dict[str, int] = {}
        self._row: dict[str, int] = {}
        self._on_row: Counter[int] = Counter()

    def __contains__(self, uid: str) -> bool:
        return uid in self._row

    def __len__(self) -> int:
        return len(self._row)

    def add(self, uid: str, row: int, at_us: int) -> None:
        """Add the reservation of a pod on a node, made at that time."""
        self.discard(uid)
        self._until_us[uid], self._row[uid] = at_us + self._life_us, row
        self._on_row[row] += 1
        UNCONFIRMED.set(len(self))

    def discard(self, uid: str) -> None:
        """Remove a pod's reservation, because it is confirmed or has ended."""
        row = self._row.pop(uid, None)
        if row is None:
            return
        del self._until_us[uid]
        self._on_row[row] -= 1
        if not self._on_row[row]:
            del self._on_row[row]
        UNCONFIRMED.set(len(self))

    def lapsed(self, reported_us: int) -> list[str]:
        """Return the pods without confirmation although the watch has reported what was long after the decision."""
        uids = []
        for uid, until_us in self._until_us.items():
            if until_us > reported_us:
                break
            uids.append(uid)
        return uids

    def is_over(self, at_us: int, reported_us: int) -> bool:
        """Tell whether every replica has removed a reservation of that time, unless the watch has reported its pod."""
        return at_us + self._life_us + _LATE_US <= reported_us

    def refusal(self, row: int) -> str:
        """Return why no other unconfirmed reservation can be made on a node; empty: one can."""
        on_row, most = self._on_row[row], self._most
        if on_row < most and len(self) < _NODES * most:
            return ""
        where = f"{on_row} such pods hold room on the node" if on_row >= most else f"{len(self)} such pods hold room"
        return f"`spazio watch` has not reported this pod, and {where}; it is tried again once the watch reports it"
