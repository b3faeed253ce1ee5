"""Pods that the API reports, and which of them telemetry does not show yet.

A bound pod takes room at once, but the node's reports show it only once it runs and its start has passed the smoothing.
Until a report covers the start, the pod counts as a reservation, and again from a change of its requests (a resize in
place) or of its class until a report covers that. The transition from reservation to measurement
therefore has no gap, whichever scheduler bound the pod, and facts and reports suffice to rebuild the state after a
restart. (The dissertation releases the reservation when the pod leaves Pending, which admits other pods for the seconds
in between.)
"""

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kube.pod import belongs_to_node
from schemas.messages.facts import UNBOUND, PodFacts
from sinks.extender.state import pod_sums
from sinks.extender.state.reserved import Reserved
from sinks.extender.state.rows import Rows

_SECOND_US = 1_000_000
# A pod that has not run by then waits for something: an image, a volume, a ConfigMap that does not exist.
_STUCK_US = 60 * _SECOND_US
# After this time a node has evidence of a pod, also where its class is not among those that reports name.
_SEEN_US = 60 * _SECOND_US
# After a new list of the watch has brought the last pod that was there before, the others are gone.
_LISTED_US = 60 * _SECOND_US


class Terms(NamedTuple):
    """Rules for when a report covers a pod.

    Attributes:
        settle_us: Time from a pod's start until reports show it.
        at_running: A pod is covered when it leaves Pending, regardless of reports.
    """

    settle_us: int
    at_running: bool


