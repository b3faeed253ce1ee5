"""Decides when a change is worth a write to the API server.

An API server does not suit values that change all the time. A value is written if it differs from the written one by
more than a share, or if its text differs; smaller changes are written if the last write is long ago; equal values are
never written. This is Koordinator's rule for its extended resources (`processors.prediction.tier.mid.write` has it
unchanged), except that Koordinator repeats equal values.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from kube import quantity

Leaf = float | str
Leaves = dict[str, Leaf]


class Rule(NamedTuple):
    """Thresholds of changes.

    Attributes:
        diff: Largest share of the written value that is not a change.
        force_seconds: Time after which any difference is a change.
    """

    diff: float
    force_seconds: float


def nothing(_: str) -> float:
    """Return 0: the share is of the written value alone."""
    return 0.0


def due(
    old: Mapping[str, Leaf],
    new: Mapping[str, Leaf],
    waited: float,
    rule: Rule,
    least: Callable[[str], float] = nothing,
) -> bool:
    """Tell whether to write.

    Args:
        old: Written values, by name.
        new: Wanted values, by name.
        waited: Seconds since the last write.
        rule: Thresholds.
        least: Returns the least reference of the share for a name.

    >>> rule = Rule(0.1, 300)
    >>> [due({"cpu": 100.0}, {"cpu": cpu}, waited, rule) for cpu, waited in ((110, 1), (111, 1), (101, 301))]
    [False, True, True]
    """
    if old == new:
        return False
    if old.keys() != new.keys() or waited >= rule.force_seconds:
        return True
    return any(_moved(old[name], new[name], rule.diff, least(name)) for name in new)


def _moved(before: Leaf, after: Leaf, diff: float, least: float) -> bool:
    if isinstance(before, str) or isinstance(after, str):
        return before != after
    return before != after and abs(after - before) > diff * max(abs(before), least)


def leaves(thing: object, prefix: str = "") -> Leaves:
    """Return the leaves of nested objects by dotted path; quantities and numbers as numbers, others as text.

    >>> leaves({"peak": {"cpu": "1500m"}, "binding": "memory"})
    {'peak.cpu': 1.5, 'binding': 'memory'}
    """
    result: Leaves = {}
    _flatten(thing, prefix, result)
    return result


def _flatten(thing: object, prefix: str, result: Leaves) -> None:
    if isinstance(thing, dict):
        for name, value in thing.items():
            _flatten(value, f"{prefix}.{name}" if prefix else str(name), result)
    elif isinstance(thing, int | float):
        result[prefix] = float(thing)
    else:
        result[prefix] = _leaf(str(thing))


@lru_cache(maxsize=1 << 14)
def _leaf(text: str) -> Leaf:
    try:
        return float(quantity.parse(text))
    except ValueError:
        return text
