"""Whether pods were placed well, worked out from what the API server and the nodes' own reports say. No I/O.

A node had room for a pod if a report that was in force when the pod was decided shows it, less the pods bound to it
before that are alive and that the report did not cover yet. A report covers a pod when its last sample is a second
behind the pod's start: the sample's own block and smoothing take less. Of a node that has fallen silent for half a
minute the last report is in force, and pods that it shows and that have ended since leave room. Times are microseconds.

Rooms are in pods of the class that asks, and so are pods of other classes: as many as they displace of what is scarce.
Beside what was reported stands what is true: what pods really take, of what the policy lets them take.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NEVER = 1 << 62
_COVERED_US = 1_000_000
_SETTLED_US = 2_250_000  # after so long nobody can doubt it: settle_seconds, and what watches take
_IN_FORCE_US = 500_000  # a report is known to the decider within it
_SILENT_US = 30_000_000
_STORY_US = 6_000_000
_STEP_US = 500_000
_SECOND_US = 1_000_000
_LEAST = 1e-9
_SERVING = 10  # pods bound in a second: the scheduler is at work, and others stand in its queue


class Report(NamedTuple):
    """What a node reported.

    Attributes:
        came_us: When it came.
        at_us: Of which time it is.
        room: Pods that fit of a class that it knows nothing of.
        sure: The same for sure.
        classes: Both by class that it knows.
    """

    came_us: int
    at_us: int
    room: float
    sure: float
    classes: Mapping[str, tuple[float, float]] = {}

    def room_of(self, workload: str) -> tuple[float, float]:
        """Return how many pods of a class fit, and how many surely do."""
        return self.classes.get(workload, (self.room, self.sure))


@dataclass(slots=True)
class Pod:
    """The life of one pod; `NEVER` for what has not happened.

    Attributes:
        uid: Its UID.
        created_us: The API server reported it.
        asked_us: The first decision about it was made.
        decided_us: When the last decision about it before its bind was made; `NEVER`: it is unknown.
        decided: Node of that decision.
        bound_us: It was reported as bound.
        node: To this node.
        running_us: It was reported as running.
        ended_us: It was reported as over, or deleted.
        workload: Its class.
    """

    uid: str
    created_us: int
    asked_us: int = NEVER
    decided_us: int = NEVER
    decided: str = ""
    bound_us: int = NEVER
    node: str = ""
    running_us: int = NEVER
    ended_us: int = NEVER
    workload: str = ""

    def gone(self, report: Report, at_us: int) -> bool:
        """Tell whether a report of a node that is silent at a time counts it, though it has ended."""
        silent = at_us - report.at_us > _SILENT_US
        return silent and self.running_us + _COVERED_US <= report.at_us < self.ended_us <= at_us

    def uncovered(self, report: Report, at_us: int, after_us: int = _COVERED_US) -> bool:
        """Tell whether it takes room at a time that a report did not know of; it does so long after the start."""
        return self.bound_us <= at_us < self.ended_us and self.running_us + after_us > report.at_us


@dataclass(slots=True)
class Record:
    """Everything that was seen, in the order in which it was.

    Attributes:
        pods: By UID.
        bound: Pods by node, in the order of binding.
        reports: By node.
        takes: By class, what a pod really takes of each resource, as shares of what the policy lets pods take.
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    bound: defaultdict[str, list[Pod]] = field(default_factory=lambda: defaultdict(list))
    reports: defaultdict[str, list[Report]] = field(default_factory=lambda: defaultdict(list))
    takes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def worth(self, pod: Pod, workload: str) -> float:
        """Return how many pods of a class a pod displaces at most."""
        if pod.workload == workload:
            return 1.0
        pairs = zip(self.takes[pod.workload], self.takes[workload], strict=True)
        return max(taken / own for taken, own in pairs if own > 0)


class Excess(NamedTuple):
    """A pod that was bound where there was no room: which, where, and the best room that there was."""

    uid: str
    node: str
    room: float


def excesses(record: Record) -> Iterator[Excess]:
    """Yield pods that were bound to nodes that had no room for them."""
    for node, pods in record.bound.items():
        reports = record.reports[node]
        for index, pod in enumerate(pods):
            since = min(pod.decided_us, pod.bound_us) - _IN_FORCE_US
            before = [report for report in reports if report.came_us <= since][-1:]
            given = before + [report for report in reports if since < report.came_us <= pod.bound_us]
            room = max((_left(record, report, pods[:index], pod) for report in given), default=0.0)
            if room < 1 - 1e-9:
                yield Excess(pod.uid, node, room)


