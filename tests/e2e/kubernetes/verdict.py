"""Whether pods were placed well, worked out from what the API server and the nodes' own reports said. No I/O.

A node had room for a pod if a report that was in force when the pod was decided said so, less the pods bound to it
before that are alive and that the report did not cover yet. A report covers a pod when its last sample is a second
behind the pod's start: the sample's own block and smoothing take less. Of a node that has fallen silent for half a
minute the last report is in force, and pods that it shows and that have ended since leave room. Times are microseconds.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NEVER = 1 << 62
_COVERED_US = 1_000_000
_SETTLED_US = 2_250_000  # after so long nobody can doubt it: settle_seconds, and what watches take
_IN_FORCE_US = 500_000  # a report is known to whoever decides within it
_SILENT_US = 30_000_000
_STORY_US = 6_000_000
_STEP_US = 500_000


class Report(NamedTuple):
    """What a node said: when it came, of which time it is, room for a mean pod, and room that is sure."""

    came_us: int
    at_us: int
    room: float
    sure: float


@dataclass(slots=True)
class Pod:
    """The life of one pod; `NEVER` for what has not happened.

    Attributes:
        uid: Its UID.
        created_us: The API server reported it.
        asked_us: The first decision about it was made.
        decided_us: When the last decision about it before its bind was made; `NEVER`: nobody said.
        decided: Node of that decision.
        bound_us: It was reported as bound.
        node: To this node.
        running_us: It was reported as running.
        ended_us: It was reported as over, or deleted.
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
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    bound: defaultdict[str, list[Pod]] = field(default_factory=lambda: defaultdict(list))
    reports: defaultdict[str, list[Report]] = field(default_factory=lambda: defaultdict(list))


class Excess(NamedTuple):
    """A pod that was bound where there was no room: which, where, and the best room that was said."""

    uid: str
    node: str
    room: float


def excesses(record: Record) -> Iterator[Excess]:
    """Yield pods that were bound to nodes that had no room for them."""
    for node, pods in record.bound.items():
        reports = record.reports[node]
        for place, pod in enumerate(pods):
            since = min(pod.decided_us, pod.bound_us) - _IN_FORCE_US
            before = [report for report in reports if report.came_us <= since][-1:]
            known = before + [report for report in reports if since < report.came_us <= pod.bound_us]
            room = max((_left(report, pods[:place], pod.bound_us) for report in known), default=0.0)
            if room < 1 - 1e-9:
                yield Excess(pod.uid, node, room)


def story(record: Record, excess: Excess) -> str:
    """Return what is known of the node around a pod that it had no room for; times in seconds since the first pod."""
    start, pod = min(each.created_us for each in record.pods.values()), record.pods[excess.uid]

    def when(us: int) -> str:
        return "-" if us >= NEVER else f"{(us - start) / 1e6:.2f}"

    reports = [each for each in record.reports[excess.node] if abs(each.came_us - pod.bound_us) < _STORY_US]
    said = [f"{each.room:.2f} of {when(each.at_us)} came {when(each.came_us)}" for each in reports]
    lives = [
        "/".join(map(when, (each.decided_us, each.bound_us, each.running_us, each.ended_us)))
        for each in record.bound[excess.node]
        if each.ended_us > pod.decided_us - _STORY_US
    ]
    return (
        f"{excess.node}: decided {when(pod.decided_us)}, bound {when(pod.bound_us)}; room {', '.join(said)}; "
        f"pods decided/bound/running/ended {', '.join(lives)}"
    )


def _left(report: Report, pods: Sequence[Pod], at_us: int) -> float:
    """Return the room that a report and these pods leave at a time."""
    return report.room + sum(pod.gone(report, at_us) - pod.uncovered(report, at_us) for pod in pods)


def open_room(record: Record, at_us: int) -> int:
    """Return how many places stood open at a time: surely room, nothing on its way to them."""
    total = 0
    held: defaultdict[str, int] = defaultdict(int)
    for pod in record.pods.values():
        if pod.decided_us <= at_us < pod.bound_us and pod.decided:
            held[pod.decided] += 1
    for node, reports in record.reports.items():
        known = next((report for report in reversed(reports) if report.came_us <= at_us), None)
        if known is not None:
            taken = sum(pod.uncovered(known, at_us, _SETTLED_US) for pod in record.bound[node]) + held[node]
            total += max(0, int(known.sure - taken + 1e-9))
    return total


def idle_waits(record: Record, until_us: int) -> dict[str, float]:
    """Return by UID for how many seconds on end each pod waited at the longest while a place stood open.

    A pod waits from when it was first asked about. Before that it stands in the scheduler's queue, which is as fast as
    the scheduler is; `asked_us` minus `created_us` says how long.
    """
    longest: dict[str, float] = {}
    if not record.pods:
        return longest
    running: dict[str, int] = {}
    start = min(pod.created_us for pod in record.pods.values())
    for at_us in range(start, until_us, _STEP_US):
        waiting = [pod for pod in record.pods.values() if pod.asked_us <= at_us < min(pod.bound_us, pod.ended_us)]
        stands_open = bool(waiting) and open_room(record, at_us) > 0
        still = {pod.uid: running.get(pod.uid, 0) + _STEP_US for pod in waiting} if stands_open else {}
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