@dataclass(slots=True)
class BoundPod:
    """One pod that is bound and has not ended.

    Attributes:
        row: Row of its node.
        workload: Its class.
        kind: Kind as which it is reserved.
        version: Version of its newest facts.
        requests: Its requests.
        cpu: Predicted cores while telemetry does not show it.
        running_us: Time when it was first seen running as it is, or when its requests or its class changed since;
            None: it is not.
        covered: A report shows it.
        bound_us: Time of the facts that reported the bind.
        moves: It would need another node if its own were removed.
        stuck: It has not run long after its bind.
        seen: Telemetry has shown it for some time.
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
    moves: bool
    stuck: bool = False
    seen: bool = False

    @property
    def takes(self) -> tuple[str, Mapping[str, float]]:
        """What decides how much room it takes: its class and its requests."""
        return self.workload, self.requests


@dataclass(slots=True)
class Pods:
    """All pods, and their sums by node in columns of `rows`.

    Columns: `requested:<resource>`, `nonzero:cpu`, `nonzero:memory`, `pods`, `recent`, `starting`, the pods on their
    way without those that are stuck, `placed`, those that do not belong to their node, and `stated:cpu` and
    `stated:memory`, as `Reserved` says.

    Attributes:
        rows: Names and rows of nodes.
        reserved: Pods that telemetry does not show yet.
        gone: Pods that a node's last report shows and that have ended since.
        terms: Rules for when a report shows a pod.
        pending: Pods that the API has and that are not bound; the values are of no use.
        heard_us: Time of the newest facts. The watch has reported what the API had until then; 0: no watch has run.
    """

    rows: Rows
    reserved: Reserved
    gone: Reserved
    terms: Terms
    bound: dict[str, BoundPod] = field(default_factory=dict)
    uncovered: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    reported_us: dict[int, int] = field(default_factory=dict)
    over: dict[str, int] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    heard_us: int = 0
    _waiting: deque[tuple[int, str]] = field(default_factory=deque)
    _showing: list[tuple[int, str]] = field(default_factory=list)  # when a covered pod counts as seen
    _seen: Counter[str] = field(default_factory=Counter)  # such pods by class
    _doubted: set[str] = field(default_factory=set)
    _left: int = 0  # doubted at the last look
    _since_us: int = 0  # the last one was heard of again; 0: none was

    def is_new(self, facts: PodFacts) -> bool:
        """Tell whether facts are the first that say that a pod is bound and has not ended."""
        ended = facts.deleted or facts.phase in ("Succeeded", "Failed")
        return not ended and facts.pod not in self.bound and facts.pod not in self.over

    def hear(self, facts: PodFacts) -> None:
        """Store facts; older facts than the stored ones are ignored."""
        uid, before = facts.pod, self.bound.get(facts.pod)
        self._doubted.discard(uid)
        if (before is not None and facts.version <= before.version) or self.over.get(uid, -1) >= facts.version:
            return
        ended = facts.deleted or facts.phase in ("Succeeded", "Failed")
        self.heard_us = max(self.heard_us, facts.at_us)
        self.pending.pop(uid, None)
        if facts.node == UNBOUND and not ended:
            self.pending[uid] = None
        if ended:
            self.over[uid] = facts.version
        else:
            self.over.pop(uid, None)  # it is there again: what is held for it counts
        if ended or facts.node == UNBOUND:
            self._drop(uid, facts.at_us if ended else None)
            return
        row = self.rows.row(facts.node)
        if before is not None and before.row == row and before.takes == (facts.workload, facts.requests):
            before.version = facts.version
            before.running_us = before.running_us or self._running(facts)
            if before.running_us is not None:
                self._stick(before, stuck=False)
            self._cover(uid, before)
            return
        self._drop(uid)
        self._replace(facts, row, before)

    def _replace(self, facts: PodFacts, row: int, before: BoundPod | None) -> None:
        """Add a pod that was bound, or that takes something else than before: no report shows that yet."""
        running_us = self._running(facts)
        is_changed = before is not None and before.row == row
        bound = BoundPod(
            row=row,
            workload=facts.workload,
            kind=self.reserved.kind(facts.workload, row),
            version=facts.version,
            requests=facts.requests,
            cpu=pod_sums.expected(facts.requests, facts.limits),
            running_us=facts.at_us if is_changed and running_us is not None else running_us,
            covered=False,
            bound_us=facts.at_us,
            moves=not belongs_to_node(facts),
        )
        self._add(facts.pod, bound)
        if before is not None and before.seen and before.workload == bound.workload:
            bound.seen = True
            self._seen[bound.workload] += 1

    def forget(self, uid: str, at_us: int | None) -> None:
        """Remove a pod that the API does not have any more, since `at_us`; None: unknown."""
        bound = self.bound.get(uid)
        self._end(uid, bound.version if bound else 0, at_us)

    def report(self, row: int, at_us: int) -> None:
        """Store the time of a node's report, and end the reservations of pods that it shows."""
        self.reported_us[row] = at_us
        self.gone.clear(row)
        for uid in list(self.uncovered.get(row, ())):
            self._cover(uid, self.bound[uid])

    def renewed(self, listed_us: int = 0) -> None:
        """Doubt all pods, since their bucket was created again: nothing tells of those that ended meanwhile.

        Args:
            listed_us: When the bucket, which is complete, began to be read again; 0: the watch is to list all pods.
        """
        self._doubted = {*self.bound, *self.pending}
        self._left, self._since_us = len(self._doubted), listed_us

    def age(self, now_us: int) -> None:
        """Mark the pods that have not run long after they were bound; their room stays reserved.

        Pods that a new list of the watch does not have are forgotten.
        """
        if len(self._doubted) < self._left:
            self._left, self._since_us = len(self._doubted), now_us
        elif self._since_us and now_us - self._since_us > _LISTED_US:
            for uid in list(self._doubted):
                # The watch may be slow: a pod that comes later as it was before is believed.
                bound = self.bound.get(uid)
                self._end(uid, bound.version - 1 if bound else -1, None)
        self._see(now_us)
        while self._waiting and self._waiting[0][0] <= now_us - _STUCK_US:
            bound_us, uid = self._waiting.popleft()
            bound = self.bound.get(uid)
            if bound is not None and bound.bound_us == bound_us and bound.running_us is None:
                self._stick(bound, stuck=True)

    def is_seen(self, workload: str, now_us: int) -> bool:
        """Tell whether telemetry has shown a pod of a class for some time, on whichever node."""
        self._see(now_us)
        return workload in self._seen

    def trim(self, most: int) -> None:
        """Forget the oldest ended pods beyond `most`."""
        while len(self.over) > most:
            del self.over[next(iter(self.over))]

    def _end(self, uid: str, version: int, at_us: int | None) -> None:
        """Remove a pod, since `at_us`; None: unknown. Facts up to the version are ignored from now on."""
        self._doubted.discard(uid)
        self.pending.pop(uid, None)
        self.over[uid] = max(self.over.get(uid, -1), version)
        self._drop(uid, at_us)

    def _see(self, now_us: int) -> None:
        while self._showing and self._showing[0][0] <= now_us:
            bound = self.bound.get(heapq.heappop(self._showing)[1])
            if bound is not None and bound.covered and not bound.seen:
                bound.seen = True
                self._seen[bound.workload] += 1

    def _running(self, facts: PodFacts) -> int | None:
        if facts.phase != "Running":
            return None
        # The API truncates times to seconds; the watch may report much later.
        return facts.at_us if facts.ready_us is None else min(facts.at_us, facts.ready_us + _SECOND_US)

    def _cover(self, uid: str, bound: BoundPod) -> None:
        if bound.covered or bound.running_us is None:
            return
        if self._shown(bound) or self.terms.at_running:
            self.uncovered[bound.row].discard(uid)
            bound.covered = True
            heapq.heappush(self._showing, (bound.running_us + _SEEN_US, uid))
            self._count(bound, -1)

    def _shown(self, bound: BoundPod) -> bool:
        """Tell whether its node's last report shows a pod."""
        reported_us = self.reported_us.get(bound.row, 0)
        return bound.running_us is not None and reported_us >= bound.running_us + self.terms.settle_us

    def _stick(self, bound: BoundPod, *, stuck: bool) -> None:
        self.rows["starting"][bound.row] += int(bound.stuck) - int(stuck)
        bound.stuck = stuck

    def _count(self, bound: BoundPod, sign: int) -> None:
        self.reserved.add(bound.row, bound.kind, sign, bound.requests)
        self.rows["recent"][bound.row] += sign * bound.cpu
        self.rows["starting"][bound.row] += sign
        self.rows["placed"][bound.row] += sign * int(bound.moves)

    def _add(self, uid: str, bound: BoundPod) -> None:
        self.bound[uid] = bound
        self._sum(bound, 1)
        self.uncovered[bound.row].add(uid)
        self._waiting.append((bound.bound_us, uid))
        self._count(bound, 1)
        self._cover(uid, bound)

    def _drop(self, uid: str, ended_us: int | None = None) -> None:
        """Remove a pod that ended at that time; None: it has not ended, or the time is unknown."""
        bound = self.bound.pop(uid, None)
        if bound is None:
            return
        self._sum(bound, -1)
        self._stick(bound, stuck=False)
        if bound.seen:
            self._seen[bound.workload] -= 1
            if not self._seen[bound.workload]:
                del self._seen[bound.workload]
        if not bound.covered:
            self.uncovered[bound.row].discard(uid)
            self._count(bound, -1)
        # It counts until the node reports again; a pod that ended before the last report is not part of that report.
        if ended_us is not None and self._shown(bound) and ended_us >= self.reported_us[bound.row]:
            self.gone.add(bound.row, self.gone.kind(bound.workload, bound.row), 1)

    def _sum(self, bound: BoundPod, sign: int) -> None:
        pod_sums.add(self.rows, bound.row, bound.requests, sign)
