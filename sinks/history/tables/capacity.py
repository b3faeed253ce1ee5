"""Views of workload classes over the availability table: room on each node, and totals of the cluster.

`cluster` cuts time into pieces of ten seconds and takes the newest row of each node in each: nodes report on a change
and at least every four seconds, so a live node has one in every piece, and one that has died is in no later one. The
definitions are those of `sinks.cluster`, which computes the same from live rows. Closed hours come from their roll-up.
`time`, `date` and `hour` go through all steps, so that a query which names them reads no more than the rows of that
time. What is not known is dropped late: a condition on `free_cpu` any earlier would hide from DuckDB which rows those
are.
"""

from pathlib import Path

import polars as pl

from sinks import cluster
from sinks.history.column import Schema
from sinks.history.views import listing, present

STEP_SECONDS = 10
_STEP_US = STEP_SECONDS * 1_000_000
COLUMNS = frozenset({"classes", "free_cpu", "free_memory"})


def rooms(rows: str) -> str:
    """Return the query of a row for each class of availabilities: a table, a view or a query in brackets."""
    return f"""
SELECT time, at_us, date, hour, node, room.class, room.available, room.lower, room.binding, room.pods, room.cpu,
    room.memory, free_cpu, free_memory,
    greatest(0, free_cpu - room.available * room.cpu) AS stranded_cpu,
    greatest(0, free_memory - room.available * room.memory) AS stranded_memory
FROM (SELECT time, at_us, date, hour, node, free_cpu, free_memory, unnest(classes) AS room FROM {rows})
"""  # noqa: S608 # names of our own


CLASSES = f"CREATE VIEW classes AS {rooms('availability')}"

TOTALS: Schema = {
    "at_us": pl.Int64,
    "class": pl.String,
    **dict.fromkeys(("nodes", "pods"), pl.Int64),
    **dict.fromkeys(("available", "lower", "fluid", "fragmentation", "stranded_cpu", "stranded_memory"), pl.Float64),
    **dict.fromkeys(("bound_cpu", "bound_memory", "bound_disk", "bound_pods", "pod_cpu", "pod_memory"), pl.Float64),
}


def totals(rows: str, condition: str = "true", keys: str = "") -> str:
    """Return the query of the totals of each piece of time and class.

    Args:
        rows: Availabilities: a table, a view or a function's call.
        condition: Which of them.
        keys: More columns of these by which the pieces are grouped, each with a comma behind it.
    """
    return f"""
WITH newest AS (
    SELECT {keys}node, to_timestamp(at_us // {_STEP_US} * {STEP_SECONDS}) AS start, max(at_us) AS at_us
    FROM {rows} WHERE {condition}
    GROUP BY {keys}node, start
), unnested AS (
    SELECT {keys}start, free_cpu, free_memory, unnest(classes) AS room
    FROM {rows} JOIN newest USING ({keys}node, at_us)
), rooms AS (
    SELECT {keys}start, room.class, room.pods, room.available, room.lower, room.binding,
        room.cpu AS pod_cpu, room.memory AS pod_memory, free_cpu / greatest(room.cpu, {cluster.LEAST}) AS cpu,
        free_memory / greatest(room.memory, {cluster.LEAST}) AS memory
    FROM unnested
), totals AS (
    SELECT {keys}start, class, count(*) AS nodes, sum(pods)::BIGINT AS pods, sum(floor(available)) AS available,
        sum(floor(lower)) AS lower,
        least(
            sum(CASE WHEN binding IN {cluster.UNSHARED} THEN least(cpu, available) ELSE cpu END),
            sum(CASE WHEN binding IN {cluster.UNSHARED} THEN least(memory, available) ELSE memory END)
        ) AS fluid,
        sum(available) AS fitting, sum(cpu) AS cpu, sum(memory) AS memory,
        avg(pod_cpu) AS pod_cpu, avg(pod_memory) AS pod_memory,
        avg((binding = 'cpu')::INTEGER) AS bound_cpu,
        avg((binding = 'memory')::INTEGER) AS bound_memory,
        avg((binding = 'disk')::INTEGER) AS bound_disk,
        avg((binding = 'pods')::INTEGER) AS bound_pods
    FROM rooms WHERE cpu IS NOT NULL AND memory IS NOT NULL GROUP BY {keys}start, class
)
SELECT start AS time, epoch_us(start) AS at_us, {keys}class, nodes, pods,
    available, lower, fluid,
    CASE WHEN fluid > 0 THEN greatest(0, 1 - available / fluid) END AS fragmentation,
    CASE WHEN cpu > 0 THEN greatest(0, 1 - fitting / cpu) END AS stranded_cpu,
    CASE WHEN memory > 0 THEN greatest(0, 1 - fitting / memory) END AS stranded_memory,
    bound_cpu, bound_memory, bound_disk, bound_pods, pod_cpu, pod_memory
FROM totals
"""  # noqa: S608 # numbers and names of our own


def clusters(directory: Path, rolled: str) -> str:
    """Return the statement that creates `cluster`; `rolled`: table of its closed hours, empty if it does not exist."""
    # The piece of time that is still filling would lack nodes: only what lies before the newest row's is shown.
    if not rolled:
        last = _last("availability")
        return f"CREATE VIEW cluster AS {totals('availability', f'at_us < {last}', 'date, hour, ')}"
    last = _last("fresh")
    return f"""
CREATE VIEW cluster AS
WITH {listing.choice(directory, "availability", rolled)},
fresh AS NOT MATERIALIZED (
    SELECT node, at_us, date, hour, free_cpu, free_memory, classes FROM availability JOIN open USING (date, hour)
)
({totals("fresh", f"at_us < {last}", "date, hour, ")})
UNION ALL BY NAME
SELECT * FROM {rolled} JOIN closed USING (date, hour)
"""  # noqa: S608 # numbers and names of our own, and quoted paths


def _last(rows: str) -> str:
    return f"(SELECT at_us // {_STEP_US} * {_STEP_US} FROM ({present.newest(rows)}))"  # noqa: S608 # as above
