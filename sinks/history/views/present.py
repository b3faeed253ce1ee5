"""The newest time of a history, for views and exports that show what is, and what came shortly before.

A node whose clock is ahead is newer than all others, and measured against it these would be gone. So rows of the future
do not count, unless most nodes have some: then it is this machine's clock that is behind, or the history is a replay
that was shifted and has run ahead of it.
"""


def newest(rows: str) -> str:
    """Return the query of the newest time, a row with `at_us`.

    Args:
        rows: What has `node` and `at_us`: a table, a view or a query in brackets.
    """
    return f"""
SELECT CASE WHEN quantile_disc(at_us, 0.5) > epoch_us(now()) THEN max(at_us)
    ELSE max(at_us) FILTER (at_us <= epoch_us(now())) END AS at_us
FROM (SELECT node, max(at_us) AS at_us FROM {rows} GROUP BY node)
"""  # noqa: S608 # names of our own
