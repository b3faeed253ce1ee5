"""Past prices and interruptions of each market, as the history sink publishes them.

Nodes of one instance type, zone and kind of capacity (spot or not) form a market. A market of few node-hours says
little: its past counts as unknown. Numeric annotations of a node win over its market.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from kube import spot
from schemas.messages.market import Markets

log = logging.getLogger(__name__)

STALE_SECONDS = 1800.0  # three periods of the history sink
MEDIAN, RATE = "spazio.median-price", "spazio.interruption-rate"


class Kind(NamedTuple):
    """The key of a market."""

    type: str | None
    zone: str | None
    spot: bool


class Past(NamedTuple):
    """Past figures of a market; NaN: unknown.

    Attributes:
        price: Median price per hour.
        rate: Interruptions per hour.
    """

    price: float = math.nan
    rate: float = math.nan


@dataclass(frozen=True, slots=True)
class Market:
    """Past figures of all markets.

    Attributes:
        kinds: Those with enough evidence.
        at_us: When they were computed; 0: nothing was published yet.
    """

    kinds: Mapping[Kind, Past] = field(default_factory=dict)
    at_us: int = 0

    def is_stale(self, now_us: int) -> bool:
        """Tell whether nothing was published for long."""
        return abs(now_us - self.at_us) > STALE_SECONDS * 1e6

    def of(self, labels: Mapping[str, str], type: str | None, zone: str | None, annotations: Mapping[str, str]) -> Past:  # noqa: A002 # as NodeFacts names it
        """Return median price and interruption rate of a node; numeric annotations of the node win."""
        past = self.kinds.get(Kind(type, zone, spot.is_spot(labels)), Past())
        price, rate = (_number(name, annotations[name]) if name in annotations else math.nan for name in (MEDIAN, RATE))
        return Past(past.price if math.isnan(price) else price, past.rate if math.isnan(rate) else rate)


def of_message(message: Markets, *, least_hours: float) -> Market:
    """Return the markets of a message that have at least so many node-hours."""
    observed = [market for market in message.markets if market.hours >= least_hours and market.hours > 0]
    kinds = {
        Kind(market.type, market.zone, market.spot): Past(
            math.nan if market.price is None else market.price, market.interruptions / market.hours
        )
        for market in observed
    }
    return Market(kinds, message.at_us)


@lru_cache(maxsize=4096)  # cached, so that an invalid number is logged once, not for every pod
def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        log.warning(
            "market.annotation_unreadable",
            extra={"annotation": name, "value": text[:64], "wanted": "a number from 0 up, such as 0.12"},
        )
        return math.nan
    return number
