"""BalancedAllocation gives kube-scheduler's own scores, through 1.35 and since 1.36."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinks.extender.strategy.node_resources import balanced

often = settings(deadline=None, max_examples=200, derandomize=True)


def column(*values: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array(values, dtype=np.float64)[:, None]


@pytest.mark.parametrize(
    ("capacity", "requested", "expected"),
    [
        ((4000, 10000), (3000, 5000), 87),
        ((6000, 10000), (3000, 5000), 100),
        ((10000, 20000), (6000, 5000), 82),
        ((10000, 20000), (6000, 10000), 95),
        ((10000, 50000), (6000, 10000), 80),
        ((3500, 40000, 8), (3000, 5000, 4), 70),
        ((3500, 40000, 8), (3000, 5000, 1), 65),
        ((4000, 0), (3000, 5000), 100),
        ((4000, 0, 10), (3000, 5, 5), 87),
        ((4000, 10000), (9000, 5000), 75),
    ],
)
def test_through_1_35_a_node_scores_its_balance(
    capacity: tuple[float, ...], requested: tuple[float, ...], expected: float
) -> None:
    assert balanced.balance(column(*requested), column(*capacity)).tolist() == [expected]


@pytest.mark.parametrize(
    ("capacity", "before", "expected"),
    [((4000, 10000), (0, 0), 68), ((6000, 10000), (0, 0), 75), ((10000, 20000), (3000, 0), 73)],
)
def test_since_1_36_it_scores_what_the_pod_changes(
    capacity: tuple[float, ...], before: tuple[float, ...], expected: float
) -> None:
    with_pod = column(*before) + column(3000, 5000)
    assert balanced.betterment(column(*before), with_pod, column(*capacity)).tolist() == [expected]


@given(st.lists(st.tuples(*[st.integers(0, 10**6)] * 4), min_size=1, max_size=6))
@often
def test_two_resources_score_from_50_to_100_and_no_change_scores_75(rows: list[tuple[int, int, int, int]]) -> None:
    values = np.array(rows, dtype=np.float64).T
    score = balanced.balance(values[:2], values[2:])
    assert ((score >= 50) & (score <= 100)).all()
    assert (balanced.betterment(values[:2], values[:2], values[2:]) == 75).all()
    change = balanced.betterment(np.zeros_like(values[:2]), values[:2], values[2:])
    assert ((change >= 50) & (change <= 75)).all()


@pytest.mark.parametrize(
    ("capacity", "requested", "expected"), [((4, 25), (4, 8), 66), ((10, 10), (1, 8), 64), ((10, 10), (8, 1), 64)]
)
def test_of_two_resources_the_deviation_is_half_the_difference_to_the_last_bit(
    capacity: tuple[float, ...], requested: tuple[float, ...], expected: float
) -> None:
    """The general formula's root is one point off where the score is cut: 65, 65 and 65."""
    assert balanced.balance(column(*requested), column(*capacity)).tolist() == [expected]


def test_what_is_unknown_stays_unknown_and_hurts_no_other_node() -> None:
    capacity = np.array([[4000.0, np.nan], [10000.0, 10000.0]])
    requested = np.array([[3000.0, 3000.0], [5000.0, 5000.0]])
    np.testing.assert_equal(balanced.balance(requested, capacity), [87, np.nan])
