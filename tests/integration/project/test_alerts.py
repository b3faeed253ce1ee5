"""Every alert fires when its condition holds and clears after, by promtool on invented series and true times.

Minutes 0 to 30 are healthy, the next 80 are not, and the next 60 are healthy again.
Tests in tests/e2e/project and tests/e2e/kubernetes/rights make the conditions real.
"""

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]

from tests.support.server.prometheus import MISSING, ROOT, RULES, alerts

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)

HEALTHY, BROKEN, AFTER = 30, 80, 60
ALL = HEALTHY + BROKEN + AFTER


def gauge(good: float | str, bad: float | str) -> str:
    """Return a value a minute; `_` is none."""
    return f"{good}x{HEALTHY - 1} {bad}x{BROKEN - 1} {good}x{AFTER}"


def counter(step: float) -> str:
    """Return a counter that grows by a step a minute while broken."""
    return f"0x{HEALTHY - 1} {step}+{step}x{BROKEN - 1} {BROKEN * step}x{AFTER}"


STEADY = f"60+60x{ALL}"
READ = 'up{job="spazio",service="metrics"}'  # the metrics sink, which has the gauges of nodes
SCRAPED = 'job="spazio",service="s",instance="i"'


def slow(name: str, labels: str, limit: float) -> dict[str, str]:
    """Return a histogram whose observations are all above a limit while broken, and below it otherwise."""
    below = f"0+60x{HEALTHY - 1} {60 * HEALTHY}x{BROKEN - 1} {60 * HEALTHY}+60x{AFTER}"
    return {f'{name}_bucket{{le="{limit}"{labels}}}': below, f'{name}_bucket{{le="+Inf"{labels}}}': STEADY}


class Case(NamedTuple):
    """An alert and the series that make it fire."""

    alert: str
    series: dict[str, str]


def counts(alert: str, metric: str, labels: str = "", step: float = 1) -> Case:
    return Case(alert, {f"{metric}{{{SCRAPED}{labels}}}": counter(step)})


def holds(alert: str, metric: str, good: float | str, bad: float | str, labels: str = "") -> Case:
    return Case(alert, {f"{metric}{{{SCRAPED}{labels}}}": gauge(good, bad)})


