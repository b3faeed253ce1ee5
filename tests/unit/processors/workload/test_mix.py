"""Which class comes next: the newest in bursts, all of them where they interleave, what runs where nothing starts."""

from itertools import pairwise

import numpy as np
import pytest

from processors.workload import mix

NAMES = "abc"
LABEL = np.array([[0, 1, 2]])
SEEN, UNSEEN = np.zeros(1, dtype=np.bool_), np.ones(1, dtype=np.bool_)


class Node:
    """One node with three classes."""

    def __init__(self) -> None:
        self.state = mix.init(1, 3)
        self.second = 0.0
        self.pods = np.zeros((1, 3))

    def starts(self, name: str, second: float, pods: int = 1, *, first: bool = False) -> None:
        self.state = mix.faded(self.state, np.array([second - self.second]))
        self.second = second
        more = np.zeros((1, 3))
        more[0, NAMES.index(name)] = pods
        self.pods += more
        self.state = mix.update(self.state, LABEL, more, np.maximum(more, 0.0), UNSEEN if first else SEEN)

    def weights(self) -> dict[str, float]:
        given = self.state
        result = mix.weights(given.started, given.recent, self.pods, given.repeats, given.transitions)[0]
        assert result.sum() == pytest.approx(1.0) or not result.any()
        return dict(zip(NAMES, result.tolist(), strict=True))


def test_without_a_start_nothing_is_likely() -> None:
    assert not any(Node().weights().values())


def test_what_ran_before_anybody_looked_is_weighed_by_its_pods() -> None:
    node = Node()
    node.starts("a", 0, 6, first=True)
    node.starts("b", 0, 2, first=True)
    assert node.weights() == pytest.approx({"a": 0.75, "b": 0.25, "c": 0.0})


@pytest.mark.parametrize("apart", [1, 5, 15])
def test_after_a_burst_of_another_class_the_newest_is_what_comes(apart: int) -> None:
    node = Node()
    for number in range(4):
        node.starts("a", apart * number)
    node.starts("b", 60)
    assert node.weights()["b"] > 0.7
    node.state = mix.faded(node.state, np.array([100.0]))
    assert node.weights()["b"] > 0.7


def test_the_newest_start_counts_in_full_for_two_minutes_and_then_less_and_less() -> None:
    node = Node()
    node.starts("a", 0, 12, first=True)
    node.starts("b", 30)
    at_once, weights = node.weights()["b"], list[float]()
    for _ in range(900):
        node.state = mix.faded(node.state, np.ones(1))
        weights.append(node.weights()["b"])
    assert weights[:119] == pytest.approx([at_once] * 119)
    assert all(-1e-9 < before - after < 0.002 for before, after in pairwise(weights))
    assert at_once > 0.7
    assert weights[-1] == pytest.approx(1 / 13, rel=0.02)


def test_where_classes_take_turns_each_is_as_likely_as_it_is_frequent() -> None:
    node = Node()
    for number in range(60):
        node.starts(NAMES[number % 3], 30 * number)
    assert all(0.25 < weight < 0.45 for weight in node.weights().values())


@pytest.mark.parametrize("together", [1, 50])
def test_a_burst_is_forgotten_once_classes_take_turns(together: int) -> None:
    node = Node()
    for number in range(50 // together):
        node.starts("a", number, together)
    assert node.weights()["a"] > 0.9
    for number in range(6):
        node.starts(NAMES[number % 3], 100 + 30 * number)
    assert node.weights()["c"] < 0.65


def test_two_starts_in_turn_end_a_burst_and_one_does_not() -> None:
    node = Node()
    for number in range(9):
        node.starts("a", number)
    node.starts("b", 40)
    assert node.weights()["b"] > 0.7
    node.starts("c", 80)
    assert node.weights()["c"] < 0.6
    for number in range(9):
        node.starts("c", 120 + number)
    assert node.weights()["c"] > 0.85


def test_what_is_over_does_not_come_next_unless_nothing_runs() -> None:
    node = Node()
    node.starts("a", 0, 5)
    node.starts("b", 60, 1)
    node.pods[0, 0] = 0
    assert node.weights() == pytest.approx({"a": 0.0, "b": 1.0, "c": 0.0})
    node.pods[:] = 0
    assert node.weights()["a"] > 0


def test_pods_that_end_are_no_starts_and_hours_are_forgotten() -> None:
    node = Node()
    node.starts("a", 0, 3)
    ended = mix.update(node.state, LABEL, np.array([[-2.0, 0.0, 0.0]]), np.zeros((1, 3)), SEEN)
    for before, after in zip(node.state, ended, strict=True):
        np.testing.assert_array_equal(before, after)
    assert mix.faded(node.state, np.array([40 * 3600.0])).started.max() < 1e-9


@pytest.mark.parametrize("days", [2, 4, 60])
def test_where_nothing_was_started_for_days_what_runs_comes_next(days: int) -> None:
    """Two classes beside a DaemonSet, then also beside a job that comes and ends."""
    node = Node()
    node.starts("a", 0, 6, first=True)
    node.starts("b", 0, 2, first=True)
    node.pods[0, 2] = 1
    for _ in range(days):
        node.state = mix.faded(node.state, np.array([24 * 3600.0]))
    assert node.weights() == pytest.approx({"a": 0.75, "b": 0.25, "c": 0.0})
    node.starts("c", days * 24 * 3600.0)
    node.pods[0, 2] = 0
    assert node.weights() == pytest.approx({"a": 0.75, "b": 0.25, "c": 0.0})


@pytest.mark.parametrize("seconds", [1, 60, 600, 3 * 3600])
def test_a_class_that_gets_a_slot_later_takes_its_part_of_the_starts(seconds: int) -> None:
    node = Node()
    node.starts("a", 0, 8)
    node.starts("b", 1, 2)
    node.state = mix.faded(node.state, np.array([float(seconds)]))
    before, node.pods = node.weights(), np.array([[8.0, 1.0, 1.0]])
    mix.move(node.state, 0, 1, 2, 0.5)
    after = node.weights()
    assert after == pytest.approx({"a": before["a"], "b": before["b"] / 2, "c": before["b"] / 2})


def test_counts_of_two_nodes_are_those_of_one_that_saw_both() -> None:
    left, right, both = Node(), Node(), Node()
    for node in (left, both):
        node.starts("a", 3, 2)
    for node in (right, both):
        node.starts("b", 8)
    left.state = mix.faded(left.state, np.array([5.0]))
    np.testing.assert_allclose(left.state.started + right.state.started, both.state.started)
    np.testing.assert_allclose(left.state.recent + right.state.recent, both.state.recent)
