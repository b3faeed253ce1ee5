"""What is lent to lesser pods: Koordinator's numbers, the proposal's formulas, and when a node is written to."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from processors.prediction.tier import batch, mid
from processors.prediction.tier.priority import Priority

Array = NDArray[np.float64]
NAN = np.nan
GIB = 2.0**30
UNIT = np.array([1.0, GIB])  # a core, a GiB
SECOND = 1_000_000
often = settings(deadline=None, max_examples=60, derandomize=True)


def amounts(*rows: tuple[float, float]) -> Array:
    """Return cores and GiB as cores and bytes (rows, resources)."""
    return np.asarray(np.array(rows) * UNIT)


def node(reclaimable: tuple[float, float], usage: tuple[float, float]) -> mid.Node:
    """Return the node of Koordinator's own test: 100 cores, 210 GiB of which 10 are the kubelet's; 20/40 requested."""
    return mid.Node(
        capacity=amounts((100, 210)),
        allocatable=amounts((100, 200)),
        reserved=amounts((NAN, NAN)),
        system=amounts((0, 0)),
        usage=amounts(usage),
        reclaimable=amounts(reclaimable),
        requested=amounts((20, 40)),
    )


@pytest.mark.parametrize(
    ("reclaimable", "usage", "threshold", "unallocated", "expected"),
    [
        ((10, 15), (20, 45), (1.0, 1.0), 0.0, (10, 15)),
        ((15, 30), (30, 50), (0.1, 0.2), 0.1, (10, 42)),
        ((NAN, NAN), (30, 50), (1.0, 1.0), 0.0, (0, 0)),
        ((20, 20), (90, 200), (1.0, 1.0), 0.0, (10, 10)),
        ((20, 20), (NAN, NAN), (1.0, 1.0), 0.0, (0, 0)),
        ((20, 20), (30, NAN), (1.0, 1.0), 0.0, (0, 0)),
    ],
)
def test_shipped_figures_are_those_of_koordinator_to_the_byte(
    reclaimable: tuple[float, float],
    usage: tuple[float, float],
    threshold: tuple[float, float],
    unallocated: float,
    expected: tuple[float, float],
) -> None:
    result = mid.shipped(node(reclaimable, usage), threshold=np.array(threshold), unallocated=unallocated)
    np.testing.assert_array_equal(result, amounts(expected))


def test_before_the_cap_the_second_vector_is_23_cores_and_46_gib() -> None:
    result = mid.shipped(node((15, 30), (30, 50)), unallocated=0.1)
    np.testing.assert_array_equal(result, amounts((15 + 8, 30 + 16)))


@pytest.mark.parametrize(("share", "expected"), [(0.1, (10, 21)), (1.0, (10, 42))])
def test_static_figures_are_those_of_koordinator(share: float, expected: tuple[float, float]) -> None:
    result = mid.static(amounts((100, 210)), share=np.full(2, share), threshold=np.array([0.1, 0.2]))
    np.testing.assert_array_equal(result, amounts(expected))


@pytest.mark.parametrize("usage", [(120, 300), (1e9, 1e9), (math.inf, math.inf)])
def test_usage_above_capacity_leaves_nothing_unused(usage: tuple[float, float]) -> None:
    np.testing.assert_array_equal(mid.shipped(node((20, 20), usage)), [[0, 0]])


def test_an_unknown_or_impossible_node_lends_nothing() -> None:
    present = node((20, 20), (10, 10))
    for capacity in ((NAN, NAN), (0, 0), (-4, -4)):
        empty = present._replace(capacity=amounts(capacity), usage=amounts((0, 0)))
        np.testing.assert_array_equal(mid.shipped(empty, unallocated=1.0), [[0, 0]])
        np.testing.assert_array_equal(mid.static(empty.capacity, share=np.ones(2)), [[0, 0]])
    unpredicted = present._replace(reclaimable=amounts((-5, -5)))
    np.testing.assert_array_equal(mid.shipped(unpredicted), [[0, 0]])


def test_the_greatest_of_what_is_reserved_and_what_the_system_uses_is_kept_back() -> None:
    present = node((0, 0), (10, 10))._replace(reserved=amounts((5, 4)), system=amounts((3, 12)))
    free = mid.shipped(present, unallocated=1.0)
    np.testing.assert_array_equal(free, amounts((100 - 5 - 20, 210 - 12 - 40)))


def test_only_production_pods_that_run_or_wait_hold_what_they_ask_for() -> None:
    request = amounts((1, 1), (2, 2), (4, 4), (8, 8), (NAN, 16), (-32, 0))
    classes = np.array([Priority.PROD, Priority.NONE, Priority.MID, Priority.PROD, Priority.PROD, Priority.PROD])
    active = np.array([True, True, True, False, True, True])
    row = np.array([1, 1, 1, 1, 0, -1])
    result = mid.requested(request, classes.astype(np.int8), active, row, 3)
    np.testing.assert_array_equal(result, amounts((0, 16), (3, 3), (0, 0)))


def test_the_proposals_first_formula_lends_what_is_above_the_peak_up_to_a_share_of_the_node() -> None:
    allocated, peak, allocatable = amounts((20, 40), (20, 40)), amounts((12, 50), (2, 8)), amounts((32, 64), (32, 64))
    result = mid.proposed(allocated, peak, allocatable, threshold=0.5)
    np.testing.assert_array_equal(result, amounts((8, 0), (16, 32)))
    half = mid.proposed(allocated, peak, allocatable, threshold=0.5, reclaim=0.75)
    np.testing.assert_array_equal(half, amounts((3, 0), (13, 22)))


def test_the_proposals_second_formula_lends_what_is_free_as_well() -> None:
    result = mid.mixed(amounts((20, 70)), amounts((12, 50)), amounts((32, 64)), threshold=0.125)
    np.testing.assert_array_equal(result, amounts((4 + 12, 8)))


def test_nobody_lends_what_nobody_knows() -> None:
    present, unknown = amounts((32, 64)), amounts((NAN, 64))
    for arguments in ((unknown, present, present), (present, unknown, present), (present, present, unknown)):
        assert mid.proposed(*arguments, threshold=1.0)[0, 0] == 0
    assert mid.mixed(amounts((20, 20)), unknown, present, threshold=1.0)[0, 0] == 12
    assert mid.proposed(present, np.full((1, 2), math.inf), present, threshold=1.0).max() == 0


def test_a_node_is_reset_when_its_report_is_too_old_too_new_or_never_came() -> None:
    now = 3600 * SECOND
    minutes = np.array([30, 5, 4, 0, -4, -30])
    reported = now - minutes * 60 * SECOND
    on = np.ones(7, dtype=np.bool_)
    result = mid.reset(np.append(reported, 0), now, on, degrade_seconds=300)
    assert result.tolist() == [True, False, False, False, False, True, True]
    assert mid.reset(reported, now, ~on[:6]).all()
    assert mid.reset(np.zeros(1, dtype=np.int64), 100 * SECOND, on[:1]).all()
    assert not mid.reset(np.array([now - 900 * SECOND]), now, on[:1]).any()
    assert mid.reset(np.array([now - 900 * SECOND - 1]), now, on[:1]).all()


def test_a_change_is_written_when_it_exceeds_a_tenth_in_either_resource() -> None:
    old = np.array([[10.0, 1e9], [10.0, 1e9], [10.0, 1e9], [0.0, 0.0], [0.0, 0.0]])
    new = np.array([[11.0, 9e8], [11.001, 1e9], [10.0, 9e8 - 1], [0.001, 0.0], [0.0, 0.0]])
    recent = np.full(5, 99 * SECOND)
    assert mid.write(old, new, recent, 100 * SECOND).tolist() == [False, True, True, True, False]
    assert mid.write(old, new, recent, 100 * SECOND, difference=0.05).tolist() == [True, True, True, True, False]


def test_a_figure_that_appears_or_disappears_is_written() -> None:
    absent = np.full((1, 2), NAN)
    there = np.zeros((1, 2))
    recent = np.array([99 * SECOND])
    assert mid.write(absent, there, recent, 100 * SECOND).all()
    assert mid.write(there, absent, recent, 100 * SECOND).all()
    assert not mid.write(absent, absent, recent, 100 * SECOND).any()


def test_a_node_is_written_to_after_a_start_and_when_the_last_time_is_long_ago() -> None:
    same = np.ones((5, 2))
    now = 1000 * SECOND
    written = np.array([0, now - 300 * SECOND, now - 300 * SECOND - 1, now + 299 * SECOND, now + 301 * SECOND])
    assert mid.write(same, same, written, now).tolist() == [True, False, True, False, True]
    assert mid.write(same, same, np.zeros_like(written), 100 * SECOND).all()


@given(st.integers(0, 2**32 - 1))
@often
def test_no_more_is_lent_than_the_node_has_and_never_less_than_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    present = mid.Node(*rng.uniform(-20, 100, (7, 12, 2)))
    present.usage[rng.random(present.usage.shape) < 0.2] = NAN
    lent = mid.shipped(present, threshold=rng.random((12, 2)), unallocated=rng.random((12, 1)))
    assert (lent >= 0).all()
    assert (lent <= np.maximum(present.capacity + 0.5, 0)).all()
    alone = [mid.shipped(mid.Node(*(part[index : index + 1] for part in present))) for index in range(12)]
    np.testing.assert_array_equal(np.concatenate(alone), mid.shipped(present))


def held() -> batch.Held:
    """Return pods on one node: reported, not reported, owning its cores, no longer listed, and one of Batch."""
    return batch.held(
        request=amounts((4, 8), (2, 4), (8, 8), (NAN, NAN), (6, 6)),
        usage=amounts((5, 6), (NAN, NAN), (1, 3), (1, 1), (6, 6)),
        classes=np.array([Priority.PROD, Priority.MID, Priority.PROD, Priority.NONE, Priority.BATCH], dtype=np.int8),
        exclusive=np.array([False, False, True, False, False]),
        row=np.zeros(5, dtype=np.intp),
        rows=1,
    )


def test_pods_above_batch_hold_what_they_use_or_what_they_asked_for() -> None:
    pods = held()
    np.testing.assert_array_equal(pods.used, amounts((5 + 2 + 8 + 1, 6 + 4 + 3 + 1)))
    np.testing.assert_array_equal(pods.requested, amounts((4 + 2 + 8, 8 + 4 + 8)))
    np.testing.assert_array_equal(pods.greatest, amounts((5 + 2 + 8 + 1, 8 + 4 + 8 + 1)))


def test_batch_pods_may_have_what_is_left_below_the_reclaim_threshold() -> None:
    """Of 100 cores 40 are kept back, 10 are reserved; of 200 GiB 35 %, which are 70, and the system uses 12."""
    capacity, reserved, system = amounts((100, 200)), amounts((10, 8)), amounts((4, 12))
    by_usage = batch.allocatable(capacity, reserved, system, held())
    np.testing.assert_array_equal(by_usage, amounts((100 - 40 - 10 - 16, 200 - 70 - 12 - 14)))
    policy = (batch.Policy.GREATEST, batch.Policy.REQUEST)
    other = batch.allocatable(capacity, reserved, system, held(), policy=policy)
    np.testing.assert_array_equal(other, amounts((100 - 40 - 10 - 16, 200 - 70 - 8 - 20)))
    capped = batch.allocatable(capacity, reserved, system, held(), threshold=np.array([0.25, 0.25]))
    np.testing.assert_array_equal(capped, amounts((25, 50)))


def test_a_full_or_unknown_node_has_nothing_for_batch_pods() -> None:
    nothing = amounts((NAN, NAN))
    for capacity in (amounts((20, 20)), nothing, amounts((-1, -1))):
        np.testing.assert_array_equal(batch.allocatable(capacity, nothing, nothing, held()), [[0, 0]])