NEW = [
    counts("SpazioSettingsRefused", "spazio_settings_reloads_total", ',outcome="refused"'),
    counts("SpazioSourceFailing", "spazio_source_failures_total", ',source="/proc/stat"'),
    counts("SpazioBlocksMissing", "spazio_history_missing_blocks_total", ',table="samples"'),
    counts("SpazioMessagesSkipped", "spazio_messages_skipped_total", ',part="3"'),
    counts("SpazioDeadLetters", "spazio_dead_letters_total", ',consumer="process",kind="samples"'),
    counts("SpazioDeadLettersUnkept", "spazio_dead_letters_unkept_total", ',consumer="process",kind="samples"'),
    counts("SpazioMessagesDropped", "spazio_publish_dropped_total", ',reason="full"'),
    counts("SpazioMessagesUnpublishable", "spazio_publish_withheld_total", ',publisher="process",reason="long"'),
    counts("SpazioMessageIdsClaimed", "spazio_publish_claimed_total"),
    counts("SpazioStreamSetBack", "spazio_stream_set_back_total", ',stream="SPAZIO_ESTIMATES"'),
    counts("SpazioCheckpointsFailing", "spazio_checkpoints_total", ',outcome="failed"'),
    counts("SpazioHistoryGap", "spazio_history_gaps_total", ',stream="SPAZIO_ESTIMATES",reason="expired"'),
    counts("SpazioHistoryDamagedFiles", "spazio_history_damaged_files_total"),
    counts("SpazioHistoryLateRows", "spazio_history_late_rows_total", ',table="samples",reason="past"'),
    counts("SpazioHistoryOverQuota", "spazio_history_over_quota_rows_total", ',table="samples"'),
    counts("SpazioHistoryUpkeepFailing", "spazio_history_upkeep_failures_total", ',step="expire"'),
    counts("SpazioRequeueFailing", "spazio_extender_kicks_total", ',outcome="failed"'),
]
CASES = [
    *NEW,
    holds("SpazioServiceDown", "up", 1, 0),
    Case("SpazioServiceRestarting", {f"process_start_time_seconds{{{SCRAPED}}}": counter(300)}),
    holds("SpazioServiceDegraded", "spazio_degraded", 0, 1, ',part="history"'),
    holds("SpazioCertificateKept", "spazio_server_certificate_kept", 0, 1),
    holds("SpazioNatsDisconnected", "spazio_nats_connected", 1, 0),
    counts("SpazioNatsUnstable", "spazio_nats_disconnects_total"),
    Case(
        "SpazioNoTelemetry",
        {
            READ: f"1x{ALL}",  # SpazioNodeSilent needs it, too
            'spazio_available_pods{node="n1"}': gauge(2, "_"),
        },
    ),
    Case(
        "SpazioNodeSilent",
        {
            'spazio_measured_timestamp_seconds{node="n1"}': (
                f"0+60x{HEALTHY - 1} {60 * HEALTHY - 60}x{BROKEN - 1} {60 * (HEALTHY + BROKEN)}+60x{AFTER}"
            )
        },
    ),
    holds("SpazioNodeClockWrong", "spazio_clock_error_seconds", 0.1, -4, ',node="n1"'),
    holds("SpazioNodeNameShared", "spazio_shared_names", 0, 2),
    holds("SpazioNodeContradicted", "spazio_outvoted_nodes", 0, 1),
    counts("SpazioNodesRefused", "spazio_refused_node_messages_total", ',partition="3"'),
    counts("SpazioPodsRefused", "spazio_refused_pods_total", ',partition="outlook-3"'),
    counts("SpazioSamplesMissed", "spazio_samples_missed_total", step=120),
    holds("SpazioPartUnowned", "spazio_part_owned", 1, 0, ',part="3"'),
    Case(
        "SpazioPartOwnedTwice",
        {'spazio_part_owned{part="5",pod="a"}': f"1x{ALL}", 'spazio_part_owned{part="5",pod="b"}': gauge(0, 1)},
    ),
    holds("SpazioPartLagging", "spazio_part_lag_messages", 20, 5000, ',part="3"'),
    counts("SpazioLeasesLost", "spazio_leases_lost_total"),
    Case("SpazioCacheStale", slow("spazio_cache_age_seconds", "", 5) | slow("spazio_cache_age_seconds", "", 10)),
    counts("SpazioExtenderUnguaranteed", "spazio_extender_unguaranteed_total"),
    holds("SpazioExtenderPodsWaiting", "spazio_extender_longest_wait_seconds", 30, 660),
    Case(
        "SpazioExtenderSlow",
        slow("spazio_extender_request_seconds", ',verb="filter"', 0.5)
        | {'spazio_extender_request_seconds_bucket{le="1",verb="filter"}': STEADY},
    ),
    counts("SpazioExtenderErrors", "spazio_extender_requests_total", ',verb="filter",status="503"'),
    counts("SpazioDecisionsDropped", "spazio_extender_decisions_dropped_total"),
    counts("SpazioKubernetesWritesFailing", "spazio_kube_writes_total", ',what="mid",outcome="forbidden"'),
    holds("SpazioClusterFull", "spazio_available_pods_lower", 3, 0, ',node="n1"'),
    Case(
        "SpazioClassFull",
        {
            'spazio_cluster_available_pods_lower{class="web"}': gauge(9, 0),
            'spazio_cluster_pods{class="web"}': f"4x{ALL}",
        },
    ),
    holds("SpazioPredictionsExceeded", "spazio_prediction_violation_ratio", 0.05, 0.3, ',model="calibrated"'),
    holds("SpazioNodesReject", "spazio_reject", 0, 1, ',node="n1"'),
]


def expect(alert: str, minute: int, *, fires: bool) -> dict[str, Any]:
    """Return a check of promtool."""
    return {
        "expr": f'count by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"}})',
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if fires else [],
    }


def group(series: dict[str, str], *checks: dict[str, Any]) -> dict[str, Any]:
    written = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": "1m", "input_series": written, "promql_expr_test": list(checks)}


