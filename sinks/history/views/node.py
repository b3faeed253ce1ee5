"""Views of nodes: the newest row of each, and availability by the minute.

`node_now` has every node of the last day that was recorded, with the age of its row against the newest row of all, so
that it says the same of a history that was copied or replayed. `availability_1m` keeps the least room of a minute
beside the mean, since a mean hides the second in which nothing fitted.
"""

# What both views read besides the columns of the first version.
COLUMNS = frozenset({"cpu_used", "cpu_saturation", "usage_memory"})

_NOW = """
CREATE VIEW node_now AS
WITH newest AS (SELECT max(at_us) AS at_us FROM availability)
SELECT node, arg_max(time, availability.at_us) AS time,
    (any_value(newest.at_us) - max(availability.at_us)) / 1e6 AS age_seconds,
    arg_max(available, availability.at_us) AS available, arg_max(lower, availability.at_us) AS lower,
    arg_max(upper, availability.at_us) AS upper, arg_max(binding, availability.at_us) AS binding,
    arg_max(pods, availability.at_us) AS pods, arg_max_null(cpu_used, availability.at_us) AS cpu_used,
    arg_max_null(cpu_saturation, availability.at_us) AS cpu_saturation,
    arg_max_null(usage_memory, availability.at_us) AS usage_memory
FROM availability, newest
WHERE time > to_timestamp(newest.at_us / 1000000.0) - INTERVAL 1 DAY
GROUP BY node
"""

_MINUTES = """
CREATE VIEW availability_1m AS
SELECT date_trunc('minute', time) AS minute, date, hour, node, count(*) AS reports, avg(available) AS available,
    min(available) AS least_available, min(lower) AS least_lower, mode(binding) AS binding, max(pods) AS pods,
    avg(cpu_used) AS cpu_used, max(cpu_saturation) AS most_cpu_saturation, max(usage_memory) AS most_memory
FROM availability GROUP BY ALL
"""

VIEWS = (_NOW, _MINUTES)
