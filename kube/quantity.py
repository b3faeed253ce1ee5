"""Amounts as Kubernetes writes them: `100m`, `1Gi`, `1.5`, `1e3`. Exact: nothing is rounded before sums are made."""

import re
from collections.abc import Mapping
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

Amounts = dict[str, Decimal]

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei))?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_EXACT = Context(prec=200)
_LONGEST = 64
_RESOURCES = 256  # no message holds more
_MOST = Decimal(10) ** 18  # what a message can say; some write 8Ei for "no limit"


def parse(text: object) -> Decimal:
    """Return an amount in base units.

    >>> parse("100m"), parse("1Gi"), parse("1e3"), parse("1E"), parse(2)
    (Decimal('0.100'), Decimal('1073741824'), Decimal('1E+3'), Decimal('1E+18'), Decimal('2'))

    Raises:
        ValueError: It is no quantity. Grammar: apimachinery, `resource.Quantity`.
    """
    return _parse(str(text)[: _LONGEST + 1])


@lru_cache(maxsize=4096)  # a cluster writes few amounts, and each of them often
def _parse(written: str) -> Decimal:
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
    """Return the sum by resource; raises as `increase`."""
    return increase(dict(total), more)


def increase(total: Amounts, more: Amounts) -> Amounts:
    """Add to a sum by resource, in place; returns it.

    Raises:
        ValueError: They are more resources than any pod has.
    """
    for name, amount in more.items():
        total[name] = _EXACT.add(total.get(name, Decimal()), amount)
    return _bounded(total)


def larger(left: Amounts, right: Amounts) -> Amounts:
    """Return the larger amount of each resource.

    Raises:
        ValueError: As `increase`.
    """
    return _bounded({name: max(left.get(name, Decimal()), right.get(name, Decimal())) for name in left | right})


def _bounded(amounts: Amounts) -> Amounts:
    """Refuse what would take long to sum up, container by container."""
    if len(amounts) > _RESOURCES:
        raise ValueError(f"requests and limits are of more than {_RESOURCES} resources")
    return amounts


def plain(amounts: Amounts) -> dict[str, float]:
    """Return amounts as a message carries them; at most 1e18, which is more than any machine has.

    >>> plain(add(parse_all({"cpu": "100m"}), parse_all({"cpu": "200m"})))
    {'cpu': 0.3}
    """
    return {resource: float(min(amount, _MOST)) for resource, amount in amounts.items()}
