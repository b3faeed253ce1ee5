"""A node that lies about its pods moves the forecasts of their workloads by a bounded share, and of no others."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processors.forecast import share
from processors.forecast.sums import Greatest, Sum, Sums, Workload, add
from processors.forecast.workloads import Forecasts, Params
from processors.partition.admission import Admission
from schemas.messages.facts import NodeFacts
from schemas.settings import load
from tests.support.processors.mix import pod
from tests.support.processors.telemetry import START, facts, usage

FIRST = START // 15 * 15
WEB, API = Workload("shop", "Deployment", "web"), Workload("shop", "Deployment", "api")
CORES, REQUESTED = 0.5, 0.6
HUGE = 4096.0  # what is believed of the largest node


def summed(claims: Mapping[str, Mapping[str, float]], running: Mapping[str, Sequence[str]]) -> dict[Workload, Sum]:
    """Return the sums of a period.

    Args:
        claims: Cores that a node says each pod uses, by node and UID.
        running: Pods that run on each node, as Kubernetes knows them; the name of the workload is before the dash.
    """
    sums = Sums(seconds=15)
    sums.end(FIRST)
    for node, uids in running.items():
        for uid in uids:
            requests = {"cpu": REQUESTED, "memory": 1e9}
            sums.learn(
                facts(node, uid, "x", owner_kind="Deployment", owner=uid.split("-")[0], requests=requests, ready_us=1)
            )
    for node, used in claims.items():
        sums.take(usage(node, 1, [pod(uid, None, cores, 1e8) for uid, cores in used.items()]))
    ended = sums.end(FIRST + 15)
    assert ended is not None
    return ended[1]


RUNNING = {f"n{number}": [f"web-{number}", f"api-{number}"] for number in range(10)} | {"liar": ["web-liar"]}
HONEST = {node: dict.fromkeys(uids, CORES) for node, uids in RUNNING.items()}


def test_a_node_moves_no_workload_that_does_not_run_there() -> None:
    lie = dict.fromkeys(["web-liar", *(f"{name}-{number}" for name in ("api", "web") for number in range(10))], HUGE)
    honest, bounded = (share.bounded(summed(HONEST | {"liar": claim}, RUNNING)) for claim in (HONEST["liar"], lie))
    assert bounded[API] == honest[API]
    assert bounded[API].used[0] == 10 * CORES
    assert bounded[WEB].used[0] == pytest.approx(10 * CORES + share.MOST * CORES)


@given(st.floats(0, HUGE), st.lists(st.floats(0.1, 0.59), min_size=2, max_size=12), st.integers(1, 5))
def test_whatever_a_node_says_its_pods_count_for_three_times_those_of_others_or_what_they_request(
    claim: float, honest: list[float], pods: int
) -> None:
    running = {f"n{number}": [f"web-{number}"] for number in range(len(honest))}
    claims = {node: {uids[0]: cores} for (node, uids), cores in zip(running.items(), honest, strict=True)}
    mine = [f"web-l{number}" for number in range(pods)]
    total = summed(claims | {"liar": dict.fromkeys(mine, claim)}, running | {"liar": mine})[WEB]
    used = share.bounded({WEB: total})[WEB].used[0]
    most = pods * max(share.MOST * sum(honest) / len(honest), REQUESTED)
    assert sum(honest) * (1 - 1e-9) <= used <= (sum(honest) + most) * (1 + 1e-9)
    if claim <= 0.59:
        assert used == total.used[0]


def test_numbers_stay_what_they_were_while_no_node_is_far_off_and_a_leader_keeps_what_it_requests() -> None:
    sums = summed(HONEST, RUNNING)
    assert share.bounded(sums) == sums
    idle = {node: dict.fromkeys(uids, 0.0) for node, uids in RUNNING.items()}
    leader = summed(idle | {"n0": {"web-0": CORES, "api-0": CORES}}, RUNNING)
    assert share.bounded(leader) == leader


def test_of_two_nodes_neither_is_cut_and_of_what_is_not_known_nothing() -> None:
    two = {node: RUNNING[node] for node in ("n0", "n1")}
    sums = summed({"n0": {"web-0": 60.0}, "n1": {"web-1": CORES}}, two)
    own = sums[WEB]
    ratio = own.ready / own.measured  # the other pods of these nodes are silent
    assert share.bounded(sums) == {WEB: own._replace(used=(own.used[0] * ratio, own.used[1] * ratio))}
    older = {WEB: Sum(10, 10, (69.0, 1e9), (6.0, 1e10))}
    assert share.bounded(older) == older


def test_a_lie_in_one_partition_is_held_against_the_nodes_of_all() -> None:
    running = [{node: RUNNING[node] for node in list(RUNNING)[part::3]} for part in range(3)]
    parts = [
        summed({node: HONEST[node] if node != "liar" else {"web-liar": 64.0} for node in nodes}, nodes)
        for nodes in running
    ]
    assert add(parts)[WEB].greatest[0] == Greatest(64.0, 1)
    forecasts = Forecasts(3, Params())
    made = [
        forecast
        for period in range(40)
        for number, sums in enumerate(parts)
        for forecast in forecasts.fold(number, (FIRST + 15 * period) * 1_000_000, sums)
    ]
    last = {each.workload: each for each in made}[WEB]
    assert last.now.used[0] == pytest.approx(10 * CORES + share.MOST * CORES)
    assert last.desired <= last.now.pods + 4


def test_a_node_that_never_reported_its_size_uses_no_more_than_a_node_can_have() -> None:
    admission = Admission(load({}, environ={}).estimate, 0)
    block = usage("n", 1, [pod("u", None, 1e18, 1e18)])
    possible = admission.possible(block)
    assert possible.cpu_cores == pytest.approx([HUGE])
    assert possible.memory_bytes == pytest.approx([float(64 << 40)])
    size = NodeFacts(
        node="n", uid="u", version=1, at_us=1, created_us=1, ready=True, unschedulable=False, allocatable={},
        capacity={"cpu": 4.0, "memory": 8e9}, labels={}, annotations={}, taints=[],
    )  # fmt: skip
    admission.admit(size, 0)
    possible = admission.possible(block)
    assert possible.cpu_cores == pytest.approx([4.0])
    assert possible.memory_bytes == pytest.approx([8e9])
