"""TargetLoadPacking gives Trimaran's scores, and expects of a pod what Trimaran expects."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.partition.partition import Partition
from schemas.messages.estimate import Availability
from schemas.settings import load
from sinks.extender.candidate import Candidates, Container
from sinks.extender.state.cluster_state import ClusterState
from sinks.extender.strategy.target_load_packing import TargetLoadPacking, predicted
from tests.support.extender import candidates
from tests.support.extender.placement import node
from tests.support.processors import telemetry

often = settings(deadline=None, max_examples=200, derandomize=True)
EMPTY = candidates.pod(containers=())


@pytest.mark.parametrize(
    ("usage", "containers", "expected"),
    [(0.0, (), 40), (0.5, (), 33), (0.3, (Container(None, 1.0),), 0), (0.3, (Container(None, None),), 0)],
)
def test_trimarans_own_vectors_on_a_node_of_one_core(
    usage: float, containers: tuple[Container, ...], expected: float
) -> None:
    nodes = candidates.nodes(1, cores=1, usage_cpu=usage)
    assert TargetLoadPacking(0.4).score(candidates.pod(containers=containers), nodes).tolist() == [expected]


def test_the_score_rises_to_the_target_leaps_and_falls() -> None:
    usage = [0, 0.1, 0.2, 0.3, 0.4, 0.41, 0.5, 0.7, 0.9, 1, 1.01]
    nodes = candidates.nodes(11, cores=1, usage_cpu=usage)
    expected = [40, 55, 70, 85, 100, 39, 33, 20, 7, 0, 0]
    assert TargetLoadPacking(0.4).score(EMPTY, nodes).tolist() == expected


def test_the_last_bit_of_a_sum_does_not_cross_the_target() -> None:
    """0.1 + 0.2 is more than 0.3 in floating point; at the leap that would cost 70 points."""
    nodes = candidates.nodes(1, cores=1, usage_cpu=0.1, recent_cpu=0.2)
    assert TargetLoadPacking(0.3).score(EMPTY, nodes).tolist() == [100]


def test_pods_that_were_bound_lately_count_with_what_they_are_expected_to_use() -> None:
    """On 4 cores: a tenth in use, 0.8 expected of recent pods, 0.4 of this one: 40 of 100."""
    nodes = candidates.nodes(2, cores=4, usage_cpu=0.1, recent_cpu=[0.8, np.nan])
    pod = candidates.pod(containers=(Container(None, 0.4),))
    assert TargetLoadPacking(0.4).score(pod, nodes).tolist() == [100, 70]


@pytest.mark.parametrize(
    ("containers", "overhead", "cores"),
    [
        ((), 0.0, 0.0),
        ((Container(None, None),), 0.0, 1.0),
        ((Container(0.1, None), Container(0.1, 0.5)), 0.0, 0.65),
        ((Container(0.0, None), Container(1.0, 0.0)), 0.25, 0.25),
        ((Container(0.001, None),), 0.0, 0.002),
    ],
)
def test_a_container_is_expected_to_use_its_limit_or_one_and_a_half_requests_or_a_core(
    containers: tuple[Container, ...], overhead: float, cores: float
) -> None:
    assert predicted(candidates.pod(containers=containers, overhead_cpu=overhead)) == cores


@given(st.floats(0.01, 0.99), st.lists(st.floats(0, 1), min_size=2, max_size=9))
@often
def test_on_either_side_of_the_target_the_score_is_monotone(target: float, usage: list[float]) -> None:
    usage = sorted(usage)
    scores = TargetLoadPacking(target).score(EMPTY, candidates.nodes(len(usage), cores=1, usage_cpu=usage))
    below = np.round(usage, 11) <= round(target, 11)
    assert (np.diff(scores[below]) >= 0).all()
    assert (np.diff(scores[~below]) <= 0).all()


def test_without_telemetry_or_cores_the_score_is_0_and_nothing_is_refused() -> None:
    nodes = candidates.nodes(3, cores=[np.nan, 0, 4], usage_cpu=[0.1, 0.1, np.nan])
    assert TargetLoadPacking(0.4).score(EMPTY, nodes).tolist() == [0, 0, 0]
    assert TargetLoadPacking(0.4).refuse(EMPTY, nodes) == {}


def reported(*shares: float | None) -> Candidates:
    """Return a node as the extender sees it after seconds with these shares of its CPUs in use, and no waiting."""
    every_second = load({"estimate_report_seconds": "1"}, environ={})
    blocks = [telemetry.block("n", second, cpu_util=share, cpu_pressure=0.0) for second, share in enumerate(shares)]
    outputs, _ = Partition(every_second, 0).fold([*map(telemetry.stored, blocks)])
    state, last_us = ClusterState(every_second), 0
    state.describe(node("n", created_us=0))
    for output in outputs:
        if isinstance(output.message, Availability):
            state.report(output.message)
            last_us = output.message.at_us
    return state.candidates(EMPTY, ["n"], state.rows.rows(["n"]), last_us)


@pytest.mark.parametrize(("used", "score"), [(0.2, 70), (0.4, 100), (0.5, 33), (0.8, 13)])
def test_the_target_is_compared_with_the_cpus_in_use_and_not_with_what_a_slowdown_admits(
    used: float, score: float
) -> None:
    """By the saturation, which is half of it here, a node at 0.8 would be at its target."""
    assert TargetLoadPacking(0.4).score(EMPTY, reported(*[used] * 5)).tolist() == [score]


def test_a_node_whose_last_report_lacks_the_cpus_in_use_scores_0() -> None:
    assert TargetLoadPacking(0.4).score(EMPTY, reported(0.4, 0.4, None)).tolist() == [0]
