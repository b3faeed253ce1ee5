"""How settings and annotations choose strategies: `name`, `name=weight` or `name(option=number;...)=weight`, + between.

Options replace what the settings say of the same thing, for this profile or pod alone: factors of `weighted`, resources
of the allocation strategies, the curve of `requested_to_capacity_ratio`, the target of `target_load_packing`.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

StrategyName = Literal[
    "availability",
    "weighted",
    "most_allocated",
    "least_allocated",
    "requested_to_capacity_ratio",
    "target_load_packing",
    "peak",
]
STRATEGIES: tuple[str, ...] = get_args(StrategyName)
FACTORS = ("fit", "disk", "network", "price", "stability", "priority")
AVAILABLE = "available"  # the option of `weighted` that is no factor
TARGET = "target"
LONGEST = 2000  # characters: all strategies with an option for each of their numbers take fewer

_TERM = re.compile(r"(?P<name>\w+)(?:\((?P<options>[^()]*)\))?(?:=(?P<weight>[^()=]+))?")


class Term(NamedTuple):
    """A strategy.

    Attributes:
        weight: Above 0.
        options: Numbers by name; empty: what the settings say.
    """

    weight: float
    options: Mapping[str, float]


def terms(text: str) -> dict[str, Term]:
    """Read strategies with their weights and options.

    >>> terms("availability=2+weighted(price=3;fit=1)")["weighted"]
    Term(weight=1.0, options={'price': 3.0, 'fit': 1.0})

    Raises:
        ValueError: A strategy or an option is unknown, a number is out of range, or the text is too long.
    """
    if len(text) > LONGEST:
        raise ValueError(f"has {len(text)} characters, and may have {LONGEST}")
    result: dict[str, Term] = {}
    for part in text.split("+"):
        match = _TERM.fullmatch(part.strip())
        name, weight = (match["name"], _number(match["weight"] or "1")) if match else ("", -1.0)
        if match is None or name not in STRATEGIES or not 0 < weight < 1e6:
            raise ValueError(f"{part!r} is not name or name=weight, a name out of {', '.join(STRATEGIES)}")
        options = pairs(tuple(match["options"].split(";"))) if match["options"] else {}
        _check(name, options)
        result[name] = Term(weight, options)
    return result


def pairs(entries: tuple[str, ...]) -> dict[str, float]:
    """Read `name=number` entries.

    Raises:
        ValueError: An entry has another form.
    """
    result = {}
    for entry in entries:
        name, _, number = entry.strip().partition("=")
        try:
            result[name] = float(number)
        except ValueError:
            raise ValueError(f"{entry!r} is not name=number") from None
    return result


def factors(weights: Mapping[str, float]) -> None:
    """Check weights of factors.

    Raises:
        ValueError: One is unknown, or a weight is below 0.
    """
    if set(weights) - set(FACTORS) or not all(0 <= weight < 1e6 for weight in weights.values()):
        raise ValueError(f"are name=weight, names out of {', '.join(FACTORS)}, weights not below 0")


def resources(weights: Mapping[str, float]) -> None:
    """Check weights of resources.

    Raises:
        ValueError: There is none, or a weight is out of range.
    """
    if not weights or any(not name or not 1 <= weight <= 100 for name, weight in weights.items()):
        raise ValueError("are resource or resource=weight with commas between, weights from 1 to 100")


def shape(entries: tuple[str, ...]) -> None:
    """Check the points of a curve, utilization=score.

    Raises:
        ValueError: They are no whole numbers, do not rise, or are out of range.
    """
    points: list[tuple[float, float]] = []
    for entry in entries:
        utilization, _, score = entry.partition("=")
        try:
            points.append((int(utilization), int(score)))
        except ValueError:
            raise ValueError(f"{entry!r} is not utilization=score, in whole numbers") from None
    rising = all(before[0] < after[0] for before, after in pairwise(points))
    if not points or not rising or any(not (0 <= u <= 100 and 0 <= s <= 10) for u, s in points):
        raise ValueError("is utilization=score with commas between, utilizations rising in 0..100, scores in 0..10")


def curve(options: Mapping[str, float]) -> tuple[str, ...]:
    """Return the points among options, whose names are whole numbers, as the setting `extender.shape` has them."""
    return tuple(f"{name}={score:g}" for name, score in options.items() if name.isdecimal())


def named(options: Mapping[str, float]) -> dict[str, float]:
    """Return the options that are no points of a curve."""
    return {name: number for name, number in options.items() if not name.isdecimal()}


def _check(name: str, options: Mapping[str, float]) -> None:
    if not options:
        return
    if name == "weighted":
        factors({factor: weight for factor, weight in options.items() if factor != AVAILABLE})
        if not 0 <= options.get(AVAILABLE, 0.0) <= 1:
            raise ValueError(f"{AVAILABLE}={options[AVAILABLE]:g} is not a share from 0 to 1")
    elif name in ("most_allocated", "least_allocated"):
        resources(options)
    elif name == "requested_to_capacity_ratio":
        if points := curve(options):
            shape(points)
        if amounts := named(options):
            resources(amounts)
    elif name == "target_load_packing" and set(options) == {TARGET} and 0 < options[TARGET] < 1:
        return
    else:
        raise ValueError(f"{name} does not take {', '.join(f'{key}={value:g}' for key, value in options.items())}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0
