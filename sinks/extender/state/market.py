"""Past prices and interruptions of each market, from the history of the cluster's nodes.

Nodes of one instance type, zone and kind of capacity (spot or not) form a market. Each row of the history is a state of
a node, which lasts until its next row. Therefore

- the median price of a market is the median of its prices, weighted by the time that each was paid; of two middle
  prices, the lower one;
- the interruption rate is the number of reclaimed spot nodes per hour of all spot nodes. A node is reclaimed when its
  first notice comes (a taint), or when it is deleted without a notice; nodes that the cluster autoscaler was about to
  remove do not count.
"""

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import polars as pl

log = logging.getLogger(__name__)

MEDIAN, RATE = "spazio.median-price", "spazio.interruption-rate"
SPOT = "spazio.spot"
# Labels of providers and provisioners, with the value that marks spot capacity.
_SPOT = {
    "karpenter.sh/capacity-type": "spot",
    "eks.amazonaws.com/capacityType": "spot",
    "cloud.google.com/gke-spot": "true",
    "cloud.google.com/gke-preemptible": "true",
    "kubernetes.azure.com/scalesetpriority": "spot",
}
_NOTICES = ("aws-node-termination-handler/spot-itn", "cloud.google.com/impending-node-termination")
_REMOVED = "ToBeDeletedByClusterAutoscaler"
_COLUMNS = ("node", "uid", "version", "deleted", "at_us", "labels", "taints", "price", "type", "zone")
_HOUR_US = 3_600_000_000
_LISTINGS = 3  # compaction may remove listed files, whose rows are then in a new file


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
    """Past figures of all markets."""

    kinds: Mapping[Kind, Past] = field(default_factory=dict)

    def of(self, labels: Mapping[str, str], type: str | None, zone: str | None, annotations: Mapping[str, str]) -> Past:  # noqa: A002 # as NodeFacts names it
        """Return median price and interruption rate of a node; numeric annotations of the node win."""
        past = self.kinds.get(Kind(type, zone, spot(labels)), Past())
        price, rate = (_number(name, annotations[name]) if name in annotations else math.nan for name in (MEDIAN, RATE))
        return Past(past.price if math.isnan(price) else price, past.rate if math.isnan(rate) else rate)


def spot(labels: Mapping[str, str]) -> bool:
    """Tell whether a node's capacity may be reclaimed at short notice; the label `spazio.spot` wins over others.

    >>> spot({"cloud.google.com/gke-spot": "true"}), spot({"spazio.spot": "false", "cloud.google.com/gke-spot": "true"})
    (True, False)
    """
    if SPOT in labels:
        return labels[SPOT].lower() == "true"
    return any(labels.get(key, "").lower() == value for key, value in _SPOT.items())


def read(folder: Path, since_us: int, until_us: int | None = None) -> Market:
    """Read the history of nodes. This reads files and blocks: call it in a thread.

    Args:
        folder: The table: `<history>/nodes`. Unreadable files are logged and skipped.
        since_us: Start of the window; states that began earlier count from here.
        until_us: End of the window; None: now.
    """
    rows = _rows(folder)
    if rows is None:
        return Market()
    end = time.time_ns() // 1000 if until_us is None else until_us
    states = _states(rows, since_us, end)
    return Market(_kinds(states, since_us, end))


def _rows(folder: Path) -> pl.DataFrame | None:
    """Return all states; None: there is no file. A state in two files appears twice, the first with no duration."""
    frames_by_path: dict[Path, pl.DataFrame | None] = {}
    for _ in range(_LISTINGS):
        gone = False
        for path in sorted(set(folder.glob("date=*/hour=*/*.parquet")) - frames_by_path.keys()):
            try:
                frames_by_path[path] = pl.read_parquet(path, columns=list(_COLUMNS), hive_partitioning=False).select(
                    _plain()
                )
            except FileNotFoundError:
                gone = True
            except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
                log.warning("market.file_ignored", extra={"file": str(path), "reason": str(error)[:300]})
                frames_by_path[path] = None
        if not gone:
            break
    frames = [frame for frame in frames_by_path.values() if frame is not None]
    return pl.concat(frames) if frames else None


def _plain() -> list[pl.Expr]:
    """Return the expressions for the used columns, in types common to all files."""
    labels, keys = pl.col("labels").map, pl.col("taints").list.eval(pl.element().struct.field("key"))
    by_provider = pl.any_horizontal(
        (labels.get(key).str.to_lowercase() == value).fill_null(value=False) for key, value in _SPOT.items()
    )
    own_label = labels.get(SPOT).str.to_lowercase() == "true"
    return [
        pl.col("node", "uid", "type", "zone").cast(pl.String),
        pl.col("version", "at_us").cast(pl.Int64),
        pl.col("deleted").cast(pl.Boolean),
        pl.col("price").cast(pl.Float64),
        own_label.fill_null(by_provider).alias("spot"),
        keys.list.eval(pl.element().is_in(_NOTICES)).list.any().fill_null(value=False).alias("noticed"),
        keys.list.contains(_REMOVED).fill_null(value=False).alias("removed"),
    ]


def _states(rows: pl.DataFrame, since_us: int, end: int) -> pl.DataFrame:
    """Return states with their hours within the window, and the time at which their node was gone, if it was."""
    following = pl.col("at_us").shift(-1).over("node")
    replaced = pl.col("uid").shift(-1).over("node") != pl.col("uid")
    return (
        rows.sort("node", "at_us", "deleted", "version")
        .with_columns(
            stop=pl.min_horizontal(following.fill_null(end), pl.lit(end)),
            gone=pl.when("deleted").then("at_us").when(replaced).then(following),
        )
        .with_columns(
            hours=pl.when("deleted")
            .then(0.0)
            .otherwise((pl.col("stop") - pl.col("at_us").clip(since_us)).clip(0) / _HOUR_US)
        )
    )


def _kinds(states: pl.DataFrame, since_us: int, end: int) -> dict[Kind, Past]:
    key = ("type", "zone", "spot")
    priced = (
        states.filter((pl.col("hours") > 0) & pl.col("price").is_not_null())
        .sort("price")
        .filter(pl.col("hours").cum_sum().over(key) >= pl.col("hours").sum().over(key) / 2)
        .group_by(key)
        .agg(pl.col("price").first())
    )
    hours = states.filter(pl.col("hours") > 0).group_by(key).agg(pl.col("hours").sum())
    taken = (
        states.with_columns(lost=pl.when("noticed").then("at_us").otherwise("gone"))
        .filter("spot")
        .group_by("node", "uid")
        .agg(pl.col("lost").min(), pl.col("noticed", "removed").any(), pl.col("type", "zone", "spot").last())
        .filter(pl.col("lost").is_between(since_us, end), pl.col("noticed") | ~pl.col("removed"))
        .group_by(key)
        .agg(pl.len().alias("taken"))
    )
    every = hours.join(priced, on=key, how="left", nulls_equal=True).join(taken, on=key, how="left", nulls_equal=True)
    return {
        Kind(kind, zone, is_spot): Past(math.nan if price is None else price, (taken or 0) / hours)
        for kind, zone, is_spot, hours, price, taken in every.iter_rows()
    }


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
