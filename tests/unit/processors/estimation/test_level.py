"""A level among noise: averaged while it holds, followed at once when it has moved, and as unsure as it is."""

import warnings

import numpy as np
import pytest

from processors.estimation import level

ONE = np.ones(1)
GO = np.zeros((1, 1), dtype=np.bool_)


def follow(
    values: np.ndarray,
    slow: float = 10.0,
    state: level.State | None = None,
    *,
    bursts: bool = False,
    trends: bool = False,
) -> level.State:
    """Follow one value a second of each of some nodes, (seconds, nodes)."""
    nodes = values.shape[1]
    state = state or level.init(nodes, 1)
    for row in values:
        hold = np.zeros((nodes, 1), dtype=np.bool_)
        state, averaged = level.moving(state, slow) if trends else (state, np.full((nodes, 1), slow))
        state = level.update(state, row[:, None], np.ones(nodes), hold, slow=averaged, bursts=bursts)
    return state


def test_noise_is_averaged_and_the_doubt_is_that_of_the_mean() -> None:
    random = np.random.default_rng(1)
    result = follow(random.normal(0.4, 0.1, (60, 500)))
    error = result.mean[:, 0] - 0.4
    assert np.sqrt(np.mean(error**2)) < 0.05
    stated = np.sqrt(np.mean(level.doubt(result, slow=10.0)))
    assert 1 < stated / np.sqrt(np.mean(error**2)) < 2


def test_likeness_of_neighbours_widens_the_doubt() -> None:
    random = np.random.default_rng(2)
    white = random.normal(0, 0.1, (200, 300))
    alike = np.zeros_like(white)
    for second in range(1, 200):
        alike[second] = 0.9 * alike[second - 1] + white[second] * np.sqrt(1 - 0.81)
    apart, near = (follow(0.4 + noise) for noise in (white, alike))
    assert np.median(level.doubt(near, slow=10.0)) > 4 * np.median(level.doubt(apart, slow=10.0))
    assert np.sqrt(np.mean((near.mean - 0.4) ** 2)) < 2 * np.sqrt(np.mean(level.doubt(near, slow=10.0)))


@pytest.mark.parametrize("to", [0.9, 0.1])
def test_a_step_is_followed_within_three_seconds(to: float) -> None:
    random = np.random.default_rng(3)
    calm = follow(random.normal(0.5, 0.02, (60, 50)))
    moved = follow(random.normal(to, 0.02, (3, 50)), state=calm)
    assert np.abs(moved.mean - to).max() < 0.08


def test_among_bursts_one_value_is_no_step_and_two_are() -> None:
    random = np.random.default_rng(4)
    calm = follow(random.normal(0.2, 0.01, (60, 50)), bursts=True)
    once = follow(np.full((1, 50), 0.9), state=calm, bursts=True)
    assert np.abs(once.mean - 0.2).max() < 0.02
    twice = follow(np.full((3, 50), 0.9), state=calm, bursts=True)
    assert np.abs(twice.mean - 0.9).max() < 0.05


@pytest.mark.parametrize("young", [5, 8, 12, 15, 30])
@pytest.mark.parametrize(("before", "after"), [(1.0, 0.1), (0.02, 0.4)])
def test_also_a_young_level_is_followed_when_it_has_moved(young: int, before: float, after: float) -> None:
    random = np.random.default_rng(3)
    course = np.concatenate((np.full(young, before), np.full(5, after)))
    result = follow(course[:, None] * random.normal(1, 0.05, (young + 5, 50)), 60.0, bursts=True)
    assert np.quantile(np.abs(result.mean - after), 0.9) < 0.1 * abs(before - after)


def test_what_rises_within_a_minute_is_followed_and_what_wanders_is_averaged() -> None:
    random = np.random.default_rng(4)
    rising = np.concatenate((np.full(120, 0.2), np.linspace(0.2, 0.5, 60), np.full(20, 0.5)))
    noisy = rising[:, None] * random.normal(1, 0.05, (200, 50))
    lags = [np.median(0.5 - follow(noisy, 60.0, bursts=True, trends=trends).mean) for trends in (True, False)]
    assert lags[0] < 0.06
    assert lags[1] > 0.1
    wandering = np.zeros((300, 200))
    for second in range(1, 300):
        wandering[second] = 0.8 * wandering[second - 1] + 0.6 * random.normal(0, 0.1, 200)
    spread = [np.std(follow(1 + wandering, 60.0, bursts=True, trends=trends).mean) for trends in (True, False)]
    assert spread[0] < 1.1 * spread[1]


def test_a_burst_of_seconds_leaves_no_trace_some_seconds_later() -> None:
    random = np.random.default_rng(6)
    calm = follow(random.normal(0.1, 0.01, (60, 50)), bursts=True)
    burst = follow(random.normal(0.6, 0.05, (5, 50)), state=calm, bursts=True)
    after = follow(random.normal(0.1, 0.01, (5, 50)), state=burst, bursts=True)
    assert np.abs(after.mean - 0.1).max() < 0.05
    assert np.sqrt(after.variance).max() < 0.1


def test_what_is_held_or_missing_changes_nothing_but_the_first_value_counts() -> None:
    first = level.update(level.init(1, 1), np.array([[0.3]]), ONE, ~GO, slow=10.0)
    assert first.mean[0, 0] == 0.3
    for value, hold in ((np.array([[0.9]]), ~GO), (np.array([[np.nan]]), GO)):
        again = level.update(first, value, ONE, hold, slow=10.0)
        for before, after in zip(first, again, strict=True):
            np.testing.assert_array_equal(before, after)


def test_noise_that_has_faded_to_next_to_nothing_warns_of_nothing() -> None:
    with warnings.catch_warnings(action="error"):
        assert level.correlated(np.array([1e-5]), np.array([5e-324])).tolist() == pytest.approx([19.0])


def test_each_node_is_followed_alone() -> None:
    random = np.random.default_rng(5)
    values = random.normal(0.5, 0.1, (30, 7))
    whole = follow(values)
    for node in range(7):
        for first, every in zip(follow(values[:, [node]]), whole, strict=True):
            np.testing.assert_array_equal(first[0], every[node])
