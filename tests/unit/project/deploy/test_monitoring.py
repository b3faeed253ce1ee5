"""Rules, dashboards and runbook agree with each other and name what there is."""

import json
import re
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from schemas import settings as all_settings
from sinks.metrics.prediction import Ages, Predictions
from spazio.service.composition import machine
from tests.support.project import documents
from tests.support.server.prometheus import DASHBOARDS, ROOT, RULES, alerts

RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
CODE = [
    path.read_text()
    for package in ("bus", "kube", "producers", "processors", "sinks", "spazio")
    for path in (ROOT / package).rglob("*.py")
]
BOARDS: dict[str, dict[str, Any]] = {path.stem: json.loads(path.read_text()) for path in DASHBOARDS}


def metrics() -> set[str]:
    """Return the names of all metrics; those of predictions are put together where they are made."""
    written = {name for text in CODE for name in re.findall(r'"(spazio_[a-z0-9_]+)"', text)}
    counted = r'(?:StateTotal|CounterMetricFamily)\(\s*"(spazio_[a-z0-9_]+)"'
    written |= {f"{name}_total" for text in CODE for name in re.findall(counted, text)}
    return written | {family.name for family in Predictions(Ages(1, 1, 1)).collect()}


def named(text: str) -> set[str]:
    return {name.removesuffix("_bucket") for name in re.findall(r"\bspazio_[a-z0-9_]+", text)}


def test_every_metric_that_is_asked_for_exists() -> None:
    pages = [re.sub(r"grep \w+", "", page.read_text()) for page in documents.CURRENT]
    texts = [RULES.read_text(), *pages, *(path.read_text() for path in DASHBOARDS)]
    assert {name for text in texts for name in named(text)} - metrics() == set()
    assert len(DASHBOARDS) == 4


def test_every_alert_has_a_section_of_the_runbook_and_says_what_is_wrong() -> None:
    values = yaml.safe_load((ROOT / "deploy/helm/spazio/values.yaml").read_text())
    runbook = values["monitoring"]["runbook"]
    assert runbook == "http://127.0.0.1:8000/docs/runbook/"  # the page of docs/runbook.md on the site
    sections = re.findall(r"^### (\w+)$", RUNBOOK, re.MULTILINE)
    assert sections == [rule["alert"] for rule in alerts()]
    for rule in alerts():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "runbook_url"}
        assert rule["annotations"]["runbook_url"] == f"{runbook}#{rule['alert'].lower()}"
    for section in re.split(r"^### \w+$", RUNBOOK, flags=re.MULTILINE)[1:]:
        assert re.search(r"\n\n\w.+\n\n- \*\*Look:\*\* .+\n- \*\*Do:\*\* .+\n", section), section


REAL = ("project/test_prometheus.py", "project/test_prometheus_parts.py", "kubernetes/rights/test_rights_alerts.py")


def test_a_test_makes_each_alert_real() -> None:
    tests = [ROOT / "tests" / "e2e" / name for name in REAL]
    made = {name for path in tests for name in re.findall(r"\b(Spazio\w+)=", path.read_text())}
    assert made == {rule["alert"] for rule in alerts()}


def test_the_runbook_names_events_and_settings_that_there_are() -> None:
    settings = {f"{section}.{field}" for section, field, _ in all_settings.options()}
    words = set(re.findall(r"`([a-z_]+\.[a-z_]+)`", RUNBOOK))
    assert {word for word in words - settings if not any(f'"{word}"' in text for text in CODE)} == set()
    assert words & settings
    assert words - settings


def overlap(left: dict[str, int], right: dict[str, int]) -> bool:
    return (
        left["x"] < right["x"] + right["w"]
        and right["x"] < left["x"] + left["w"]
        and left["y"] < right["y"] + right["h"]
        and right["y"] < left["y"] + left["h"]
    )


def distinct(values: Iterable[object]) -> bool:
    result = list(values)
    return len(result) == len(set(result))


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_one_that_grafana_shows_whole(name: str) -> None:
    dashboard = BOARDS[name]
    assert dashboard["uid"] == f"spazio-{name}"
    assert "id" not in dashboard  # Grafana gives it
    assert dashboard["title"]
    variables = {variable["name"] for variable in dashboard["templating"]["list"]}
    panels = dashboard["panels"]
    assert distinct(panel["id"] for panel in panels)
    assert distinct(panel["title"] for panel in panels)
    for panel in panels:
        assert panel["type"] in ("timeseries", "stat", "table")
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert distinct(target["refId"] for target in panel["targets"])
        for target in panel["targets"]:
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert set(re.findall(r"\$(\w+)", target["expr"])) <= variables | {"__rate_interval"}
    assert not [pair for pair in combinations((panel["gridPos"] for panel in panels), 2) if overlap(*pair)]


def test_prometheus_finds_every_pod_that_the_manifests_mark() -> None:
    (job,) = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    rules = {tuple(rule["source_labels"]): rule for rule in job["relabel_configs"]}
    (port,) = rules["__meta_kubernetes_pod_container_port_name",]["regex"].split("|")
    (label,) = (re.compile(rule["regex"]) for rule in job["relabel_configs"] if rule.get("target_label") == "service")
    result = set()
    for path in sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml")):
        for thing in yaml.safe_load_all(path.read_text()):
            pod = ((thing or {}).get("spec") or {}).get("template")
            if pod and pod["metadata"].get("annotations", {}).get("prometheus.io/scrape") == "true":
                (container,) = pod["spec"]["containers"]
                (chosen,) = (each for each in container["ports"] if each["name"] == port)
                assert str(chosen["containerPort"]) == pod["metadata"]["annotations"]["prometheus.io/port"]
                matched = label.fullmatch(pod["metadata"]["labels"]["app.kubernetes.io/name"])
                assert matched
                result.add(matched[1])
    assert result == {*machine.NAMES, "kubernetes", "watch"}


def test_the_stack_has_a_prometheus_that_reads_all_services_and_both_listen_on_loopback() -> None:
    stack = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    (job,) = yaml.safe_load((ROOT / "deploy/prometheus/compose.yml").read_text())["scrape_configs"]
    (targets,) = (entry["targets"] for entry in job["static_configs"])
    assert set(targets) == {f"{name}:9470" for name in stack.keys() - {"nats", "credentials"}}
    added = yaml.safe_load((ROOT / "deploy/monitoring.yml").read_text())["services"]
    assert added.keys() == {"prometheus", "grafana"}
    for service in added.values():
        assert re.search(r":v?\d+\.\d+\.\d+}$", service["image"])
        assert all(port.startswith("${SPAZIO_METRICS_PUBLISH:-127.0.0.1}:") for port in service["ports"])
        mounts = [volume.split(":") for volume in service["volumes"]]
        assert all((ROOT / mount[0]).is_dir() and mount[2] == "ro" for mount in mounts if mount[0].startswith("."))
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    provided = yaml.safe_load((ROOT / "deploy/grafana/provisioning/dashboards/spazio.yml").read_text())
    (folder,) = (each["options"]["path"] for each in provided["providers"])
    assert f"./deploy/grafana:{folder}:ro" in added["grafana"]["volumes"]


def test_the_documentation_has_every_metric() -> None:
    listed = set(re.findall(r"^\| `(spazio_\w+)` \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
    given = listed | {name.removesuffix("_info") for name in listed}
    missing = {name for name in metrics() - given if not any(each.startswith(f"{name}_") for each in listed)}
    assert missing == set(), "docs/metrics.md lacks them: name their collector in spazio/exposition.py, then make docs"