def promtool(tmp_path: Path, groups: list[dict[str, Any]]) -> str:
    """Run tests on the rules; returns what failed."""
    file = tmp_path / "tests.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": groups}))
    answer = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False)
    return "" if answer.returncode == 0 else answer.stdout + answer.stderr


def test_every_alert_has_a_case() -> None:
    assert sorted(case.alert for case in CASES) == sorted(rule["alert"] for rule in alerts())
    appearing = {rule["alert"] for rule in alerts() if " offset 10m" in rule["expr"]}
    assert {case.alert for case in NEW} == appearing


@pytest.mark.slow
def test_every_alert_is_silent_before_fires_while_its_condition_holds_and_clears_after(tmp_path: Path) -> None:
    series: dict[str, str] = {}
    for case in CASES:
        assert not series.keys() & case.series.keys()
        series |= case.series
    times = [(HEALTHY - 2, False), (HEALTHY + BROKEN - 2, True), (ALL - 2, False)]
    checks = [expect(case.alert, minute, fires=fires) for case in CASES for minute, fires in times]
    assert promtool(tmp_path, [group(series, *checks)]) == ""


def test_a_counter_that_appears_with_its_first_event_fires_for_ten_minutes(tmp_path: Path) -> None:
    series = {name: f"_x{HEALTHY} 1x{BROKEN}" for case in NEW for name in case.series}
    times = [(HEALTHY - 1, False), (HEALTHY + 2, True), (HEALTHY + 15, False)]
    checks = [expect(case.alert, minute, fires=fires) for case in NEW for minute, fires in times]
    assert promtool(tmp_path, [group(series, *checks)]) == ""


def test_predictions_need_an_owner_where_there_are_nodes_and_nowhere_else(tmp_path: Path) -> None:
    owners = {f'spazio_part_owned{{part="outlook-{number}"}}': f"0x{ALL}" for number in (1, 2)}
    nodes = {f'spazio_nodes{{partition="{number}"}}': f"{number - 1}x{ALL}" for number in (1, 2)}
    check = expect("SpazioPartUnowned", HEALTHY, fires=True)
    check["expr"] = check["expr"].replace("(alertname)", "(part)")
    check["exp_samples"] = [{"labels": '{part="outlook-2"}', "value": 1}]
    assert promtool(tmp_path, [group(owners | nodes, check)]) == ""


def test_a_node_whose_series_end_is_silent_and_one_that_was_removed_is_forgotten(tmp_path: Path) -> None:
    ending = group(
        {READ: f"1x{ALL}", 'spazio_measured_timestamp_seconds{node="n1"}': f"0+60x{HEALTHY - 1} _x{BROKEN}"},
        expect("SpazioNodeSilent", HEALTHY, fires=False),
        expect("SpazioNodeSilent", HEALTHY + 5, fires=True),
        expect("SpazioNodeSilent", HEALTHY + 20, fires=False),
    )
    assert promtool(tmp_path, [ending]) == ""


def test_no_node_is_silent_because_the_metrics_sink_is_away(tmp_path: Path) -> None:
    measured = {
        f'spazio_measured_timestamp_seconds{{node="n{number}"}}': f"0+60x{HEALTHY - 1} _x{BROKEN}" for number in (1, 2)
    }
    silent = [expect("SpazioNodeSilent", HEALTHY + minute, fires=False) for minute in (3, 5, 10)]
    groups = [group({READ: f"1x{HEALTHY - 1} {away}"} | measured, *silent) for away in (f"0x{BROKEN}", "stale")]
    assert promtool(tmp_path, groups) == ""


def test_rules_and_the_configuration_of_a_cluster_are_valid(tmp_path: Path) -> None:
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    # Debian's Prometheus is built without the discovery of Kubernetes; all else is checked.
    assert [entry["namespaces"]["names"] for entry in job.pop("kubernetes_sd_configs")] == [["spazio", "spazio-agents"]]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "spazio.rules.yml").write_text(RULES.read_text())
    beside = RULES.with_name("compose.yml")
    for kind, file in (("config", tmp_path / "prometheus.yml"), ("config", beside), ("rules", RULES)):
        answer = subprocess.run(["promtool", "check", kind, str(file)], capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stdout + answer.stderr
