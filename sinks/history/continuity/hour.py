"""The hours by which rows are written to files, so many at most that no node can cost the disk a file for each row."""

import polars as pl
from prometheus_client import Counter

from sinks.history.layout import HOUR_US

MOST = 24  # that have files of their own in one write of a table

ODD = Counter("spazio_history_odd_rows_total", "rows of rare hours, stored in the files of another hour")


def of_rows(at_us: pl.Series, most: int) -> pl.Series:
    """Return the hour of each row, by which rows are written to files.

    Each file is synced, which takes time. The `most` frequent hours have files of their own. Rows of all others, which
    come from wrong clocks or malicious nodes, join the newest of these. 0: every hour has a file of its own. The result
    depends on nothing but the rows: a write that is repeated has to make the same files.
    """
    hours = at_us // HOUR_US
    counts = hours.value_counts().sort("count", hours.name, descending=True)
    if not most or counts.height <= most:
        return hours
    own = counts[hours.name].head(most)
    ODD.inc(hours.len() - int(counts["count"].head(most).sum()))
    return pl.select(pl.when(hours.is_in(own.to_list())).then(hours).otherwise(own.max()).alias(hours.name)).to_series()
