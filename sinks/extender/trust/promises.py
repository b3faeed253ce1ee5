"""Whether nodes keep what was promised of them: that they have room for a pod.

A pod that is bound to a node on which the policy passed it is a promise: the node stays within the policy. The node is
watched for a minute from then on, and other promises of that minute join the first, so that one excess counts once for
each of their namespaces. They are broken if pods demanded over `_TOLERANCE` beyond what the policy admits, in the mean
of the reports from `_SETTLED_SECONDS` on. Where a promise came too late to be seen, another minute follows. Nothing
settles on a node that is silent, or that gets a pod of which nothing was promised.

A namespace is promoted by its promises if the settings ask for it. Those that other replicas publish count as well, for
a day after they have ended: a replica that takes their place has none.
"""

import logging
import math
from collections import deque
from dataclasses import dataclass, field

from prometheus_client import Counter, Gauge

from schemas.messages import placement
from schemas.messages.placement import MOST_EVIDENCE, MOST_NAMESPACES, Decision, Trust
from schemas.sections.placement import Extender
from sinks.extender.state.cluster_state import ClusterState

log = logging.getLogger(__name__)

_SETTLED_SECONDS, _WATCHED_SECONDS, _LEAST_SECONDS = 15.0, 60.0, 10.0
_TOLERANCE = 0.05  # what the mean of some reports deviates by chance; one pod of twenty
_EXPECTED = 1000  # pods whose bind is awaited
_REPLICAS, _DAY_US = 100, 86_400 * 1_000_000
_Z = 1.96

SETTLED = Counter(
    "spazio_extender_promises_total",
    "minutes of nodes by whether they had the room that was promised, for each namespace",
    ["outcome"],
)
PROMOTED = Gauge("spazio_extender_promoted_namespaces", "namespaces whose pods are placed, although the mode is shadow")


@dataclass(slots=True)
class _Minute:
    """A minute of a node to which only pods come for which it has room.

    Attributes:
        since_us: When the first was bound.
        namespaces: When the last pod of each namespace was bound.
        until_us: Time of the last report that counts.
        reports: Number of these reports.
        excess: Sum of what they say.
    """

    since_us: int
    namespaces: dict[str, int]
    until_us: int = 0
    reports: int = 0
    excess: float = 0.0

    def take(self, at_us: int, excess: float) -> None:
        """Take in a report."""
        if at_us > max(self.until_us, self.since_us + _SETTLED_SECONDS * 1e6):
            self.until_us, self.reports, self.excess = at_us, self.reports + 1, self.excess + excess

    @property
    def is_broken(self) -> bool | None:
        """Whether the node was beyond the policy; None: too little was seen of it."""
        if self.until_us - self.since_us < (_SETTLED_SECONDS + _LEAST_SECONDS) * 1e6 or math.isnan(self.excess):
            return None
        return self.excess > _TOLERANCE * self.reports


@dataclass(slots=True)
class _Record:
    """Promises of one namespace: numbers since they were published, and whether each recent one was broken."""

    settled: int = 0
    broken: int = 0
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=MOST_EVIDENCE))

    def add(self, *, broken: bool) -> None:
        self.settled, self.broken = self.settled + 1, self.broken + broken
        self.recent.append(broken)


