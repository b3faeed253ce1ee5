"""Availability in merged files: the digits that say something, and columns of their own for each class.

A list alternates between the numbers of its classes, which differ by more than those of one class do in an hour. In a
merged file the n-th class of a row has columns of its own, `class_<n>_<field>`, in which the neighbour of a number is
the same class a report earlier; `classes` has only what a row has beyond `PLACES`. `cpu_saturation` is `usage_cpu`, so
it is stored once. Views give all columns back. ADR 48 says which digits are dropped, and why.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import polars as pl

from schemas.sections.estimation import FEATURES
from sinks.history.column import Schema
from sinks.history.tables import estimate

TABLE = "availability"
PLACES = 8
_FIELDS = {field.name: field.dtype for field in estimate.ROOM.fields}


class Digits(NamedTuple):
    """Digits behind the point that are kept.

    Attributes:
        kept: So many.
        published: If not 0, the rest of so many digits is cut off; else the number is rounded.
    """

    kept: int
    published: int = 0


# What is compared with round numbers is cut, so that each comparison says the same as before: pods with whole pods,
# usage with a threshold as 0.97.
_PODS, _USAGE = Digits(2, published=4), Digits(3, published=6)
_RATIO, _SHARE, _COST = Digits(3), Digits(4), Digits(7)
DIGITS: Mapping[str, Digits] = {
    **dict.fromkeys(("available", "lower", "upper", "signal"), _PODS),
    "cost": _COST,
    **dict.fromkeys(("capacity", "free_cpu", "free_memory"), _SHARE),
    **dict.fromkeys(("prior", "explained", "gap"), _RATIO),
    **dict.fromkeys(("cpu_used", *(f"usage_{feature}" for feature in FEATURES)), _USAGE),
}
CLASS_DIGITS: Mapping[str, Digits] = {"available": _PODS, "lower": _PODS, "cpu": _COST, "memory": _COST}


def _column(number: int, field: str) -> str:
    return f"class_{number}_{field}"


COLUMNS: Schema = {_column(number, field): kind for number in range(1, PLACES + 1) for field, kind in _FIELDS.items()}


def places(columns: Collection[str]) -> int:
    """Return the number of classes that have columns of their own among these.

    >>> places(["node", "class_1_class", "class_2_class", "classes"])
    2
    """
    return sum(_column(number, "class") in columns for number in range(1, PLACES + 1))


def public(columns: Collection[str]) -> str:
    """Return what a query selects of files with these columns so that rows have the table's columns."""
    replaced = []
    if "cpu_saturation" in columns:
        replaced.append("coalesce(cpu_saturation, usage_cpu) AS cpu_saturation")
    own = places(columns)
    if not own:
        return _selected((), replaced)
    excluded = [_column(number, field) for number in range(1, own + 1) for field in _FIELDS]
    return _selected(excluded, [*replaced, f"{_listed(own)} AS classes"])


def stored(columns: Collection[str], most: int) -> str:
    """Return what a query selects of rows with the table's columns so that a merged file has them.

    Args:
        columns: Columns of the rows; those of older versions lack some.
        most: Classes of the row that has most of them.
    """
    own = min(most, PLACES) if "classes" in columns else 0
    replaced = [f"{_shortened(name, digits)} AS {name}" for name, digits in DIGITS.items() if name in columns]
    if own:
        # DuckDB takes a list's end as included, and one beyond the list as its end.
        rest = f"CASE WHEN len(classes) > {own} THEN classes[{own + 1}:] WHEN len(classes) = 0 THEN classes END"
        replaced.append(f"{rest} AS classes")
    excluded = ["cpu_saturation"] if {"cpu_saturation", "usage_cpu"} <= set(columns) else []
    added = [
        f"{_shortened(f'classes[{number}].{field}', CLASS_DIGITS.get(field))} AS {_column(number, field)}"
        for number in range(1, own + 1)
        for field in _FIELDS
    ]
    return ", ".join([_selected(excluded, replaced), *added])


def _selected(excluded: Collection[str], replaced: Collection[str]) -> str:
    without = f" EXCLUDE ({', '.join(excluded)})" if excluded else ""
    return f"*{without} REPLACE ({', '.join(replaced)})" if replaced else f"*{without}"


def _shortened(number: str, digits: Digits | None) -> str:
    if digits is None:
        return number
    if not digits.published:
        return f"round({number}, {digits.kept})"
    # Of whole numbers, since 2.3 * 100 is less than 230. What is too large for digits stays as it is.
    scale, step = 10**digits.published, 10 ** (digits.published - digits.kept)
    cut = f"floor(round({number} * {scale}) / {step}) / {10**digits.kept}"
    return f"CASE WHEN {number} < 1e9 THEN {cut} ELSE {number} END"


def _listed(own: int) -> str:
    """Return the list of a row's classes: of those in columns of their own, and of the rest behind them."""
    cases = ["CASE WHEN class_1_class IS NULL THEN classes"]
    cases += [f"WHEN {_column(number + 1, 'class')} IS NULL THEN {_rooms(number)}" for number in range(1, own)]
    return " ".join([*cases, f"ELSE {_rooms(own)} || coalesce(classes, []) END"])


def _rooms(count: int) -> str:
    return f"[{', '.join(map(_room, range(1, count + 1)))}]"


def _room(number: int) -> str:
    fields = [
        f'"{field}" := {_column(number, field)}{"::DOUBLE" if kind == pl.Float64 else ""}'
        for field, kind in _FIELDS.items()
    ]
    return f"struct_pack({', '.join(fields)})"
