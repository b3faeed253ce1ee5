"""Whether nodes keep what was promised of them: that they have room for a pod.

If a node has room for a pod that is bound to it, by any scheduler, it is promised to stay within the policy. It is
watched for a minute from when its reports show the pod, and the promises of that minute are one for each namespace.
They are broken if pods demanded over `_TOLERANCE` beyond what the policy admits, in the mean of the reports from
`_SETTLED_SECONDS` on.
A kept promise is evidence only if little room was left: where much is left, it could not be broken. Evidence of one
node counts once in `_APART_SECONDS`, unless it changes.

A pod that comes to a node without room ends the minute, which counts if enough of it was seen. So does one of a burst
of more pods than the extender looks at, as when a large cluster starts. Nothing settles on a node that is silent, or
whose processor does not say by how much pods exceed the policy.

A namespace is promoted by its evidence if the settings ask for it. Every replica sees every pod, so a new one takes
over what the others publish.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import Counter, Gauge

from kube.pod import belongs_to_node
from schemas.messages import placement
from schemas.messages.facts import PodFacts
from schemas.messages.placement import MOST_EVIDENCE, MOST_NAMESPACES, Trust
from schemas.sections.placement import Extender
from sinks.extender.state.cluster_state import ClusterState
from sinks.extender.trust import room

log = logging.getLogger(__name__)

_SETTLED_SECONDS, _WATCHED_SECONDS, _LEAST_SECONDS = 15.0, 60.0, 10.0
_TOLERANCE = 0.05  # what the mean of some reports deviates by chance; one pod of twenty
_LITTLE = 0.25  # share of the node
_APART_SECONDS = 600.0
_STARTING, _STARTING_SECONDS = 10_000, 600.0  # pods that nodes do not show yet
_NODES = 5000  # of one namespace
_AT_ONCE, _A_SECOND = 1000.0, 100.0  # pods whose nodes are looked at; each takes a third of a millisecond
_Z = 1.96

SETTLED = Counter(
    "spazio_extender_promises_total",
    "promises of room by outcome: kept, kept with much room left, or broken",
    ["outcome"],
)
PROMOTED = Gauge("spazio_extender_promoted_namespaces", "namespaces whose pods are placed, although the mode is shadow")


@dataclass(slots=True)
class _Minute:
    """A minute of a node to which only pods come for which it has room. Its reports' times are of the node's own clock.

    Attributes:
        since: When it began.
        since_us: Time of the node's last report then.
        namespaces: When the first pod of each namespace came.
        until_us: Time of the last report that counts.
        reports: Number of these reports.
        excess: Sum of what they say.
    """

    since: float
    since_us: int
    namespaces: dict[str, float]
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
    """Promises of one namespace.

    Attributes:
        settled, broken, loose: As in `schemas.messages.placement.Promises`, since they were published.
        recent: Whether each newest promise that is evidence was broken.
        nodes: When each node was evidence last, and whether its promise was broken.
        touched: When the last promise settled.
    """

    settled: int = 0
    broken: int = 0
    loose: int = 0
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=MOST_EVIDENCE))
    nodes: dict[str, tuple[float, bool]] = field(default_factory=dict)
    touched: float = 0.0

    def add(self, node: str, now: float, *, broken: bool) -> None:
        """Take in a promise that could be broken."""
        at, before = self.nodes.pop(node, (-_APART_SECONDS, broken))
        is_new = now - at >= _APART_SECONDS or broken != before
        self.nodes[node] = (now if is_new else at), broken
        if len(self.nodes) > _NODES:
            del self.nodes[next(iter(self.nodes))]
        if is_new:
            self.settled, self.broken = self.settled + 1, self.broken + broken
            self.recent.append(broken)


class PromiseTracker:
    """Open promises by node, and what became of earlier ones by namespace.

    Attributes:
        replica: Name under which they are published.
        promotion: Set once a namespace is promoted.
    """

    def __init__(
        self,
        settings: Extender,
        cluster_state: ClusterState,
        replica: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin without evidence; `clock` returns seconds."""
        self.replica, self.promotion = replica, asyncio.Event()
        self._settings, self._cluster_state, self._clock = settings, cluster_state, clock
        self._starting: dict[str, tuple[str, str, float]] = {}
        self._open: dict[str, _Minute] = {}
        self._crowded: dict[str, float] = {}
        self._records: dict[str, _Record] = {}
        self._promoted: set[str] = set()
        self._looks, self._looked = _AT_ONCE, clock()

    def bound(self, facts: PodFacts, now_us: int) -> None:
        """Take in that a pod was bound; call it before the cluster state knows."""
        now = self._clock()
        if not (self._may_look(now) and room.has(self._cluster_state, facts, now_us)):
            self._crowded[facts.node] = now
            if (minute := self._open.pop(facts.node, None)) is not None:
                self._end(facts.node, minute, now)
        elif not belongs_to_node(facts) and len(self._starting) < _STARTING:
            self._starting[facts.pod] = facts.namespace, facts.node, now

    def _may_look(self, now: float) -> bool:
        """Tell whether one more node may be looked at now, and count it."""
        left = min(_AT_ONCE, self._looks + (now - self._looked) * _A_SECOND)
        self._looks, self._looked = max(0.0, left - 1), now
        return left >= 1

    def watch(self) -> None:
        """Take in what nodes report; call it about once a second."""
        now, rows = self._clock(), self._cluster_state.rows
        for uid, (namespace, node, since) in list(self._starting.items()):
            pod = self._cluster_state.pods.bound.get(uid)
            if pod is None or pod.covered or now - since > _STARTING_SECONDS:
                del self._starting[uid]
                if pod is not None and pod.covered:
                    self._begin(namespace, node, now)
        for node, minute in list(self._open.items()):
            if (row := rows.find(node)) is None:
                del self._open[node]
                continue
            minute.take(int(rows["at"][row]), float(rows["excess"][row]))
            if now - minute.since > _WATCHED_SECONDS:
                del self._open[node]
                self._end(node, minute, now)
                for namespace in _late(minute, now):
                    self._begin(namespace, node, now)
        for node in [node for node, at in self._crowded.items() if now - at > _SETTLED_SECONDS]:
            del self._crowded[node]

    def _begin(self, namespace: str, node: str, now: float) -> None:
        row = self._cluster_state.rows.find(node)
        if row is None or node in self._crowded:
            return
        at_us = int(self._cluster_state.rows["at"][row])
        self._open.setdefault(node, _Minute(now, at_us, {})).namespaces.setdefault(namespace, now)

    def _end(self, node: str, minute: _Minute, now: float) -> None:
        broken, row = minute.is_broken, self._cluster_state.rows.find(node)
        if broken is None or row is None:
            return
        loose = not broken and not self._cluster_state.rows["left"][row] <= _LITTLE
        for namespace in minute.namespaces.keys() - _late(minute, now):
            if (record := self._record(namespace)) is None:
                continue
            SETTLED.labels("loose" if loose else "broken" if broken else "kept").inc()
            record.touched = now
            if loose:
                record.loose += 1
            else:
                record.add(node, now, broken=broken)
                self._weigh(namespace, record, may_promote=False)

    def _record(self, namespace: str) -> _Record | None:
        """Return the record of a namespace, in place of the oldest if there are too many; None: all are promoted."""
        if namespace not in self._records and len(self._records) >= MOST_NAMESPACES:
            idle = self._records.keys() - self._promoted
            if not idle:
                return None
            del self._records[min(idle, key=lambda name: self._records[name].touched)]
        return self._records.setdefault(namespace, _Record())

    def hear(self, other: Trust) -> None:
        """Take over what another replica has seen, or this one before a restart, where that is more.

        Messages come in order, and that of a replica that has ended stays for an hour. So of equal evidence the newest
        counts, until something has settled here.
        """
        if other.replica == self.replica:
            return
        for each in other.promises:
            record = self._record(each.namespace)
            if record is None or each.evidence < max(1, len(record.recent) + bool(record.nodes)):
                continue
            record.recent.clear()
            record.recent.extend(spread(each.against, each.evidence))
            self._weigh(each.namespace, record, may_promote=True, promoted=each.promoted and self._promotes)

    def is_promoted(self, namespace: str) -> bool:
        """Tell whether the pods of a namespace are placed."""
        return namespace in self._promoted

    @property
    def _promotes(self) -> bool:
        return self._settings.promote and self._settings.mode == "shadow"

    def _weigh(self, namespace: str, record: _Record, *, may_promote: bool, promoted: bool | None = None) -> None:
        """Promote a namespace, or take that back, by its evidence; `promoted`: it is elsewhere; None: as it is here."""
        settings, before = self._settings, namespace in self._promoted
        evidence, against = len(record.recent), sum(record.recent)
        if before if promoted is None else promoted:
            after = against <= settings.promote_risk * evidence
        else:
            enough = may_promote and self._promotes and evidence >= settings.promote_promises
            after = enough and upper(against, evidence) <= settings.promote_risk
        (self._promoted.add if after else self._promoted.discard)(namespace)
        if self._promoted:
            self.promotion.set()
        PROMOTED.set(len(self._promoted))
        if after != before:
            event = "namespace.promoted" if after else "namespace.demoted"
            log.warning(event, extra={"namespace": namespace, "promises": evidence, "broken": against})

    def published(self) -> list[placement.Promises]:
        """Promote by what has settled, and return what to publish; what is new then is no longer new."""
        result = []
        for namespace, each in sorted(self._records.items()):
            self._weigh(namespace, each, may_promote=True)
            result.append(
                placement.Promises(
                    namespace=namespace,
                    settled=each.settled,
                    broken=each.broken,
                    loose=each.loose,
                    evidence=len(each.recent),
                    against=sum(each.recent),
                    promoted=namespace in self._promoted,
                )
            )
            each.settled = each.broken = each.loose = 0
        return result


def _late(minute: _Minute, now: float) -> set[str]:
    """Return the namespaces whose first pod came too late to be seen."""
    return {name for name, at in minute.namespaces.items() if now - at < _SETTLED_SECONDS + _LEAST_SECONDS}


def spread(broken: int, evidence: int) -> list[bool]:
    """Return whether each promise was broken; in which order is not known, so the broken ones are spread evenly.

    One after the other leaves a full window. If all kept ones came first, they would leave first, and the share of the
    broken ones would rise to twice what it is.

    >>> spread(2, 6)
    [False, False, True, False, False, True]
    """
    return [(number + 1) * broken // evidence > number * broken // evidence for number in range(evidence)]


def upper(successes: int, trials: int) -> float:
    """Return the upper end of Wilson's interval at 95 % for a share.

    >>> round(upper(4, 100), 4), round(upper(0, 30), 4)
    (0.0984, 0.1135)
    """
    share, spread = successes / trials, _Z**2 / trials
    return (share + spread / 2 + math.sqrt(spread * (share * (1 - share) + spread / 4))) / (1 + spread)
