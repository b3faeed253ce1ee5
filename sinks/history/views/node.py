"""Views of nodes: the newest row of each, and availability by the minute.

`node_now` has every node of the last day that was recorded, with the age of its row against the newest row of all, so
that it says the same of a history that was copied or replayed. It looks for the newest time of each node first, which
reads two columns, and then for the rows of these times only. `availability_1m` keeps the least room of a minute
beside the mean, since a mean hides the second in which nothing fitted. Closed hours come from their roll-up; an hour
with a file that has none, as the current one, and one with rows that came late, comes from its rows.
"""

from pathlib import Path

from sinks.history.tables.rolled import MINUTE_COLUMNS, MINUTES
from sinks.history.views import listing

# What both views read besides the columns of the first version.
COLUMNS = frozenset({"cpu_used", "cpu_saturation", "usage_memory"})

NOW = """
CREATE VIEW node_now AS
WITH latest AS (
    SELECT node, max(at_us) AS at_us FROM availability
    WHERE at_us > (SELECT max(at_us) FROM availability) - 86400000000 GROUP BY node
), newest AS (SELECT max(at_us) AS at_us FROM latest)
SELECT node, first(time) AS time, (any_value(newest.at_us) - any_value(latest.at_us)) / 1e6 AS age_seconds,
    first(available) AS available, first(lower) AS lower, first(upper) AS upper, first(binding) AS binding,
    first(pods) AS pods, first(cpu_used) AS cpu_used, first(cpu_saturation) AS cpu_saturation,
    first(usage_memory) AS usage_memory
FROM availability JOIN latest USING (node, at_us), newest
GROUP BY node
"""


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
