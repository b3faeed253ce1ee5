"""Which pods `spazio explain` reads from a file, and which nodes it names without ranking them."""

import io
from pathlib import Path

import pytest

from sinks.extender import evaluator
from sinks.extender.state.cluster_state import ClusterState
from spazio.command import explain
from tests.support.extender.placement import SECOND, START, given, node, report

TEXT = """\
kind: Pod
metadata: {name: first}
spec: {containers: []}
---
kind: ConfigMap
data: {a: b}
---
kind: Deployment
metadata: {name: web}
spec: {replicas: 5, template: {spec: {containers: []}}}
"""


def named(pods: list[explain.Described]) -> list[tuple[str, int]]:
    return [(each.pod.name, each.replicas) for each in pods]


def test_every_pod_of_a_file_is_read_with_its_number_of_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(TEXT)
    assert named(explain.read(path)) == [("first", 1), ("web", 5)]
    monkeypatch.setattr("sys.stdin", io.StringIO(TEXT))
    assert named(explain.read(Path("-"))) == [("first", 1), ("web", 5)]


def test_a_file_without_a_pod_is_refused_with_the_document_at_fault(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text("kind: ConfigMap\n---\nkind: Pod\nspec: [1]\n")
    with pytest.raises(ValueError, match=r"pods.yaml: document 2, line 3: spec has to be a mapping"):
        explain.read(path)


def test_the_parallel_pods_of_a_cron_job_are_its_replicas(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    job = "{parallelism: 5, template: {spec: {containers: []}}}"
    path.write_text(f"kind: CronJob\nmetadata: {{name: report}}\nspec: {{jobTemplate: {{spec: {job}}}}}\n")
    assert named(explain.read(path)) == [("report", 5)]


def test_the_pods_of_a_daemon_set_belong_to_their_nodes_though_its_template_names_none(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    spec = "{template: {spec: {containers: []}}}"
    path.write_text(f"kind: DaemonSet\nmetadata: {{name: log}}\nspec: {spec}\n")
    (described,) = explain.read(path)
    assert evaluator.exemption(described.pod) == "a DaemonSet's pod belongs to its node"


def test_every_faulty_document_beside_a_good_one_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    path.write_text(f"{TEXT}---\n\nkind: Pod\nspec: [1]\n---\njust words\n---\n")
    with pytest.raises(ValueError, match="has to be") as refused:
        explain.read(path)
    second, third, remedy = str(refused.value).splitlines()
    assert second.startswith(f"{path}: document 4, line 13: spec has to be a mapping, and is list")
    assert third.startswith(f"{path}: document 5, line 16: this has to be an object")
    assert remedy == "correct it there, or leave the document out"
    path.write_text(f"{TEXT}---\nkind: [\n")
    with pytest.raises(ValueError, match=r"is not YAML: document 4: .* line 13, column 1"):
        explain.read(path)


def test_each_item_of_a_list_is_a_pod_or_a_workload(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    items = [f"{{kind: {kind}, metadata: {{name: {kind}}}, spec: {spec}}}" for kind, spec in ITEMS]
    path.write_text(f"apiVersion: v1\nkind: List\nitems: [{', '.join(items)}]\n")
    assert named(explain.read(path)) == [("Pod", 1), ("Deployment", 2)]
    path.write_text("kind: List\nitems: [{kind: Service}, {kind: Pod, spec: {containers: 3}}]\n")
    with pytest.raises(
        ValueError, match=r"document 1, line 1, item 2: pod default/unnamed: spec.containers is no list"
    ):
        explain.read(path)


def test_nodes_that_report_beside_those_of_kubernetes_are_named_and_those_that_are_gone_are_not() -> None:
    cluster_state = ClusterState(given())
    cluster_state.describe(node("sim-0"))
    for name, at_us in (("sim-0", START), ("vm", START), ("gone", START - 600 * SECOND)):
        cluster_state.report(report(name, at_us, 3.0))
    assert cluster_state.nodes() == ["sim-0"]
    assert explain.reporting_beside(cluster_state, ["sim-0"], START + SECOND) == ["vm"]
    assert explain.reporting_beside(cluster_state, ["sim-0", "vm"], START + SECOND) == []
    assert explain.unranked(["a", "b"]) == "2 nodes report, are not in Kubernetes and were not ranked: a, b"


ITEMS = [
    ("Pod", "{containers: []}"),
    ("ConfigMap", "{}"),
    ("Deployment", "{replicas: 2, template: {spec: {containers: []}}}"),
]
