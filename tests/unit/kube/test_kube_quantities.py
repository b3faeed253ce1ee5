"""Quantities of Kubernetes are read exactly, or refused."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube import quantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", "0"), ("4", "4"), ("1.5", "1.5"), (".5", "0.5"), ("5.", "5"), ("+2", "2"), ("-1", "-1"),
        ("100n", "1e-7"), ("100u", "1e-4"), ("100m", "0.1"), ("1k", "1000"), ("1M", "1e6"), ("1G", "1e9"),
        ("1T", "1e12"), ("1P", "1e15"), ("1E", "1e18"), ("1e3", "1000"), ("1E3", "1000"), ("12e-1", "1.2"),
        ("1Ki", "1024"), ("1.5Gi", "1610612736"), ("1Ei", "1152921504606846976"), (7, "7"), (0.5, "0.5"),
    ],
)  # fmt: skip
def test_a_quantity_is_read_exactly(text: object, amount: str) -> None:
    assert quantity.parse(text) == Decimal(amount)


@pytest.mark.parametrize(
    "text", ["", "m", "1 Gi", "1gi", "1KI", "0x1", "1e", "1e9999", "NaN", "inf", "1" * 65, None, []]
)
def test_what_is_no_quantity_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        quantity.parse(text)


@given(st.lists(st.integers(0, 10**6), max_size=20))
def test_sums_are_exact_whatever_the_order(millis: list[int]) -> None:
    total: quantity.Amounts = {"cpu": Decimal()}
    for milli in millis:
        total = quantity.add(total, quantity.parse_all({"cpu": f"{milli}m"}))
    assert quantity.plain(total) == {"cpu": sum(millis) / 1000}


def test_no_amount_is_more_than_a_message_can_hold() -> None:
    assert quantity.plain(quantity.parse_all({"memory": "8Ei"})) == {"memory": 1e18}
