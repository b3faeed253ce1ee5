"""Services of one replica each: only their node knows them, and what comes next is still of their size."""

import numpy as np
import pytest

from processors.workload.cluster import voting
from schemas.messages.estimate import Availability, ClassSum, Model
from schemas.settings import load
from tests.unit.processors.workload.nodes.small_node import GIB, Cluster, Stream, by_cores, pod, seconds

FEATURES = list(load({}, environ={}).model.features)


def clustered(nodes: int, until: int, shared: int, services: int) -> dict[str, Availability]:
    """Fold nodes that are each given a service of 1.5 GiB of its own every ten seconds, but for the last node.

    Args:
        nodes: Number of nodes.
        until: Number of seconds.
        shared: How many of them run a small pod of a class in common.
        services: How many services each is given at most.
    """
    cluster, last = Cluster(), dict[str, Availability]()
    for second in range(until):
        batch: Stream = []
        for number in range(nodes):
            come = min(services, second // 10) if number < nodes - 1 else 0
            own = [pod(each, f"shop/app{number}-{each}", 0.1, 1.5 * GIB) for each in range(come)]
            common = [pod(99, "kube-system/coredns", 0.02, 0.1 * GIB)] if number < shared else []
            ages = [second - 10 * (each + 1) for each in range(come)] + [600] * len(common)
            batch += next(seconds(f"n{number}", second, second + 1, own + common, ages=ages))
        last |= cluster.fold(batch)
    return last


@pytest.mark.parametrize("shared", [0, 2])
def test_an_empty_node_expects_pods_of_the_size_that_others_start(shared: int) -> None:
    """4.9 pods of 1.5 GiB fit on 8 GiB, beside half a GiB of the system's."""
    empty = clustered(6, 70, shared, 4)["n5"]
    assert (empty.mix or {}).get("kube-system/coredns", 0.0) < 0.2
    assert empty.lower in {3, 4}
    assert empty.available == pytest.approx(4.93, rel=0.15)


def test_votes_for_classes_of_single_nodes_are_for_the_mean_pod() -> None:
    def mix(apps: int, voted: float) -> dict[str, float]:
        own = {f"app{number}": ClassSum(pods=1, cpu=1, memory=1, nodes=1, votes=0.9) for number in range(apps)}
        shared = {"dns": ClassSum(pods=2, cpu=1, memory=1, nodes=2, votes=0.5)}
        return voting.mix_of(
            Model(
                scope="global", at_us=0, features=FEATURES, moment=[0.0] * 15, cost=[0.0] * 5, pods=0, nodes=6,
                voting=5, voted=voted, classes=own | shared,
            )
        )  # fmt: skip

    others = 5 / 4 * (4.5 - 1)  # as four of the five say it
    assert mix(5, 5.0) == {"dns": pytest.approx(0.5 / (0.5 + others))}
    assert mix(2, 5.0) == mix(5, 5.0), "classes that are not listed count, too"
    assert mix(1, 1.4) == {"dns": 1.0}, "one node alone moves nothing"


@pytest.mark.parametrize(("nodes", "own", "shared"), [(10, 1, 4), (3, 2, 1), (6, 1, 2)])
def test_what_others_run_beside_small_pods_of_common_classes_is_expected_and_stays(
    nodes: int, own: int, shared: int
) -> None:
    """Votes for classes of single nodes add up to two, and a rounding error less: 28, and the next second 83."""
    cluster, rows = Cluster(), list[Availability]()
    for second in range(50):
        batch: Stream = []
        for node in range(nodes):
            services = [pod(each, f"shop/app{node}-{each}", 0.8) for each in range(own)]
            common = [pod(50 + each, f"kube-system/common{each}", 0.02) for each in range(shared)]
            batch += next(seconds(f"n{node}", second, second + 1, services + common))
        batch += next(seconds("empty", second, second + 1, []))
        rows += [row for name, row in cluster.fold(batch).items() if name == "empty" and second >= 30]
    mean = (own * 0.8 + shared * 0.02) / (own + shared)
    holds = float((1 - by_cores(np.array([0.1]))[0]) / by_cores(np.array([mean]))[0])
    assert max(row.available for row in rows) <= min(row.available for row in rows) + 1
    assert max(row.lower for row in rows) <= holds


def test_two_nodes_alone_do_not_say_what_pods_of_other_classes_take() -> None:
    """Three at least vote for classes that the mix lacks; a trace of a vote is none."""

    def weight(*votes: float) -> float:
        mixed = np.array([[True, False]] * len(votes))
        others = voting.others(np.array([[1 - vote, vote] for vote in votes]), mixed)
        model = Model(
            scope="global", at_us=0, features=FEATURES, moment=[0.0] * 15, cost=[0.0] * 5, pods=0, nodes=10,
            voting=10, others=others,
        )  # fmt: skip
        return voting.weight_of_mixed(model)

    assert weight(1.0, 1.0) == 1
    assert weight(1.0, 1.0, 0.01, 0.01) > 0.9
    assert weight(0.3, 0.3, 0.3) == weight(*[0.1] * 10) == 0
    assert 0 < weight(1.0, 1.0, 0.1) < 1
