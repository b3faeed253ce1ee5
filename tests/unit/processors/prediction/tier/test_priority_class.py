"""A pod's class is found by label, then by the band of its priority, then by its quality of service."""

import numpy as np
import pytest

from processors.prediction.tier import priority
from processors.prediction.tier.priority import Priority


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (9000, Priority.PROD),
        (9999, Priority.PROD),
        (7000, Priority.MID),
        (7999, Priority.MID),
        (5000, Priority.BATCH),
        (5999, Priority.BATCH),
        (3000, Priority.FREE),
        (3999, Priority.FREE),
    ],
)
def test_each_class_has_a_band_of_a_thousand_priorities(value: int, expected: Priority) -> None:
    assert priority.of({}, value, None) is expected


@pytest.mark.parametrize("value", [-1, 0, 2999, 4000, 6000, 8999, 10000, 2_000_001_000])
def test_a_priority_outside_of_the_bands_leaves_it_to_the_quality_of_service(value: int) -> None:
    assert priority.of({}, value, None) is Priority.NONE
    assert priority.of({}, value, "BestEffort") is Priority.BATCH


@pytest.mark.parametrize("name", ["prod", "mid", "batch", "free"])
def test_the_label_wins_over_everything(name: str) -> None:
    labels = {"koordinator.sh/priority-class": f"koord-{name}", "koordinator.sh/qosClass": "BE"}
    assert priority.of(labels, 9500, "Guaranteed") is Priority[name.upper()]


@pytest.mark.parametrize(
    ("qos", "expected"),
    [
        ("LSE", Priority.PROD),
        ("LSR", Priority.PROD),
        ("LS", Priority.PROD),
        ("SYSTEM", Priority.PROD),
        ("BE", Priority.BATCH),
    ],
)
def test_the_labelled_quality_of_service_wins_over_that_of_kubernetes(qos: str, expected: Priority) -> None:
    other = "BestEffort" if expected is Priority.PROD else "Guaranteed"
    assert priority.of({"koordinator.sh/qosClass": qos}, None, other) is expected


@pytest.mark.parametrize(
    ("qos", "expected"),
    [("Guaranteed", Priority.PROD), ("Burstable", Priority.PROD), ("BestEffort", Priority.BATCH)],
)
def test_the_quality_of_service_of_kubernetes_is_the_last_to_be_asked(qos: str, expected: Priority) -> None:
    assert priority.of({}, None, qos) is expected


def test_a_label_of_no_known_value_says_nothing() -> None:
    labels = {"koordinator.sh/priority-class": "gold", "koordinator.sh/qosClass": "best"}
    assert priority.of(labels, 7500, "Guaranteed") is Priority.MID
    assert priority.of(labels, None, "BestEffort") is Priority.BATCH
    assert priority.of(labels, None, "Perfect") is Priority.NONE
    assert priority.of({}, None, None) is Priority.NONE


def test_whatever_is_not_marked_as_less_owed_counts_as_production() -> None:
    classes = np.array([*Priority, 9, -1], dtype=np.int8)
    assert priority.is_prod(classes).tolist() == [True, True, False, False, False, True, True]