class PromiseTracker:
    """Open promises by node, and what became of earlier ones by namespace.

    Attributes:
        replica: Name under which they are published.
    """

    def __init__(self, settings: Extender, cluster_state: ClusterState, replica: str) -> None:
        """Begin without evidence."""
        self.replica, self._settings, self._cluster_state = replica, settings, cluster_state
        self._expected: dict[str, tuple[str, str]] = {}
        self._open: dict[int, _Minute] = {}
        self._records: dict[str, _Record] = {}
        self._others: dict[str, tuple[int, dict[str, tuple[int, int]]]] = {}
        self._promoted: set[str] = set()

    def decided(self, message: Decision) -> None:
        """Take in a decision: where it is guaranteed, it promises room."""
        if message.guaranteed and message.node is not None:
            self.expect(message.pod, message.namespace, message.node)

    def expect(self, uid: str, namespace: str, node: str) -> None:
        """Promise that a node has room for a pod, if it is bound to it."""
        self._expected.pop(uid, None)
        if len(self._expected) >= _EXPECTED:
            del self._expected[next(iter(self._expected))]
        self._expected[uid] = namespace, node

    def bound(self, uid: str, node: str, now_us: int) -> None:
        """Take in that a pod was bound to a node."""
        row = self._cluster_state.rows.row(node)
        namespace, expected = self._expected.pop(uid, ("", ""))
        if expected != node:
            self._open.pop(row, None)  # what this pod does is not held against the others
        elif row in self._open:
            self._open[row].namespaces[namespace] = now_us
        else:
            self._open[row] = _Minute(now_us, {namespace: now_us})

    def watch(self, now_us: int) -> None:
        """Take in what nodes report; call it about once a second."""
        for row, minute in list(self._open.items()):
            minute.take(int(self._cluster_state.rows["at"][row]), float(self._cluster_state.rows["excess"][row]))
            if now_us - minute.since_us > _WATCHED_SECONDS * 1e6:
                del self._open[row]
                self._end(minute)
                since_us = now_us - (_SETTLED_SECONDS + _LEAST_SECONDS) * 1e6
                if late := {name: at_us for name, at_us in minute.namespaces.items() if at_us > since_us}:
                    self._open[row] = _Minute(max(late.values()), late)

    def _end(self, minute: _Minute) -> None:
        if (broken := minute.is_broken) is None:
            return
        for namespace in minute.namespaces:
            if namespace in self._records or len(self._records) < MOST_NAMESPACES:
                SETTLED.labels("broken" if broken else "kept").inc()
                self._records.setdefault(namespace, _Record()).add(broken=broken)
                self._weigh(namespace)

    def hear(self, other: Trust) -> None:
        """Take in what another replica has seen, or this one before a restart."""
        if other.replica == self.replica:
            return
        if len(self._others) >= _REPLICAS and other.replica not in self._others:
            del self._others[min(self._others, key=lambda replica: self._others[replica][0])]
        seen = {each.namespace: (each.evidence, each.against) for each in other.promises}
        self._others[other.replica] = other.at_us, seen
        for namespace in seen:
            self._weigh(namespace)

    def forget(self, now_us: int) -> None:
        """Forget what replicas have published that ended a day ago."""
        ended = [replica for replica, (at_us, _) in self._others.items() if now_us - at_us > _DAY_US]
        for namespace in {namespace for replica in ended for namespace in self._others.pop(replica)[1]}:
            self._weigh(namespace)

    def is_promoted(self, namespace: str) -> bool:
        """Tell whether the pods of a namespace are placed."""
        return namespace in self._promoted

    def _weigh(self, namespace: str) -> None:
        """Promote a namespace, or take that back, by all of its promises."""
        settings, before = self._settings, namespace in self._promoted
        if not settings.promote or settings.mode != "shadow":
            return
        own = self._records.get(namespace, _Record()).recent
        every = [(len(own), sum(own)), *(seen.get(namespace, (0, 0)) for _, seen in self._others.values())]
        evidence, against = (sum(column) for column in zip(*every, strict=True))
        if before:
            after = bool(evidence) and against <= settings.promote_risk * evidence
        else:
            after = evidence >= settings.promote_promises and upper(against, evidence) <= settings.promote_risk
        if after != before:
            (self._promoted.add if after else self._promoted.discard)(namespace)
            PROMOTED.set(len(self._promoted))
            share = round(against / evidence, 4) if evidence else None
            event = "namespace.promoted" if after else "namespace.demoted"
            log.warning(event, extra={"namespace": namespace, "promises": evidence, "broken_share": share})

    def taken(self) -> list[placement.Promises]:
        """Return what to publish of each namespace; what is new since the last call is then no longer new."""
        most = sorted(self._records.items(), key=lambda item: -len(item[1].recent))
        promises = [
            placement.Promises(
                namespace=namespace,
                settled=each.settled,
                broken=each.broken,
                evidence=len(each.recent),
                against=sum(each.recent),
                promoted=namespace in self._promoted,
            )
            for namespace, each in most
        ]
        for each in self._records.values():
            each.settled = each.broken = 0
        return promises


def upper(successes: int, trials: int) -> float:
    """Return the upper end of Wilson's interval at 95 % for a share.

    >>> round(upper(4, 100), 4), round(upper(0, 30), 4)
    (0.0984, 0.1135)
    """
    share, spread = successes / trials, _Z**2 / trials
    return (share + spread / 2 + math.sqrt(spread * (share * (1 - share) + spread / 4))) / (1 + spread)
