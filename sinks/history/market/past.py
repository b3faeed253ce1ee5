"""Past prices and interruptions of each market, from the history of the cluster's nodes.

Nodes of one instance type, zone and kind of capacity (spot or not) form a market. Each row of the history is a state of
a node, which lasts until its next row. Therefore

- the median price of a market is the median of its prices, weighted by the time that each was paid; of two middle
  prices, the lower one;
- interruptions are the reclaimed spot nodes; their rate is per hour of all spot nodes. A node is reclaimed when its
  first notice comes (a taint), or when it is deleted without a notice; nodes that the cluster autoscaler was about to
  remove do not count.
"""

import logging
from pathlib import Path

import polars as pl

from kube import spot
from schemas.messages.market import MAXIMUM_MARKETS, Market, Markets

log = logging.getLogger(__name__)

_NOTICES = ("aws-node-termination-handler/spot-itn", "cloud.google.com/impending-node-termination")
_REMOVED = "ToBeDeletedByClusterAutoscaler"
_COLUMNS = ("node", "uid", "version", "deleted", "at_us", "labels", "taints", "price", "type", "zone")
_HOUR_US = 3_600_000_000
_LISTINGS = 3  # compaction may remove listed files, whose rows are then in a new file


def read(folder: Path, since_us: int, until_us: int) -> Markets:
    """Read the history of nodes. This reads files and blocks: call it in a thread.

    Args:
        folder: The table: `<history>/nodes`. Unreadable files are logged and skipped.
        since_us: Start of the window; states that began earlier count from here.
        until_us: End of the window.
    """
    rows = _rows(folder)
    markets = [] if rows is None else _markets(_states(rows, since_us, until_us), since_us, until_us)
    return Markets(at_us=until_us, since_us=since_us, markets=markets)


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
        (labels.get(key).str.to_lowercase() == value).fill_null(value=False) for key, value in spot.OF_PROVIDERS.items()
    )
    own_label = labels.get(spot.LABEL).str.to_lowercase() == "true"
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


def _markets(states: pl.DataFrame, since_us: int, end: int) -> list[Market]:
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
    largest = every.sort("hours", *key, descending=[True, False, False, False]).head(MAXIMUM_MARKETS)
    return [
        Market(type=kind, zone=zone, spot=is_spot, hours=hours, price=price, interruptions=taken or 0)
        for kind, zone, is_spot, hours, price, taken in largest.iter_rows()
    ]
