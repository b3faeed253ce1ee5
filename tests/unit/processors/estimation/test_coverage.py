"""Bounds are bounds through the whole chain: messages in, `lower` out, held against a truth that was put in.

Nodes of 64 CPUs run pods that take 1 to 20 times what the reference pod does, with noise that is white or stays for ten
seconds, and pods come all the while. Costs differ from node to node, so each is a new case.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from processors.estimation import slowdown
from processors.partition.partition import Partition
from schemas.messages.estimate import Availability
from schemas.settings import load
from tests.support.processors.telemetry import METRICS, block, stored, usage

CPUS, MEMORY = 64, 256 << 30
NODES = 16
REFERENCE = 0.1
REST = 2.0
AFTER = (10, 30, 60, 110)
LONG = (*AFTER, 300, 600)


class Reported(NamedTuple):
    """What was published of each node so many seconds after the first pod, and the truth."""

    after: int
    truth: float
    pods: int
    row: Availability


def noise(random: np.random.Generator, correlation: float, before: np.ndarray) -> np.ndarray:
    fresh = random.normal(0, 1, before.shape)
    return np.asarray(correlation * before + np.sqrt(1 - correlation**2) * fresh)


def run(
    times: float, correlation: float, *, measured: bool, seed: int = 1, marks: tuple[int, ...] = AFTER
) -> Iterator[Reported]:
    """Yield what a partition says of nodes on which a pod takes so many times the reference pod's CPU."""
    random = np.random.default_rng(seed)
    partition = Partition(load({"model_global_weight": "0", "estimate_report_seconds": "0.5"}, environ={}), 0)
    cost = REFERENCE * times * random.lognormal(0, 0.2, NODES)
    shaken, beside = np.zeros((NODES, 40)), np.zeros(NODES)
    newest: dict[str, Availability] = {}
    for second in range(max(marks) + 12):
        pods = 0 if second < 10 else min(1 + (second - 10) // 15, 8)
        shaken, beside = noise(random, correlation, shaken), noise(random, correlation, beside)
        messages = []
        for node in range(NODES):
            used = np.maximum(cost[node] * (1 + 0.3 * shaken[node, :pods]), 0.0)
            rest = max(REST + 0.3 * beside[node], 0.0)
            values = np.zeros((10, len(METRICS)))
            values[:, METRICS.index("cpu_util")] = min((rest + used.sum()) / CPUS, 1.0)
            values[:, METRICS.index("memory_util")] = 0.05
            values[:, METRICS.index("pods")] = pods
            made = block(f"n{node}", second).model_copy(
                update={"values": np.round(values, 4).ravel().tolist(), "cpus": CPUS, "memory_bytes": MEMORY}
            )
            messages.append(stored(made))
            if measured:
                listed = [
                    {"pod": f"p{index}", "workloads": "a", "cpu_cores": float(each), "memory_bytes": 1e8}
                    for index, each in enumerate(used)
                ]
                messages.append(stored(usage(f"n{node}", second + 1, listed, system_cpu_cores=rest)))
        for output in partition.fold(messages)[0]:
            if isinstance(output.message, Availability):
                newest[output.message.node] = output.message
        if second - 10 in marks:
            limit = slowdown.share(2.0, CPUS) * CPUS
            for node in range(NODES):
                truth = min((limit - REST) / cost[node], 110) - pods
                yield Reported(second - 10, truth, pods, newest[f"n{node}"])


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("times", [1.0, 4.0, 10.0, 20.0])
def test_the_lower_bound_holds_nine_times_in_ten_where_pods_are_measured(times: float, correlation: float) -> None:
    messages = list(run(times, correlation, measured=True))
    assert np.mean([each.row.lower <= each.truth for each in messages]) >= 0.9
    for after in AFTER:
        rows = [each for each in messages if each.after == after]
        off = [abs(each.row.available - each.truth) / max(1.0, 0.15 * (each.truth + each.pods)) for each in rows]
        # Noise that stays for ten seconds is not averaged by then.
        least = 0.5 if after == AFTER[0] or (correlation and after < 60) else 0.7
        assert np.mean(np.array(off) <= 1) >= least, f"{after} s"
        sure = np.mean([each.row.lower / max(each.truth, 1.0) for each in rows if each.truth > 3])
        assert sure > 0.3, "a bound that promises nothing is none"


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("correlation", [0.0, 0.9])
@pytest.mark.parametrize("times", [1.0, 4.0, 10.0, 20.0])
def test_the_lower_bound_holds_where_only_the_number_of_pods_is_known(times: float, correlation: float) -> None:
    messages = [each for each in run(times, correlation, measured=False) if each.after >= 60]
    assert np.mean([each.row.lower <= each.truth for each in messages]) >= 0.9
    ratio = np.median([each.row.available / max(each.truth, 1.0) for each in messages])
    assert 0.6 < ratio < 1.5


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize(("times", "correlation"), [(1.0, 0.0), (4.0, 0.9), (10.0, 0.0), (20.0, 0.9)])
def test_both_bounds_hold_from_ten_seconds_to_ten_minutes_after_a_start(times: float, correlation: float) -> None:
    messages = list(run(times, correlation, measured=True, seed=2, marks=LONG))
    for after in LONG:
        rows = [each for each in messages if each.after == after]
        assert np.mean([each.row.lower <= each.truth for each in rows]) >= 0.8, f"lower, {after} s"
        assert np.mean([each.row.upper >= each.truth for each in rows]) >= 0.8, f"upper, {after} s"
    assert np.mean([each.row.lower <= each.truth for each in messages]) >= 0.9
    assert np.mean([each.row.upper >= each.truth for each in messages]) >= 0.9
