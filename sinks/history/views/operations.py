"""Views for operators: room of the cluster, full machines, worth of predictions and forecasts, placements, churn."""

from typing import NamedTuple


class View(NamedTuple):
    """A view, with the table that it reads, and the columns which files of older versions may lack."""

    table: str
    columns: frozenset[str]
    statement: str


_CLUSTER_ROOM = """
CREATE VIEW cluster_room AS
SELECT minute, date, hour, count(*) AS nodes, sum(floor(available)) AS available, sum(least_lower) AS least_lower,
    count(*) FILTER (least_lower < 1) AS full_nodes, sum(pods) AS pods,
    count(*) FILTER (binding = 'cpu') AS bound_cpu, count(*) FILTER (binding = 'memory') AS bound_memory,
    count(*) FILTER (binding = 'disk') AS bound_disk, count(*) FILTER (binding = 'pods') AS bound_pods
FROM availability_1m GROUP BY ALL
"""

# A machine is full from 97 % of its CPUs on, as for the estimator; a report of less ends an episode, and so do 15 s
# without any. Only minutes with a full report are sorted: to sort a day of 1,000 nodes takes four times as long.
_SATURATION_EPISODES = """
CREATE VIEW saturation_episodes AS
WITH reports AS (
    SELECT node, at_us, time, available, cpu_used,
        (lag(cpu_used >= 0.97) OVER by_node AND at_us - lag(at_us) OVER by_node < 15000000) IS NOT TRUE AS begins
    FROM availability WHERE cpu_used IS NOT NULL AND (node, at_us // 60000000) IN (
        SELECT (node, at_us // 60000000) FROM availability WHERE cpu_used >= 0.97
    ) WINDOW by_node AS (PARTITION BY node ORDER BY at_us)
), numbered AS (
    SELECT *, sum(begins::INTEGER) OVER (PARTITION BY node ORDER BY at_us) AS episode
    FROM reports WHERE cpu_used >= 0.97
)
SELECT node, min(time) AS time, max(time) AS until, (max(at_us) - min(at_us)) / 1e6 AS seconds, count(*) AS reports,
    min(available) AS least_available, max(cpu_used) AS most_cpu_used
FROM numbered GROUP BY node, episode
"""

# Of nodes that had a prediction in the newest hours, since each one carries what those before it were worth.
_PREDICTION_ACCURACY = """
CREATE VIEW prediction_accuracy AS
WITH newest AS (
    SELECT node, horizon_seconds, arg_max(accuracy, at_us) AS accuracy
    FROM predictions JOIN recent_hours USING (date, hour) GROUP BY node, horizon_seconds
), models AS (SELECT node, horizon_seconds, unnest(accuracy) AS of_model FROM newest)
SELECT horizon_seconds, of_model.model AS model, count(*) AS nodes, sum(of_model.settled) AS settled,
    sum(of_model.violations * of_model.settled) / nullif(sum(of_model.settled), 0) AS violations,
    sum(of_model.savings * of_model.settled) / nullif(sum(of_model.settled), 0) AS savings
FROM models GROUP BY ALL
"""

# Of workloads in the same way.
_FORECAST_ACCURACY = """
CREATE VIEW forecast_accuracy AS
WITH newest AS (
    SELECT namespace, kind, workload, arg_max(model, at_us) AS chosen, arg_max(accuracy, at_us) AS accuracy
    FROM forecasts JOIN recent_hours USING (date, hour) GROUP BY namespace, kind, workload
), models AS (SELECT namespace, kind, workload, chosen, unnest(accuracy) AS of_model FROM newest)
SELECT namespace, kind, workload, of_model.model AS model, of_model.model = chosen AS chosen,
    of_model.settled AS settled, of_model.violations AS violations, of_model.severity AS severity,
    of_model.overprovision AS overprovision
FROM models
"""

_PLACEMENTS = """
CREATE VIEW placements AS
SELECT time, date, hour, namespace, name, workload, outcome, node, guaranteed, feasible, nodes,
    ranked[1].score AS score, ranked[1].room AS room, map_keys(refused) AS reasons, note, seconds
FROM decisions
"""

# Wilson's interval at 95 %, z = 1.96: it holds also for shares of 0 and 1, and for few pods.
_LEDGER = """
CREATE VIEW ledger AS
WITH judged AS (
    SELECT date_trunc('week', time) AS week, namespace, count(*) AS pods,
        count(*) FILTER (len(breaks) > 0) AS broken, count(*) FILTER (bound = node) AS agreed,
        count(*) FILTER (outcome = 'rejected') AS without_room
    FROM decisions WHERE mode = 'shadow' AND outcome <> 'passed' AND bound IS NOT NULL AND breaks IS NOT NULL
    GROUP BY ALL
), shares AS (SELECT *, broken / pods AS share, 1.96 * 1.96 / pods AS spread FROM judged)
SELECT week, namespace, pods, agreed, without_room, broken, share,
    greatest((share + spread / 2 - sqrt(spread * (share * (1 - share) + spread / 4))) / (1 + spread), 0) AS share_low,
    least((share + spread / 2 + sqrt(spread * (share * (1 - share) + spread / 4))) / (1 + spread), 1) AS share_high
FROM shares
"""

