"""When a figure is worth a write: a share of what is written, anything after so long, and never the same again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.kubernetes.writing import change
from sinks.kubernetes.writing.change import Rule

RULE = Rule(diff=0.1, force_seconds=300)
FIGURES = st.dictionaries(st.sampled_from(["a", "b"]), st.floats(0, 1e12) | st.sampled_from(["cpu", "memory"]))


@pytest.mark.parametrize(
    ("before", "after", "waited", "due"),
    [
        (1000, 1100, 0, False),
        (1000, 1101, 0, True),
        (1000, 900, 0, False),
        (1000, 899, 0, True),
        (1000, 901, 299, False),
        (1000, 901, 300, True),
        (1000, 1000, 1e9, False),
        (0, 1, 0, True),
        (0, 0, 1e9, False),
        ("cpu", "memory", 0, True),
        ("cpu", 1, 0, True),
    ],
)
def test_more_than_a_tenth_is_written_at_once_less_when_it_is_long_ago_and_the_same_never(
    before: float | str, after: float | str, waited: float, due: bool
) -> None:
    assert change.due({"x": before}, {"x": after}, waited, RULE) is due


def test_what_comes_or_goes_is_written_at_once() -> None:
    assert change.due({}, {"x": 0.0}, 0, RULE)
    assert change.due({"x": 0.0}, {}, 0, RULE)


def test_a_share_of_next_to_nothing_is_taken_of_more() -> None:
    assert change.due({"usage": 0.01}, {"usage": 0.05}, 0, RULE)
    assert not change.due({"usage": 0.01}, {"usage": 0.05}, 0, RULE, lambda _: 1.0)
    assert change.due({"usage": 0.01}, {"usage": 0.12}, 0, RULE, lambda _: 1.0)


@given(FIGURES, st.floats(0, 1e9), st.floats(0, 1))
def test_whatever_the_rule_the_same_is_never_written(
    figures: dict[str, float | str], waited: float, diff: float
) -> None:
    assert not change.due(figures, dict(figures), waited, Rule(diff, 0))


@given(FIGURES, FIGURES, st.floats(0, 1e9))
def test_what_is_due_stays_due(old: dict[str, float | str], new: dict[str, float | str], waited: float) -> None:
    if change.due(old, new, waited, RULE):
        assert change.due(old, new, waited + 1, RULE)
    assert change.due(old, new, RULE.force_seconds, RULE) == (old != new)


def test_leaves_of_what_was_sent_are_those_of_what_comes_back() -> None:
    sent = {"a": {"cpu": "1500m", "memory": "2Mi"}, "b": {"c": {"d": 0.5}}, "e": "signal", "f": 3}
    assert change.leaves(sent) == {"a.cpu": 1.5, "a.memory": 2097152.0, "b.c.d": 0.5, "e": "signal", "f": 3.0}
    assert change.leaves({}) == {}
