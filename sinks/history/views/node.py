"""Views of nodes: the newest row of each, and availability by the minute.

`node_now` has every node of the last day that was recorded, with the age of its row against the newest row of all that
is not of the future, so that it says the same of a history that was copied or replayed; `class_now` has the classes of
these rows. Both look for the last minute of each node first: in the roll-up, and in the rows of hours that have none.
Then they read the hours in which a node has its last minute, which is one hour as long as no node has left.
`availability_1m` keeps the least room of a minute beside the mean, since a mean hides the second in which nothing
fitted. Closed hours come from their roll-up; an hour with a file that has none, as the current one, and one with rows
that came late, comes from its rows.
"""

from pathlib import Path

from sinks.history.tables import capacity
from sinks.history.tables.rolled import MINUTE_COLUMNS, MINUTES
from sinks.history.views import listing, present

# What the views read besides the columns of the first version.
COLUMNS = frozenset({"cpu_used", "cpu_saturation", "usage_memory"})

_DAY_US, _MINUTE_US = 86_400_000_000, 60_000_000
_PIECE = "SELECT node, date, hour, max(at_us) AS at_us FROM"


def now(directory: Path, *, rolled: bool) -> str:
    """Return the statement that creates `node_now`; arguments as of `minutes`."""
    return f"""
CREATE VIEW node_now AS
WITH {_latest(directory, rolled=rolled)}
SELECT node, first(time) AS time, greatest(0, any_value(newest.at_us) - any_value(latest.at_us)) / 1e6 AS age_seconds,
    first(available) AS available, first(lower) AS lower, first(upper) AS upper, first(binding) AS binding,
    first(pods) AS pods, first(cpu_used) AS cpu_used, first(cpu_saturation) AS cpu_saturation,
    first(usage_memory) AS usage_memory
FROM availability JOIN latest USING (node, date, hour, at_us), newest
WHERE latest.at_us > newest.at_us - {_DAY_US}
GROUP BY node
"""  # noqa: S608 # names of our own, and quoted paths


def classes(directory: Path, *, rolled: bool) -> str:
    """Return the statement that creates `class_now`; arguments as of `minutes`."""
    rows = f"""(
    SELECT node, at_us, date, hour, first(time) AS time, first(free_cpu) AS free_cpu, first(free_memory) AS free_memory,
        first(classes) AS classes
    FROM availability JOIN latest USING (node, date, hour, at_us), newest
    WHERE latest.at_us > newest.at_us - {_DAY_US}
    GROUP BY ALL
)"""  # noqa: S608 # names of our own
    return f"CREATE VIEW class_now AS WITH {_latest(directory, rolled=rolled)} {capacity.rooms(rows)}"


def _latest(directory: Path, *, rolled: bool) -> str:
    """Return tables for `WITH`: `latest`, the time of each node's newest row, and `newest`, that of `present.newest`.

    `latest` goes back a day and a minute from the newest minute that is not of the future.
    """
    if not rolled:
        choice, pieces = "", f"{_PIECE} availability GROUP BY ALL"
    else:
        choice = f"{listing.choice(directory, MINUTES.source, MINUTES.name)},"
        pieces = f"""{_PIECE} availability JOIN open USING (date, hour) GROUP BY ALL
    UNION ALL {_PIECE} {MINUTES.name} JOIN closed USING (date, hour) GROUP BY ALL"""
    day = f"FROM ended WHERE at_us > (SELECT max(at_us) FROM ended) - {_DAY_US}"  # noqa: S608 # a number
    return f"""{choice}
pieces AS (
    {pieces}
), ended AS (
    SELECT node, arg_max(date, at_us) AS date, arg_max(hour, at_us) AS hour, max(at_us) AS at_us
    FROM pieces GROUP BY node
), begun AS (
    SELECT node, date, hour, at_us AS begin_us FROM ended
    WHERE at_us > (SELECT at_us FROM ({present.newest(f"({day})")})) - {_DAY_US + _MINUTE_US}
), latest AS (
    {_PIECE} availability JOIN begun USING (node, date, hour) WHERE at_us >= begin_us GROUP BY ALL
), newest AS ({present.newest("latest")})"""  # noqa: S608 # names of our own, and quoted paths


def minutes(directory: Path, *, rolled: bool) -> str:
    """Return the statement that creates `availability_1m`.

    Args:
        directory: Folder of the history.
        rolled: The table of its closed hours exists.
    """
    fresh = f"SELECT date_trunc('minute', time) AS minute, date, hour, node, {MINUTE_COLUMNS} FROM availability"  # noqa: S608
    if not rolled:
        return f"CREATE VIEW availability_1m AS {fresh} GROUP BY ALL"
    return f"""
CREATE VIEW availability_1m AS
WITH {listing.choice(directory, MINUTES.source, MINUTES.name)}, parts AS (
    {fresh} JOIN open USING (date, hour) GROUP BY ALL
    UNION ALL BY NAME
    SELECT time AS minute, * EXCLUDE (time, at_us) FROM {MINUTES.name} JOIN closed USING (date, hour)
)
SELECT minute, date, hour, node, sum(reports)::BIGINT AS reports, sum(available * reports) / sum(reports) AS available,
    min(least_available) AS least_available, min(least_lower) AS least_lower, arg_max(binding, reports) AS binding,
    max(pods) AS pods, sum(cpu_used * reports) / sum(reports) FILTER (cpu_used IS NOT NULL) AS cpu_used,
    max(most_cpu_saturation) AS most_cpu_saturation, max(most_memory) AS most_memory
FROM parts GROUP BY ALL
"""  # noqa: S608 # names of our own, and quoted paths