# How often nodes kept what was promised of them, with the same interval. Each replica counts every pod, so of an hour
# the one counts that has seen most.
_PROMISES = """
CREATE VIEW promises AS
WITH listed AS (SELECT replica, at_us, time, risk, unnest(promises) AS of_namespace FROM trust), hourly AS (
    SELECT date_trunc('hour', time) AS of_hour, of_namespace.namespace AS namespace, replica,
        sum(of_namespace.settled) AS settled, sum(of_namespace.broken) AS broken, sum(of_namespace.loose) AS loose,
        max(at_us) AS at_us, arg_max(risk, at_us) AS risk, arg_max(of_namespace.promoted, at_us) AS promoted
    FROM listed GROUP BY ALL
), of_all AS (
    SELECT of_hour, namespace, max(settled) AS settled, arg_max(broken, settled) AS broken, max(loose) AS loose,
        max(hourly.at_us) AS at_us, arg_max(risk, hourly.at_us) AS risk, arg_max(promoted, hourly.at_us) AS promoted
    FROM hourly GROUP BY ALL
), weekly AS (
    SELECT date_trunc('week', of_hour) AS week, namespace, sum(settled) AS settled, sum(broken) AS broken,
        sum(loose) AS loose, arg_max(risk, at_us) AS risk, arg_max(promoted, at_us) AS promoted
    FROM of_all GROUP BY ALL
), shares AS (
    SELECT *, broken / nullif(settled, 0) AS share, 1.96 * 1.96 / nullif(settled, 0) AS spread FROM weekly
)
SELECT week, namespace, settled, broken, loose, share,
    CASE WHEN settled > 0 THEN
        greatest((share + spread / 2 - sqrt(spread * (share * (1 - share) + spread / 4))) / (1 + spread), 0)
    END AS share_low,
    CASE WHEN settled > 0 THEN
        least((share + spread / 2 + sqrt(spread * (share * (1 - share) + spread / 4))) / (1 + spread), 1)
    END AS share_high,
    risk, promoted
FROM shares
"""

# Of each hour the mean; low and high are exceeded in 95 and in 5 % of the hours of a week.
_SAVINGS = """
CREATE VIEW savings AS
WITH hourly AS (
    SELECT date_trunc('week', time) AS week, date_trunc('hour', time) AS of_hour, avg(nodes) AS nodes,
        avg(measured_nodes - requested_nodes) AS saved, avg(measured_cores - requested_cores) AS saved_cores,
        avg(measured_price - requested_price) AS saved_price
    FROM trust WHERE nodes > 0 GROUP BY ALL
)
SELECT week, count(*) AS hours, avg(nodes) AS nodes, avg(saved) AS saved_nodes,
    quantile_cont(saved, 0.05) AS saved_nodes_low, quantile_cont(saved, 0.95) AS saved_nodes_high,
    avg(saved_cores) AS saved_cores, quantile_cont(saved_cores, 0.05) AS saved_cores_low,
    quantile_cont(saved_cores, 0.95) AS saved_cores_high, avg(saved_price) AS saved_price_per_hour,
    quantile_cont(saved_price, 0.05) AS saved_price_per_hour_low,
    quantile_cont(saved_price, 0.95) AS saved_price_per_hour_high
FROM hourly GROUP BY week
"""

_CHURN = """
CREATE VIEW churn AS
SELECT date_trunc('minute', time) AS minute, date, hour, node, count(*) FILTER (event = 'created') AS created,
    count(*) FILTER (event = 'started') AS started, count(*) FILTER (event = 'exited') AS exited,
    count(*) FILTER (event = 'deleted') AS deleted, count(DISTINCT workload) AS workloads
FROM containers GROUP BY ALL
"""

VIEWS = (
    View("availability", frozenset({"cpu_used", "cpu_saturation", "usage_memory"}), _CLUSTER_ROOM),
    View("availability", frozenset({"cpu_used"}), _SATURATION_EPISODES),
    View("predictions", frozenset({"accuracy"}), _PREDICTION_ACCURACY),
    View("forecasts", frozenset({"accuracy"}), _FORECAST_ACCURACY),
    View("decisions", frozenset({"ranked", "refused", "workload"}), _PLACEMENTS),
    View("decisions", frozenset({"bound", "breaks"}), _LEDGER),
    View("trust", frozenset({"promises", "risk"}), _PROMISES),
    View("trust", frozenset({"measured_nodes", "requested_nodes"}), _SAVINGS),
    View("containers", frozenset({"workload"}), _CHURN),
)
