"""Amounts as Kubernetes writes them: `100m`, `1Gi`, `1.5`, `1e3`. Exact: nothing is rounded before sums are made."""

import re
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

Amounts = dict[str, Decimal]

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_EXACT = Context(prec=200)
_LONGEST = 64
_MOST = Decimal(10) ** 18  # what a message can say; some write 8Ei for "no limit"


def parse(text: object) -> Decimal:
    """Return an amount in base units.

    >>> parse("100m"), parse("1Gi"), parse("1e3"), parse("1E"), parse(2)
    (Decimal('0.100'), Decimal('1073741824'), Decimal('1E+3'), Decimal('1E+18'), Decimal('2'))

    Raises:
        ValueError: It is no quantity. Grammar: apimachinery, `resource.Quantity`.
    """
    written = str(text)
    match = _FORM.fullmatch(written) if len(written) <= _LONGEST else None
    if match is None:
        raise ValueError(f"{written[:_LONGEST]!r} is no quantity; one looks like 100m, 1.5, 1e3 or 1Gi")
    number, exponent, suffix = match.groups()
    if exponent:
        return Decimal(number + exponent)
    if suffix in _BINARY:
        return _EXACT.multiply(Decimal(number), Decimal(1024) ** (_BINARY.index(suffix) + 1))
    return Decimal(number).scaleb(_DECIMAL.get(suffix, 0), _EXACT)


def parse_all(amounts: Mapping[str, Any] | None) -> Amounts:
    """Return amounts by resource; absent means none."""
    return {resource: parse(text) for resource, text in (amounts or {}).items()}


def add(total: Amounts, more: Amounts) -> Amounts:
    """Return the sum by resource."""
    return {name: _EXACT.add(total.get(name, Decimal()), more.get(name, Decimal())) for name in total | more}


def larger(one: Amounts, other: Amounts) -> Amounts:
    """Return the larger amount of each resource."""
    return {name: max(one.get(name, Decimal()), other.get(name, Decimal())) for name in one | other}


def plain(amounts: Amounts) -> dict[str, float]:
    """Return amounts as a message carries them; at most 1e18, which is more than any machine has.

    >>> plain(add(parse_all({"cpu": "100m"}), parse_all({"cpu": "200m"})))
    {'cpu': 0.3}
    """
    return {resource: float(min(amount, _MOST)) for resource, amount in amounts.items()}
