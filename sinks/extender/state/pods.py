"""Pods that the API knows, and which of them telemetry does not show yet.

A pod that is bound to a node takes room there from that moment on; the node's reports show it only once it runs and
its start has gone through smoothing. Until a report covers the start, the pod counts as a reservation. So the handing
over from a held place to what is measured leaves no gap, whoever bound the pod, and a restart needs no memory of its
own: facts and reports say it all. (The dissertation gives the place back when the pod leaves Pending, which lets
others in for the seconds in between.)
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kube import quantity
from schemas.messages.facts import UNBOUND, PodFacts
from sinks.extender import pod
from sinks.extender.candidate import Container
from sinks.extender.state.reserved import Reserved
from sinks.extender.state.rows import Rows
from sinks.extender.strategy import target_load_packing

_STAND_INS = {name: float(quantity.parse(amount)) for name, amount in pod.STAND_INS.items()}
_SECOND_US = 1_000_000


class Terms(NamedTuple):
    """When a report covers a pod.

    Attributes:
        settle_us: A report shows a start so long after it.
        at_running: A pod is covered when it leaves Pending, whatever was reported.
    """

    settle_us: int
    at_running: bool


@dataclass(slots=True)
class Known:
    """One pod that is bound and not over.

    Attributes:
        row: Of its node.
        workload: Its class.
        kind: Of the reservation that it is.
        version: Of its newest facts.
        requests: Its requests.
        cpu: Cores that it is predicted to use while telemetry does not show it.
        running_us: When it was first seen to run; None: it does not.
        covered: A report shows it.
        bound_us: When we learned that it is bound.
    """

    row: int
    workload: str
    kind: str
    version: int
    requests: Mapping[str, float]
    cpu: float
    running_us: int | None
    covered: bool
    bound_us: int


@dataclass(slots=True)
class Pods:
    """All pods, and their sums by node in columns of `rows`.

    Columns: `requested:<resource>`, `nonzero:cpu`, `nonzero:memory`, `pods`, `recent`.

    Attributes:
        rows: Names and numbers of nodes.
        reserved: Pods that telemetry does not show yet.
        gone: Pods that a node's last report shows and that have ended since.
        terms: When a report shows a pod.
    """

    rows: Rows
    reserved: Reserved
    gone: Reserved
    terms: Terms
    known: dict[str, Known] = field(default_factory=dict)
    uncovered: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    reported_us: dict[int, int] = field(default_factory=dict)
    over: dict[str, int] = field(default_factory=dict)

    def hear(self, facts: PodFacts) -> None:
        """Take facts; older ones than those known are ignored."""
        uid, before = facts.pod, self.known.get(facts.pod)
        if (before is not None and facts.version <= before.version) or self.over.get(uid, -1) >= facts.version:
            return
        ended = facts.deleted or facts.phase in ("Succeeded", "Failed")
        if ended:
            self.over[uid] = facts.version
        if ended or facts.node == UNBOUND:
            self._drop(uid, facts.at_us if ended else None)
            return
        row = self.rows.row(facts.node)
        if before is not None and before.row == row and before.requests == facts.requests:
            before.version = facts.version
            before.running_us = before.running_us or self._running(facts)
            self._cover(uid, before)
            return
        self._drop(uid)
        self._add(
            uid,
            Known(
                row=row,
                workload=facts.workload,
                kind=self.reserved.kind(facts.workload),
                version=facts.version,
                requests=facts.requests,
                cpu=expected(facts.requests, facts.limits),
                running_us=self._running(facts),
                covered=False,
                bound_us=facts.at_us,
            ),
        )

    def forget(self, uid: str, at_us: int | None) -> None:
        """Take note that the API has no such pod any more, since when; None: nobody knows."""
        known = self.known.get(uid)
        self.over[uid] = max(self.over.get(uid, 0), known.version if known else 0)
        self._drop(uid, at_us)

    def report(self, row: int, at_us: int) -> None:
        """Take note that a node has reported; what it shows is not reserved any more."""
        self.reported_us[row] = at_us
        self.gone.clear(row)
        for uid in list(self.uncovered.get(row, ())):
            self._cover(uid, self.known[uid])

    def trim(self, most: int) -> None:
        """Forget the oldest of the pods that are over, down to so many."""
        while len(self.over) > most:
            del self.over[next(iter(self.over))]

    def _running(self, facts: PodFacts) -> int | None:
        if facts.phase != "Running":
            return None
        # The API cuts times to whole seconds; the watch may have learned of it long after.
        return facts.at_us if facts.ready_us is None else min(facts.at_us, facts.ready_us + _SECOND_US)

    def _cover(self, uid: str, known: Known) -> None:
        if known.covered or known.running_us is None:
            return
        if self._shown(known) or self.terms.at_running:
            self.uncovered[known.row].discard(uid)
            known.covered = True
            self._count(known, -1)

    def _shown(self, known: Known) -> bool:
        """Tell whether its node's last report shows a pod."""
        reported_us = self.reported_us.get(known.row, 0)
        return known.running_us is not None and reported_us >= known.running_us + self.terms.settle_us

    def _count(self, known: Known, sign: int) -> None:
        self.reserved.add(known.row, known.kind, sign)
        self.rows["recent"][known.row] += sign * known.cpu

    def _add(self, uid: str, known: Known) -> None:
        self.known[uid] = known
        self._sum(known, 1)
        self.uncovered[known.row].add(uid)
        self._count(known, 1)
        self._cover(uid, known)

    def _drop(self, uid: str, ended_us: int | None = None) -> None:
        """Count a pod no more, which has ended at that time; None: it has not, or nobody knows when."""
        known = self.known.pop(uid, None)
        if known is None:
            return
        self._sum(known, -1)
        if not known.covered:
            self.uncovered[known.row].discard(uid)
            self._count(known, -1)
        # Until the node reports again; what ended before its last report is not in that any more.
        if ended_us is not None and self._shown(known) and ended_us >= self.reported_us[known.row]:
            self.gone.add(known.row, self.gone.kind(known.workload), 1)

    def _sum(self, known: Known, sign: int) -> None:
        add(self.rows, known.row, known.requests, sign)


def add(rows: Rows, row: int, requests: Mapping[str, float], sign: int) -> None:
    """Add a pod's requests to its node's sums, or take them off."""
    for resource, amount in requests.items():
        rows.count(f"requested:{resource}", row, sign * amount, sign)
    for resource, amount in nonzero(requests).items():
        rows[f"nonzero:{resource}"][row] += sign * amount
    rows["pods"][row] += sign


def nonzero(requests: Mapping[str, float]) -> dict[str, float]:
    """Return a pod's CPU and memory with stand-ins where it states none."""
    return {resource: requests.get(resource, least) for resource, least in _STAND_INS.items()}


def columns() -> dict[str, float]:
    """Return the columns that pods need, and what an empty row has in them."""
    return {"pods": 0.0, "recent": 0.0, "nonzero:cpu": 0.0, "nonzero:memory": 0.0}


def expected(requests: Mapping[str, float], limits: Mapping[str, float] | None = None) -> float:
    """Return the cores that a pod is expected to use, as if it were one container."""
    return target_load_packing.expected([Container(requests.get("cpu"), (limits or {}).get("cpu"))])
