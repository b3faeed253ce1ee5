"""Marks of nodes: what a patch changes and what it leaves alone, and when a mark follows its signal."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.kubernetes import mark
from sinks.kubernetes.steady import Steady

NOW = 1_795_507_849.0
STAMP = "20261124T081049Z"
OURS = {"key": "spazio.io/full", "value": STAMP, "effect": "NoSchedule"}
THEIRS = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}
SCALER, KARPENTER = mark.OF_AUTOSCALERS


def node(*taints: dict[str, Any], **notes: str) -> dict[str, Any]:
    names = {"ca": SCALER, "karpenter": KARPENTER, "keep": mark.KEEP}
    annotations = {names.get(name, name): value for name, value in notes.items()}
    return {"metadata": {"name": "n1", "annotations": annotations}, "spec": {"taints": list(taints)}}


def patched(thing: dict[str, Any], *, full: bool, keep: bool) -> dict[str, Any] | None:
    return mark.patch("7", mark.read(thing), full=full, keep=keep, now=NOW)


def test_a_taint_carries_its_time_and_stands_behind_those_of_others() -> None:
    body = patched(node(THEIRS), full=True, keep=False)
    assert body == {"spec": {"taints": [THEIRS, OURS]}, "metadata": {"resourceVersion": "7"}}
    assert mark.read(node(THEIRS, OURS)).full_at == NOW


def test_removing_it_leaves_the_taints_of_others_and_of_other_effects() -> None:
    stronger = OURS | {"effect": "NoExecute"}
    body = patched(node(THEIRS, OURS, stronger), full=False, keep=False)
    assert body == {"spec": {"taints": [THEIRS, stronger]}, "metadata": {"resourceVersion": "7"}}
    body = patched(node(OURS), full=False, keep=False)
    assert body == {"spec": {"taints": None}, "metadata": {"resourceVersion": "7"}}


def test_a_taint_without_a_time_is_old() -> None:
    for value in ({}, {"value": "yes"}, {"value": None}):
        assert mark.read(node({"key": "spazio.io/full", "effect": "NoSchedule"} | value)).full_at == 0


def test_a_node_that_has_its_marks_is_not_patched() -> None:
    assert patched(node(), full=False, keep=False) is None
    assert patched(node(OURS, keep=f"{STAMP} {SCALER}", ca="true"), full=True, keep=True) is None
    assert not mark.read({"metadata": {"name": "bare"}}).any


def test_annotations_come_and_go_together() -> None:
    body = patched(node(), full=False, keep=True)
    notes = {SCALER: "true", KARPENTER: "true", mark.KEEP: f"{STAMP} {SCALER} {KARPENTER}"}
    assert body == {"metadata": {"resourceVersion": "7", "annotations": notes}}
    thing = {"metadata": {"name": "n1", "annotations": notes}}
    assert mark.read(thing).keep_at == NOW
    body = patched(thing, full=False, keep=False)
    assert body == {"metadata": {"resourceVersion": "7", "annotations": dict.fromkeys((mark.KEEP, SCALER, KARPENTER))}}


@pytest.mark.parametrize("value", ["true", "false"])
def test_an_annotation_that_somebody_else_has_set_stays_as_it_is(value: str) -> None:
    body = patched(node(ca=value), full=False, keep=True)
    assert body is not None
    assert body["metadata"]["annotations"] == {KARPENTER: "true", mark.KEEP: f"{STAMP} {KARPENTER}"}
    body = patched(node(ca=value, karpenter="true", keep=f"{STAMP} {KARPENTER}"), full=False, keep=False)
    assert body is not None
    assert body["metadata"]["annotations"] == dict.fromkeys((mark.KEEP, KARPENTER))


def test_an_annotation_of_ours_that_somebody_has_changed_since_is_theirs() -> None:
    body = patched(node(ca="false", karpenter="true", keep=f"{STAMP} {SCALER} {KARPENTER}"), full=False, keep=False)
    assert body is not None
    assert body["metadata"]["annotations"] == dict.fromkeys((mark.KEEP, KARPENTER))


def test_a_mark_without_a_time_is_removed_too() -> None:
    body = patched(node(keep=""), full=False, keep=False)
    assert body == {"metadata": {"resourceVersion": "7", "annotations": {mark.KEEP: None}}}


class Marked:
    """One node whose mark follows at once what is decided."""

    def __init__(self, marked_at: float | None = None) -> None:
        self.steady, self.marked_at = Steady(), marked_at

    def see(self, at: float, *, signal: bool) -> bool:
        wanted = self.steady.follow({"n1"} if signal else set(), {"n1": self.marked_at}, at, 10)
        self.marked_at = None if not wanted else at if self.marked_at is None else self.marked_at
        return bool(wanted)


def test_a_mark_comes_and_goes_when_its_signal_has_stayed_for_so_long() -> None:
    node = Marked()
    seen = [node.see(at, signal=5 <= at < 40) for at in range(60)]
    assert seen == [15 <= at < 50 for at in range(60)]


def test_a_signal_that_comes_and_goes_changes_nothing() -> None:
    node = Marked()
    assert not any(node.see(at, signal=at % 9 < 5) for at in range(100))
    node = Marked(marked_at=0.0)
    node.see(0, signal=True)
    assert all(node.see(at, signal=at % 9 < 5) for at in range(1, 100))


def test_what_a_dead_process_left_goes_at_once_if_it_is_old_and_stays_if_it_is_due() -> None:
    assert not Marked(marked_at=100.0).see(500, signal=False)
    assert Marked(marked_at=100.0).see(500, signal=True)
    young = Marked(marked_at=495.0)
    assert [young.see(at, signal=False) for at in (500, 504, 505)] == [True, True, False]


def test_a_clock_that_was_set_back_makes_no_signal_wait() -> None:
    node = Marked()
    node.see(10_000, signal=True)
    assert node.see(50, signal=True)


@given(st.lists(st.tuples(st.floats(0, 8), st.booleans()), max_size=60))
def test_a_mark_changes_at_most_once_in_so_many_seconds(steps: list[tuple[float, bool]]) -> None:
    node, now, changes, before = Marked(), 0.0, list[float](), False
    for pause, signal in steps:
        now += pause
        after = node.see(now, signal=signal)
        if after != before:
            changes.append(now)
        before = after
    assert all(later - earlier >= 10 for earlier, later in itertools.pairwise(changes))


def test_nodes_that_are_gone_are_forgotten() -> None:
    steady = Steady()
    steady.follow({"n1"}, {"n1": None}, 0, 10)
    steady.follow(set(), {}, 5, 10)
    assert steady.follow({"n1"}, {"n1": None}, 12, 10) == frozenset()