def story(record: Record, excess: Excess) -> str:
    """Return what is known of the node around a pod that it had no room for; times in seconds since the first pod."""
    start, pod = min(each.created_us for each in record.pods.values()), record.pods[excess.uid]

    def when(us: int) -> str:
        return "-" if us >= NEVER else f"{(us - start) / 1e6:.2f}"

    reports = [each for each in record.reports[excess.node] if abs(each.came_us - pod.bound_us) < _STORY_US]
    messages = [
        f"{each.room_of(pod.workload)[0]:.2f} of {when(each.at_us)} came {when(each.came_us)}" for each in reports
    ]
    lives = [
        "/".join((each.workload, *map(when, (each.decided_us, each.bound_us, each.running_us, each.ended_us))))
        for each in record.bound[excess.node]
        if each.ended_us > pod.decided_us - _STORY_US
    ]
    return (
        f"{excess.node}: decided {when(pod.decided_us)}, bound {when(pod.bound_us)}; room {', '.join(messages)}; "
        f"pods class/decided/bound/running/ended {', '.join(lives)}"
    )


def _left(record: Record, report: Report, before: Sequence[Pod], pod: Pod) -> float:
    """Return the room that a report and the pods before it leave for a pod when it is bound."""
    at_us = pod.bound_us
    taken = [each.gone(report, at_us) - each.uncovered(report, at_us) for each in before]
    worth = (count * record.worth(each, pod.workload) for count, each in zip(taken, before, strict=True) if count)
    return report.room_of(pod.workload)[0] + sum(worth)


def beyond(record: Record) -> Iterator[Excess]:
    """Yield pods with which the pods of their node really took more than the policy lets them; room is a share then."""
    for node, pods in record.bound.items():
        for index, pod in enumerate(pods):
            alive = [each for each in pods[: index + 1] if pod.bound_us < each.ended_us]
            shares = [sum(taken) for taken in zip(*(record.takes[each.workload] for each in alive), strict=True)]
            if max(shares) > 1 + _LEAST:
                yield Excess(pod.uid, node, 1 - max(shares))


def open_room(record: Record, at_us: int, workload: str = "") -> int:
    """Return how many places stood open for a class at a time: surely room, nothing on its way to them."""
    total = 0
    held: defaultdict[str, float] = defaultdict(float)
    for pod in record.pods.values():
        if pod.decided_us <= at_us < pod.bound_us and pod.decided:
            held[pod.decided] += record.worth(pod, workload)
    for node, reports in record.reports.items():
        given = next((report for report in reversed(reports) if report.came_us <= at_us), None)
        if given is not None:
            starting = (pod for pod in record.bound[node] if pod.uncovered(given, at_us, _SETTLED_US))
            taken = sum(record.worth(pod, workload) for pod in starting) + held[node]
            total += max(0, int(given.room_of(workload)[1] - taken + _LEAST))
    return total


def waits(record: Record, until_us: int, serving: float = _SERVING) -> dict[str, float]:
    """Return by UID for how many seconds on end each pod waited at the longest while a place stood open for it.

    A pod waits from when it was first asked about. Before that it stands in the scheduler's queue, which is as fast as
    the scheduler is; `asked_us` minus `created_us` says how long. It stands there again once it was refused, behind
    those that were added meanwhile: after an outage hundreds. Seconds in which it binds pods do not count.

    Args:
        record: What was seen.
        until_us: The end.
        serving: Pods bound in a second for which the scheduler is at work; infinite: all seconds count.
    """
    longest: dict[str, float] = {}
    if not record.pods:
        return longest
    running: dict[str, int] = {}
    start = min(pod.created_us for pod in record.pods.values())
    for at_us in range(start, until_us, _STEP_US):
        bound = sum(at_us - _SECOND_US < pod.bound_us <= at_us for pod in record.pods.values())
        step_us = 0 if bound >= serving else _STEP_US
        waiting = [pod for pod in record.pods.values() if pod.asked_us <= at_us < min(pod.bound_us, pod.ended_us)]
        stands_open = {each for each in {pod.workload for pod in waiting} if open_room(record, at_us, each) > 0}
        still = {pod.uid: running.get(pod.uid, 0) + step_us for pod in waiting if pod.workload in stands_open}
        for uid, waited in still.items():
            longest[uid] = max(longest.get(uid, 0.0), waited / 1e6)
        running = still
    return longest


def most_at_once(record: Record) -> int:
    """Return the largest number of pods that any node had at one time."""
    most = 0
    for pods in record.bound.values():
        steps = sorted([(pod.bound_us, 1) for pod in pods] + [(pod.ended_us, -1) for pod in pods])
        there = 0
        for _, step in steps:
            there += step
            most = max(most, there)
    return most


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of values does not exceed; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
