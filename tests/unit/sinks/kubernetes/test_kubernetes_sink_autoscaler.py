"""What becomes of minReplicas: never above the maximum, the owner's value never lost, somebody else's never taken."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinks.kubernetes import autoscaler
from sinks.kubernetes.autoscaler import Order, Scaler

read = autoscaler.reader("spazio.floor")
OURS = {"manager": "spazio", "operation": "Apply", "fieldsV1": {"f:spec": {"f:minReplicas": {}}}}
THEIRS = {"manager": "owner", "operation": "Update", "fieldsV1": {"f:spec": {"f:minReplicas": {}}}}


def thing(minimum: int | None = 2, maximum: int = 10, *, managed: bool = False, **notes: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
            "annotations": {f"spazio.floor{'-' * bool(key)}{key}": value for key, value in notes.items()},
            "managedFields": [THEIRS] + [OURS] * managed,
        },
        "spec": {
            "maxReplicas": maximum, "scaleTargetRef": {"kind": "Deployment", "name": "web"},
            **({} if minimum is None else {"minReplicas": minimum}),
        },
    }  # fmt: skip


def scaler(minimum: int = 2, maximum: int = 10, *, wanted: bool = True, managed: bool = False, **notes: str) -> Scaler:
    made = thing(minimum, maximum, managed=managed, **notes)
    made["metadata"]["annotations"]["spazio.floor"] = "true" if wanted else "false"
    return read(made)


RAISED: dict[str, Any] = {"restore": "2", "raised": "6", "managed": True}


def test_an_autoscaler_is_read_with_what_was_kept() -> None:
    result = read(thing(6, restore="2", raised="6", managed=True))
    assert (result.workload, result.minimum, result.maximum) == (("shop", "Deployment", "web"), 6, 10)
    assert (result.own, result.raised, result.held, result.managed, result.wanted) == (2, 6, True, True, False)
    assert result.fields == [THEIRS]
    assert read(thing(None)).minimum == 1
    for text in ("", "x", "-1", "1.5", "9" * 50, "²"):
        assert read(thing(6, restore=text, raised=text)).own is None


@pytest.mark.parametrize(
    ("result", "goal", "order"),
    [
        (scaler(), 0, None),
        (scaler(), 2, None),
        (scaler(), 6, Order(6, own=2)),
        (scaler(), 600, Order(10, own=2)),
        (scaler(wanted=False), 6, None),
        (scaler(6, **RAISED), 6, None),
        (scaler(6, **RAISED), 8, Order(8, own=2)),
        (scaler(6, **RAISED), 4, Order(4, own=2)),
        (scaler(6, **RAISED), 2, Order(2)),
        (scaler(6, **RAISED), 0, Order(2)),
        (scaler(6, wanted=False, **RAISED), 8, Order(2)),
        # What has been restored is given back.
        (scaler(2, managed=True), 0, Order(release=True)),
        # Somebody has set it: it stays while the forecast asks for more, and is their own afterwards.
        (scaler(4, restore="2", raised="6"), 8, Order(yielded=True)),
        (scaler(4, restore="2", raised="6"), 4, Order()),
        (scaler(4, restore="2", raised="6", managed=True), 8, Order(4, yielded=True)),
        (scaler(4, yielded="4"), 8, None),
        (scaler(9, yielded="4"), 8, Order()),
        (scaler(4, yielded="4"), 3, Order()),
        (scaler(4, wanted=False, yielded="4"), 8, Order()),
        # What was kept cannot be read any more: what is there counts as the owner's.
        (scaler(6, restore="x", raised="6"), 8, Order(yielded=True)),
        (scaler(6, raised="6"), 0, Order()),
    ],
)
def test_what_is_made_of_an_autoscaler(result: Scaler, goal: int, order: Order | None) -> None:
    assert autoscaler.decide(result, goal) == order


Step = tuple[str, int]
STEPS = st.lists(st.tuples(st.sampled_from(["goal", "owner", "wanted"]), st.integers(0, 15)), max_size=30)


@given(st.integers(1, 12), st.integers(0, 5), STEPS)
def test_whatever_happens_the_owners_value_comes_back_and_the_maximum_holds(
    least: int, more: int, steps: list[Step]
) -> None:
    """A model of the API server: orders are carried out as `Floor` does, the owner sets and opts in and out between."""
    maximum, own = least + more, least
    result = scaler(least, maximum)
    for what, number in [*steps, ("wanted", 1), ("goal", 0)]:
        if what == "owner" and 1 <= number <= maximum and number != result.minimum:
            own, result = number, result._replace(minimum=number, managed=False)
        elif what == "wanted":
            result = result._replace(wanted=bool(number % 2))
        goal = number if what == "goal" else 0
        for _ in range(4):
            if (order := autoscaler.decide(result, goal)) is None:
                break
            result = carried_out(result, order)
        assert autoscaler.decide(result, goal) is None
        assert result.minimum <= maximum
        assert result.minimum >= own
        assert own in (result.minimum, result.own)
        if goal == 0:
            assert (result.minimum, result.marked, result.managed) == (own, False, False)


def carried_out(result: Scaler, order: Order) -> Scaler:
    if order.release:
        return result._replace(managed=False)
    kept: dict[str, Any] = {
        "own": order.own,
        "raised": None if order.own is None else order.minimum,
        "yielded": order.yielded,
    }
    if order.minimum is None:
        return result._replace(**kept)
    return result._replace(minimum=order.minimum, managed=True, **kept)
