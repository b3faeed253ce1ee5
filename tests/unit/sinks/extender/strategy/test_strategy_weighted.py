"""The weighted strategy: what it refuses, and each factor by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from schemas.sections.placement import Extender
from schemas.sections.ranking import FACTORS, pairs
from sinks.extender.candidate import Array
from sinks.extender.strategy import factor
from sinks.extender.strategy.weighted import MINIMUM, Weighted
from tests.support.extender import candidates, literal_score
from tests.support.extender.candidates import GIB

NAN = np.nan
often = settings(deadline=None, max_examples=200, derandomize=True)
prices = arrays.arrays(np.float64, 5, elements=st.one_of(st.just(NAN), st.floats(0, 100)))
EVEN = dict.fromkeys(FACTORS, 1.0)


def only(name: str) -> Weighted:
    return Weighted({name: 1.0}, 1000)


def test_the_factors_of_the_settings_are_those_of_the_strategy() -> None:
    assert tuple(pairs(Extender().factors)) == FACTORS
    assert tuple(Weighted(EVEN, 1000).factors(candidates.pod(), candidates.nodes(1))) == FACTORS


def test_requests_and_limits_and_storage_have_to_fit_into_what_is_free() -> None:
    pod = candidates.pod(
        {"cpu": 1.0, "memory": GIB, "ephemeral-storage": 2 * GIB},
        limits={"cpu": 2.0, "memory": GIB, "ephemeral-storage": 3 * GIB},
    )
    nodes = candidates.nodes(
        5,
        allocatable={
            "cpu": [4, 4, 4, 4, NAN],
            "memory": [GIB, GIB, GIB, GIB / 2, NAN],
            "ephemeral-storage": [3 * GIB, 3 * GIB, 2 * GIB, 3 * GIB, NAN],
        },
        requested={"cpu": [2, 2.5, 0, 0, 0]},
    )
    refused = {reason: mask.tolist() for reason, mask in Weighted(EVEN, 1000).refuse(pod, nodes).items()}
    assert refused == {
        "less memory is left than the pod requests": [False, False, False, True, False],
        "less cpu is left than the pod's limit": [False, True, False, False, False],
        "less memory is left than the pod's limit": [False, False, False, True, False],
        "less ephemeral-storage is left than the pod's limit": [False, False, True, False, False],
    }
    assert Weighted(EVEN, 1000).needs(pod, nodes, 1) == [
        "cpu: the pod has a limit of 2 cores, 1.5 cores of 4 cores are left"
    ]


def test_a_type_that_the_pod_asks_for_has_to_be_the_nodes() -> None:
    """The pod's annotation goes before its label, the node's label before its annotation; case does not matter."""
    pod = candidates.pod(
        annotations={"spazio.disk-type": "ssd"}, labels={"spazio.disk-type": "hdd", "spazio.network-type": "Fast"}
    )
    nodes = candidates.nodes(
        5,
        labels=[{"spazio.disk-type": "SSD"}, {"spazio.disk-type": "hdd"}, {"disktype": "ssd"}, {}, {}],
        annotations=[{"spazio.network-type": "fast"}] * 4 + [{"spazio.disk-type": "ssd"}],
    )
    refused = {reason: mask.tolist() for reason, mask in Weighted(EVEN, 1000).refuse(pod, nodes).items()}
    assert refused == {
        "the node's disk type is not the one that the pod asks for": [False, True, False, True, False],
        "the node's network type is not the one that the pod asks for": [False, False, False, False, True],
    }
    sentences = [Weighted(EVEN, 1000).needs(pod, nodes, index) for index in (1, 3)]
    assert sentences == [
        ["disk type: the pod asks for ssd, the node has hdd"],
        ["disk type: the pod asks for ssd, the node has none that it names"],
    ]
    assert Weighted(EVEN, 1000).factors(pod, nodes)["disk"].tolist() == [1, 0, 1, 0, 1]


def test_fit_prefers_the_node_that_the_pod_fills() -> None:
    """Left beside the pod: (8-6-1)/8 and (16-4-4)/16, a mean of 5/16; and (16-1)/16, (16-4)/16, a mean of 27/32."""
    pod = candidates.pod({"cpu": 1.0, "memory": 4.0})
    nodes = candidates.nodes(
        3, allocatable={"cpu": [8, 16, NAN], "memory": 16}, requested={"cpu": [6, 0, 0], "memory": [4, 0, 0]}
    )
    assert only("fit").score(pod, nodes).tolist() == [100 * 11 / 16, 100 * 5 / 32, 0]


def test_the_literal_fit_prefers_the_emptier_node() -> None:
    left, total = np.array([[1.0, 15.0], [8.0, 12.0]]), np.array([[8.0, 16.0], [16.0, 16.0]])
    assert literal_score.fit(left, total).tolist() == [0.625, 1.6875]
    assert factor.fit(left, total).tolist() == [0.6875, 0.15625]


def test_the_cheaper_node_has_the_higher_price_factor() -> None:
    """Costs: 2, √(4·1) = 2, 6 (only the median is known), unknown; the typical one is 2."""
    result = factor.price(np.array([2.0, 4.0, NAN, NAN]), np.array([NAN, 1.0, 6.0, NAN]))
    np.testing.assert_allclose(result, [0.5, 0.5, 0.25, 0.5])


@pytest.mark.parametrize(
    ("now", "expected"),
    [([NAN, NAN], [0.5, 0.5]), ([0.0, 0.0], [0.5, 0.5]), ([0.0, 0.0, 3.0], [1, 1, 0.25]), ([3.0, 3.0], [0.5, 0.5])],
)
def test_prices_that_are_unknown_or_alike_say_nothing_and_free_is_best(now: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(factor.price(np.array(now), np.array(now)), expected)


@pytest.mark.slow
@given(prices, prices)
@often
def test_a_node_that_is_dearer_in_both_prices_never_scores_higher(now: Array, median: Array) -> None:
    scores = factor.price(now, median)
    assert ((scores >= 0) & (scores <= 1)).all()
    for each in range(5):
        for other in range(5):
            if now[each] <= now[other] and median[each] <= median[other]:
                assert scores[each] >= scores[other]


def test_the_literal_price_is_0_at_the_median_and_rewards_what_is_dearer() -> None:
    assert literal_score.price(np.array([1.0, 2.0, 0.5]), np.ones(3)).tolist() == [0, 0.5, -1]
    assert factor.price(np.array([1.0, 2.0, 0.5]), np.ones(3)).argmax() == 2


def test_stability_is_the_share_of_spot_nodes_that_a_day_leaves() -> None:
    """One in 48 hours: exp(-1/2) a day; at twice the median price exp(-1); durable capacity stays."""
    rate = np.array([1 / 48, 1 / 48, 1 / 48, NAN, 0.0])
    now, spot = np.array([1.0, 2.0, 5.0, 1.0, 1.0]), np.array([True, True, False, True, True])
    result = factor.stability(rate, now, np.ones(5), spot)
    np.testing.assert_allclose(result, [math.exp(-0.5), math.exp(-1), 1, 0.5, 1])
    np.testing.assert_allclose(literal_score.stability(rate, now, np.ones(5))[:2], [1 / 48, 1 / 24])


@pytest.mark.slow
@given(prices, prices, prices)
@often
def test_stability_falls_with_the_rate_of_interruptions(rate: Array, now: Array, median: Array) -> None:
    spot = np.ones(5, dtype=np.bool_)
    calm, wild = (factor.stability(each, now, median, spot) for each in (rate, 2 * rate))
    assert ((calm >= 0) & (calm <= 1)).all()
    assert (calm >= wild).all()
    assert (calm[np.isnan(rate)] == 0.5).all()


def test_critical_pods_want_durable_nodes_and_others_leave_them_free() -> None:
    nodes = candidates.nodes(2, allocatable={"cpu": 1, "memory": 1}, spot=[True, False])
    assert only("priority").score(candidates.pod(priority=1000), nodes).tolist() == [0, 100]
    assert only("priority").score(candidates.pod(priority=999), nodes).tolist() == [100, 50]
    assert [literal_score.priority(value, 1000) for value in (999, 1000)] == [0, 1]


def test_the_total_is_the_weighted_mean_of_the_factors() -> None:
    """Fit 1 (nothing is left), price and stability 0.5, priority 1: (2·1 + 0.5 + 0.5 + 4·1) / 8."""
    nodes = candidates.nodes(1, allocatable={"cpu": 2, "memory": 2}, spot=[True])
    pod = candidates.pod({"cpu": 2.0, "memory": 2.0})
    weights = {"fit": 2.0, "price": 1.0, "stability": 1.0, "priority": 4.0}
    assert Weighted(weights, 1000).score(pod, nodes).tolist() == [100 * 7 / 8]
    assert Weighted(dict.fromkeys(FACTORS, 0.0), 1000).score(pod, nodes).tolist() == [0]


def test_the_same_spot_node_at_half_the_price_ranks_first() -> None:
    nodes = candidates.nodes(
        3,
        allocatable={"cpu": 4, "memory": 4},
        price=[1.0, 0.5, 1.0],
        median_price=[1.0, 0.5, 1.0],
        interruption_rate=[0.01, 0.01, 0.0],
        spot=[True, True, False],
    )
    batch, critical = candidates.pod({"cpu": 1.0}), candidates.pod({"cpu": 1.0}, priority=5000)
    assert Weighted(EVEN, 1000).score(batch, nodes).argmax() == 1
    assert Weighted(EVEN, 1000).score(critical, nodes).argmax() == 2


def test_a_least_availability_keeps_pods_off_nodes_that_are_taken_away_often() -> None:
    """Of spot nodes with 0.001 interruptions an hour exp(-0.024) = 0.976 survive a day; the third's risk is unknown."""
    nodes = candidates.nodes(4, interruption_rate=[0.001, 0.1, NAN, NAN], spot=[True, True, True, False])
    asking = candidates.pod(annotations={MINIMUM: "0.95"})
    refused = Weighted(EVEN, 1000).refuse(asking, nodes)
    assert {reason: mask.tolist() for reason, mask in refused.items()} == {
        "nodes like this one are taken away more often than the pod allows": [False, True, True, False]
    }
    needs = [Weighted(EVEN, 1000).needs(asking, nodes, index) for index in (1, 2)]
    assert needs == [
        ["availability: 0.091 of such nodes survives a day, the pod asks for 0.95"],
        ["availability: an unknown share of such nodes survives a day, the pod asks for 0.95"],
    ]
    strict = Weighted(EVEN, 1000, 0.99)
    assert [mask.tolist() for mask in strict.refuse(candidates.pod(), nodes).values()] == [[True, True, True, False]]
    assert strict.refuse(candidates.pod(annotations={MINIMUM: "0"}), nodes) == {}
    unreadable = strict.refuse(candidates.pod(annotations={MINIMUM: "often"}), nodes)
    assert [mask.tolist() for mask in unreadable.values()] == [[True, True, True, False]]
    assert Weighted(EVEN, 1000).refuse(candidates.pod(), nodes) == {}
