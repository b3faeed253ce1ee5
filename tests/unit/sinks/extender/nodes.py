"""Three nodes as a replica of the extender sees them."""

from sinks.extender.candidate import Candidates
from sinks.extender.pod import parse
from tests.support.extender.placement import SECOND, START, Replica, asked, pod, report

NAMES = ["a", "b"]


def seen(replica: Replica, names: list[str], **about: str) -> Candidates:
    rows = replica.cluster_state.rows.rows(names)
    return replica.cluster_state.candidates(parse(asked("p", **about)), names, rows, replica.clock.now_us)


def reported_with_two_small_pods(replica: Replica, room: float, rooms: dict[str, tuple[float, float]]) -> None:
    replica.cluster_state.report(report("a", START - SECOND, room, classes=rooms))
    for number in range(2):
        replica.cluster_state.pods.hear(
            pod(f"p{number}", 1, node="a", phase="Running", ready_us=START - 60 * SECOND, workload="small")
        )
    replica.cluster_state.report(report("a", START, room, classes=rooms))
