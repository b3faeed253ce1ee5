"""When a figure is worth a write.

An API server is no place for figures that move all the time. What has moved by more than a share of what is written,
or says something else altogether, is written when it is next looked at; what has moved at all, when the last write is
long ago; and what is the same, never. The rule is Koordinator's for its extended resources
(`processors.prediction.tier.mid.write` has it as it is), but that the same is not written again.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from kube import quantity

Leaf = float | str
Leaves = dict[str, Leaf]


class Rule(NamedTuple):
    """What counts as a change.

    Attributes:
        diff: Share of what is written that is too little a move.
        force_seconds: After so long any move counts.
    """

    diff: float
    force_seconds: float


def nothing(_: str) -> float:
    """Say that a share is of what is written alone."""
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
        old: What is written, by name.
        new: What should be.
        waited: Seconds since the last write.
        rule: What counts.
        least: Says of a name what a share is taken of at least.

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
    found: Leaves = {}
    _flatten(thing, prefix, found)
    return found


def _flatten(thing: object, prefix: str, found: Leaves) -> None:
    if isinstance(thing, dict):
        for name, value in thing.items():
            _flatten(value, f"{prefix}.{name}" if prefix else str(name), found)
    elif isinstance(thing, int | float):
        found[prefix] = float(thing)
    else:
        found[prefix] = _leaf(str(thing))


@lru_cache(maxsize=1 << 14)
def _leaf(text: str) -> Leaf:
    try:
        return float(quantity.parse(text))
    except ValueError:
        return text
