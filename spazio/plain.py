"""Values of SQL as values of JSON, and rows of them as lines of CSV."""

import base64
import csv
import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import SimpleNamespace
from uuid import UUID

_WHOLE = 2**53  # up to which each whole number is a number of a browser
# A CSV writer returns what `write` does. It quotes what may end a line, which a carriage return does for some readers.
_LINES = SimpleNamespace(write=lambda row: f"{row[:-2]}\n")


def distinct(names: Sequence[str]) -> list[str]:
    """Number repeated names, so that each is a key of its own.

    >>> distinct(["a", "a", "b", "a_1", "a"])
    ['a', 'a_1', 'b', 'a_1_1', 'a_2']
    """
    taken = dict[str, None]()
    for name in names:
        names_of_it = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(1)))
        taken[next(each for each in names_of_it if each not in taken)] = None
    return list(taken)


def value(given: object) -> object:
    """Return a value that JSON represents; None for numbers that it cannot, also inside lists and structs.

    Raises:
        TypeError: The type has no form in JSON.
    """
    if given is None or isinstance(given, str | bool | int):
        return given
    if isinstance(given, float):
        return given if math.isfinite(given) else None
    if isinstance(given, list | tuple):
        return [value(item) for item in given]
    if isinstance(given, dict):
        return {_key(key): value(item) for key, item in given.items()}
    return _scalar(given)


def exact(given: object) -> object:
    """Return a value of JSON with whole numbers as text where a browser, whose numbers have 53 bits, would change them.

    >>> exact([2**53, 2**53 + 1, {"id": -(2**60)}])
    [9007199254740992, '9007199254740993', {'id': '-1152921504606846976'}]
    """
    if isinstance(given, int):
        return given if -_WHOLE <= given <= _WHOLE else str(given)
    if isinstance(given, list):
        return [exact(item) for item in given]
    if isinstance(given, dict):
        return {key: exact(item) for key, item in given.items()}
    return given


def csv_lines(rows: Iterable[Sequence[object]], shown: Callable[[str], str] = str) -> Iterator[str]:
    r"""Yield rows as lines of CSV; what is missing is empty, lists and maps are JSON, and texts as they are `shown`.

    >>> list(csv_lines([("a", "b"), ("x\ry", [1, None])]))
    ['a,b\n', '"x\ry","[1, null]"\n']
    """
    writer = csv.writer(_LINES)
    for row in rows:
        yield writer.writerow([_field(given, shown) for given in row])


def _field(given: object, shown: Callable[[str], str]) -> object:
    if isinstance(given, str):
        return shown(given)
    if given is None or isinstance(given, bool | int | float):
        return given
    converted = value(given)
    return json.dumps(converted) if isinstance(converted, list | dict) else converted


def _scalar(given: object) -> object:
    if isinstance(given, datetime | date | time):
        return given.isoformat()
    if isinstance(given, timedelta):
        return given.total_seconds()
    if isinstance(given, Decimal):
        return float(given)
    if isinstance(given, bytes):
        return base64.b64encode(given).decode()
    if isinstance(given, UUID):
        return str(given)
    raise TypeError(f"a {type(given).__name__} has no form in JSON; cast it in SQL")


def _key(key: object) -> str:
    """Return the key of a map as text, as JSON needs it."""
    return key.isoformat() if isinstance(key, datetime | date | time) else str(key)
