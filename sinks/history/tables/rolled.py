"""Roll-ups as tables: a row for each node (or class) and step of time, made of all rows of a closed hour within it.

All steps are made of the rows themselves and not of one another, so that p95 is a value that was measured. Steps divide
an hour, so a row of a roll-up never reaches over the end of its file's hour.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from schemas import metric
from schemas.sections.service import History
from sinks.history.column import Schema
from sinks.history.tables import capacity

# Of each metric: the mean has the metric's name, so that a query of `samples` asks a roll-up as well.
SUFFIXES = ("", "_min", "_max", "_p95")


@dataclass(frozen=True, slots=True)
class Rolled:
    """One table of roll-ups.

    Attributes:
        name: Name of its folder and of its view.
        source: Table that it is made of.
        columns: Columns of its files.
        query: Returns the statement that makes it of rows of its source (a table or a function's call) and a condition.
        retention_seconds: Age after which an hour of it is deleted, by the settings; 0: none is made.
        by_node: Each of its rows is of one node.
    """

    name: str
    source: str
    columns: Schema
    query: Callable[[str, str], str]
    retention_seconds: Callable[[History], float]
    by_node: bool = True


def _steps(seconds: int, expressions: str) -> Callable[[str, str], str]:
    """Return the query of a row for each node and step of time, which `at_us` begins."""
    step_us = seconds * 1_000_000
    head = f"SELECT node, at_us // {step_us} * {step_us} AS at_us, {expressions}"
    return lambda rows, condition: f"{head} FROM {rows} WHERE {condition} GROUP BY 1, 2 ORDER BY 1, 2"


_NODE: Schema = {"node": pl.String, "at_us": pl.Int64}
_SAMPLES: Schema = {
    **_NODE,
    **dict.fromkeys(("samples", "cpus", "memory_bytes"), pl.Int64),
    **{f"{name}{suffix}": pl.Float64 for name in metric.NAMES for suffix in SUFFIXES},
}
# Agents round what they measure to four decimals; two more are all that a mean of some hundred samples can add.
_OF_SAMPLES = ", ".join(
    (
        "count(*) AS samples, max(cpus) AS cpus, max(memory_bytes) AS memory_bytes",
        *(
            f"round(avg({name}), 6) AS {name}, min({name}) AS {name}_min, max({name}) AS {name}_max, "
            f"quantile_disc({name}, 0.95) AS {name}_p95"
            for name in metric.NAMES
        ),
    )
)
_MINUTES: Schema = {
    **_NODE,
    "reports": pl.Int64,
    **dict.fromkeys(("available", "least_available", "least_lower"), pl.Float64),
    "binding": pl.String,
    "pods": pl.Int64,
    **dict.fromkeys(("cpu_used", "most_cpu_saturation", "most_memory"), pl.Float64),
}
MINUTE_COLUMNS = (
    "count(*) AS reports, avg(available) AS available, min(available) AS least_available, min(lower) AS least_lower, "
    "mode(binding) AS binding, max(pods) AS pods, avg(cpu_used) AS cpu_used, "
    "max(cpu_saturation) AS most_cpu_saturation, max(usage_memory) AS most_memory"
)


def _minutes_seconds(settings: History) -> float:
    return settings.retention_1m_seconds


def _totals(rows: str, condition: str) -> str:
    made = capacity.totals(rows, condition)
    return f"SELECT * EXCLUDE (time) FROM ({made}) ORDER BY at_us, class"  # noqa: S608 # names of our own


SAMPLES_1S = Rolled(
    "samples_1s", "samples", _SAMPLES, _steps(1, _OF_SAMPLES), lambda settings: settings.retention_1s_seconds
)
SAMPLES_10S = Rolled(
    "samples_10s", "samples", _SAMPLES, _steps(10, _OF_SAMPLES), lambda settings: settings.retention_10s_seconds
)
SAMPLES_1M = Rolled("samples_1m", "samples", _SAMPLES, _steps(60, _OF_SAMPLES), _minutes_seconds)
MINUTES = Rolled("availability_minutes", "availability", _MINUTES, _steps(60, MINUTE_COLUMNS), _minutes_seconds)
CLUSTER = Rolled(
    "cluster_steps",
    "availability",
    capacity.TOTALS,
    _totals,
    _minutes_seconds,
    by_node=False,
)
# The finest first, with their seconds.
OF_SAMPLES: Mapping[int, Rolled] = {1: SAMPLES_1S, 10: SAMPLES_10S, 60: SAMPLES_1M}
ROLLED = (*OF_SAMPLES.values(), MINUTES, CLUSTER)
BY_NAME = {rolled.name: rolled for rolled in ROLLED}
