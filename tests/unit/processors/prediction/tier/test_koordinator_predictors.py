"""Reclaimable and peak are those of Koordinator: on its own test's numbers, and against integers pod after pod."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processors.prediction.tier import koordinator
from processors.prediction.tier.priority import Priority
from processors.rows import table

NAN = np.nan
HOUR = 3600 * 1_000_000
MIB, GIB = 2.0**20, 2.0**30
often = settings(deadline=None, max_examples=60, derandomize=True)


def listed(
    pods: Sequence[tuple[tuple[float, float], tuple[float, float], bool, bool]], classes: Sequence[int] | None = None
) -> koordinator.Pods:
    """Return pods of one node, each given by request, percentiles, whether it is cold, and whether it ends."""
    request, percentile, cold, ending = zip(*pods, strict=True)
    return koordinator.Pods(
        row=np.zeros(len(pods), dtype=np.intp),
        priority=np.array(classes or [Priority.PROD] * len(pods), dtype=np.int8),
        request=np.array(request),
        percentile=np.array(percentile),
        cold=np.array(cold),
        ending=np.array(ending),
    )


HALF = (0.5, GIB)
POLICY = listed(
    [((1.0, GIB), HALF, True, False), ((2.0, 2 * GIB), HALF, False, False), ((4.0, GIB), HALF, False, True)]
)
PARTS = np.array([[(0.3, 512 * MIB), (1.0, GIB), (0.0, 0.0)]])


@pytest.mark.parametrize(
    ("allocatable", "by_pod", "by_class", "least"),
    [
        ((3.0, 3 * GIB), (1.45, 966367642), (1.57, 1449551463), (1.45, 966367642)),
        ((8.0, 8 * GIB), (1.45, 966367642), (1.57, 1449551463), (1.45, 966367642)),
        ((1.0, GIB), (0.45, 0), (0, 0), (0, 0)),
    ],
)
def test_reclaimable_is_that_of_koordinator_to_the_milli_core_and_byte(
    allocatable: tuple[float, float],
    by_pod: tuple[float, float],
    by_class: tuple[float, float],
    least: tuple[float, float],
) -> None:
    node = np.array([allocatable])
    np.testing.assert_array_equal(koordinator.by_pod(POLICY, node).reclaimable, [by_pod])
    np.testing.assert_array_equal(koordinator.by_class(POLICY, PARTS, node).reclaimable, [by_class])
    np.testing.assert_array_equal(koordinator.predict(POLICY, PARTS, node).reclaimable, [least])


def test_the_peak_counts_cold_and_failed_pods_in_full() -> None:
    pods = listed(
        [
            ((1.0, GIB), (0.5, 768 * MIB), False, False),
            ((1.0, GIB), (NAN, NAN), True, False),
            ((0.5, 512 * MIB), (NAN, NAN), False, False),
        ]
    )
    result = koordinator.by_pod(pods, np.array([[8.0, 8 * GIB]]))
    np.testing.assert_array_equal(result.peak, [[2.05, 885837004 + GIB + 512 * MIB]])
    np.testing.assert_array_equal(result.reclaimable, [[0.45, GIB - 885837004]])


@pytest.mark.parametrize(("allocatable", "expected"), [((3.0, 3 * GIB), (0.2, 512 * MIB)), ((0.9, GIB), (0.1, 0))])
def test_without_a_margin_classes_reclaim_what_koordinator_reclaims(
    allocatable: tuple[float, float], expected: tuple[float, float]
) -> None:
    pods = listed([((1.0, 2 * GIB), HALF, False, False)])
    parts = np.array([[(0.3, 512 * MIB), (0.5, GIB), (0.0, 0.0)]])
    result = koordinator.by_class(pods, parts, np.array([allocatable]), margin_percent=0)
    np.testing.assert_array_equal(result.reclaimable, [expected])
    np.testing.assert_array_equal(result.peak, [[0.8, 1536 * MIB]])


def test_the_shipped_peak_is_the_greater_of_both() -> None:
    node = np.array([[8.0, 8 * GIB]])
    left, right = koordinator.by_pod(POLICY, node), koordinator.by_class(POLICY, PARTS, node)
    np.testing.assert_array_equal(left.peak, [[1.55, 1181116006 + GIB]])
    np.testing.assert_array_equal(right.peak, [[1.43, 1771674009]])
    np.testing.assert_array_equal(koordinator.predict(POLICY, PARTS, node).peak, np.maximum(left.peak, right.peak))


def test_what_is_not_known_is_not_promised() -> None:
    node, unknown = np.array([[8.0, 8 * GIB]]), np.array([[8.0, NAN]])
    assert np.isnan(koordinator.by_pod(POLICY, unknown).reclaimable).all()
    assert np.isnan(koordinator.predict(POLICY, PARTS, unknown).reclaimable).all()
    torn = PARTS.copy()
    torn[0, 1, 0] = NAN
    assert np.isnan(koordinator.by_class(POLICY, torn, node).reclaimable).all()
    assert np.isnan(koordinator.predict(POLICY, torn, node).peak).all()


def test_pods_of_lesser_classes_are_not_looked_at_and_pods_of_none_are() -> None:
    pod = ((2.0, 2 * GIB), HALF, False, False)
    node = np.array([[8.0, 8 * GIB]])
    lesser = listed([pod] * 3, [Priority.MID, Priority.BATCH, Priority.FREE])
    np.testing.assert_array_equal(koordinator.by_pod(lesser, node), np.zeros((2, 1, 2)))
    np.testing.assert_array_equal(koordinator.by_class(lesser, PARTS, node).reclaimable, [[0, 0]])
    none = koordinator.by_pod(listed([pod], [Priority.NONE]), node)
    np.testing.assert_array_equal(none.reclaimable, [[1.45, 966367642]])


def test_a_pod_that_asks_for_nothing_gives_nothing_back() -> None:
    for request in ((0.0, 0.0), (-3.0, -3.0), (NAN, NAN)):
        pods = listed([(request, HALF, False, False), (request, HALF, True, False)])
        result = koordinator.by_pod(pods, np.array([[8.0, 8 * GIB]]))
        np.testing.assert_array_equal(result.reclaimable, [[0, 0]])
        np.testing.assert_array_equal(result.peak, [[0.55, 1181116006]])


def test_a_pod_that_uses_more_than_the_node_has_leaves_nothing() -> None:
    greedy = listed([((2.0, GIB), (64.0, 1e15), False, False), ((2.0, GIB), (0.1, MIB), False, False)])
    assert (koordinator.by_pod(greedy, np.array([[8.0, 8 * GIB]])).reclaimable == 0).all()
    endless = listed([((2.0, GIB), (math.inf, math.inf), False, False)] * 50)
    result = koordinator.by_pod(endless, np.array([[8.0, 8 * GIB]]))
    assert (result.reclaimable == 0).all()
    assert (result.peak > 1e12).all()


def test_a_pod_is_cold_up_to_its_age_and_when_it_comes_from_the_future() -> None:
    now = 100 * HOUR
    created = now - np.array([0, 24 * HOUR, 24 * HOUR + 1, -HOUR])
    assert koordinator.is_cold(created, now).tolist() == [True, True, False, True]
    assert koordinator.is_cold(created, now, cold_start_seconds=0).tolist() == [True, False, False, True]


def test_a_margin_below_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="margin_percent is -1"):
        koordinator.by_pod(POLICY, np.array([[1.0, 1.0]]), margin_percent=-1)


def test_conversions_are_inverse_and_drop_only_what_koordinator_drops() -> None:
    cores = np.arange(20_000)[:, np.newaxis] / [1000, 1]
    np.testing.assert_array_equal(koordinator.quantities(cores)[:, 0], np.arange(20_000))
    np.testing.assert_array_equal(koordinator.values(koordinator.quantities(cores)), cores)
    np.testing.assert_array_equal(koordinator.truncated(np.array([[0.0539999, 7.99]])), [[53, 7]])
    large = np.array([[1e6, 2.0**41 + 1]])
    np.testing.assert_array_equal(koordinator.values(koordinator.quantities(large)), large)


def one_by_one(
    pods: koordinator.Pods, allocatable: tuple[int, int], percent: int
) -> tuple[list[int], list[int], list[int]]:
    """Return reclaimable and peak by pod, and requests by class, in milli-cores and bytes, pod after pod."""
    ratio = float(100 + percent) / 100
    needed, spare, unpredicted, asked = [0, 0], [0, 0], [0, 0], [0, 0]
    for index in range(len(pods.row)):
        if pods.priority[index] not in {Priority.PROD, Priority.NONE}:
            continue
        request = [round(pods.request[index, 0] * 1000), int(pods.request[index, 1])]
        failed = bool(np.isnan(pods.percentile[index, 0]))
        if pods.cold[index]:
            unpredicted = [a + b for a, b in zip(unpredicted, request, strict=True)]
        elif not pods.ending[index] and failed:
            unpredicted = [a + b for a, b in zip(unpredicted, request, strict=True)]
            continue
        elif not pods.ending[index]:
            read = [int(pods.percentile[index, 0] * 1000), int(pods.percentile[index, 1])]
            peak = [int(float(value) * ratio) for value in read]
            needed = [a + b for a, b in zip(needed, peak, strict=True)]
            spare = [a + max(b - c, 0) for a, b, c in zip(spare, request, peak, strict=True)]
        if not pods.ending[index]:
            asked = [a + b for a, b in zip(asked, request, strict=True)]
    reclaimable = [min(max(a - b, 0), c) for a, b, c in zip(allocatable, needed, spare, strict=True)]
    return reclaimable, [a + b for a, b in zip(needed, unpredicted, strict=True)], asked


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(0, 60))
@often
def test_arrays_say_what_integers_pod_after_pod_say(seed: int, count: int, percent: int) -> None:
    rng = np.random.default_rng(seed)
    percentile = np.column_stack((rng.gamma(1, 2, count), rng.gamma(1, 4e9, count)))
    percentile[rng.random(count) < 0.2] = NAN
    pods = koordinator.Pods(
        row=np.zeros(count, dtype=np.intp),
        priority=rng.integers(0, 5, count).astype(np.int8),
        request=np.column_stack((rng.integers(0, 8000, count) / 1000, rng.integers(0, 2**34, count))),
        percentile=percentile,
        cold=rng.random(count) < 0.2,
        ending=rng.random(count) < 0.2,
    )
    node = (64_000, 2**37)
    reclaimable, peak, asked = one_by_one(pods, node, percent)
    allocatable = np.array([[node[0] / 1000, node[1]]])
    result = koordinator.by_pod(pods, allocatable, margin_percent=percent)
    assert koordinator.quantities(result.reclaimable)[0].tolist() == reclaimable
    assert koordinator.quantities(result.peak)[0].tolist() == peak
    share = rng.random()
    parts = share * np.array([[[asked[0] / 1000, asked[1]], [0, 0], [0, 0]]])
    needed = [int(float(int(value)) * (float(100 + percent) / 100)) for value in parts[0, 0] * [1000, 1]]
    least = koordinator.predict(pods, parts, allocatable, margin_percent=percent)
    by_class = [max(min(a, b) - c, 0) for a, b, c in zip(asked, node, needed, strict=True)]
    expected = [min(a, b) for a, b in zip(reclaimable, by_class, strict=True)]
    assert koordinator.quantities(least.reclaimable)[0].tolist() == expected


def test_nodes_do_not_know_of_each_other() -> None:
    rows = np.array([2, 0, 2])
    pods, nodes = POLICY._replace(row=rows), np.array([[3.0, 3 * GIB], [8.0, 8 * GIB], [1.0, GIB]])
    together = koordinator.predict(pods, np.repeat(PARTS, 3, axis=0), nodes)
    for node in range(3):
        mine = np.flatnonzero(rows == node)
        few = table.take(pods, mine)._replace(row=np.zeros(len(mine), dtype=np.intp))
        alone = koordinator.predict(few, PARTS, nodes[node : node + 1])
        np.testing.assert_array_equal(alone.reclaimable[0], together.reclaimable[node])
        np.testing.assert_array_equal(alone.peak[0], together.peak[node])
