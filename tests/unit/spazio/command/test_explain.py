"""Which pods `spazio explain` reads from a file."""

import io
from pathlib import Path

import pytest

from spazio.command import explain

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
    return [(each.thing["metadata"]["name"], each.replicas) for each in pods]


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
    with pytest.raises(ValueError, match="document 2: spec has to be a mapping"):
        explain.read(path)


def test_the_parallel_pods_of_a_cron_job_are_its_replicas(tmp_path: Path) -> None:
    path = tmp_path / "pods.yaml"
    job = "{parallelism: 5, template: {spec: {containers: []}}}"
    path.write_text(f"kind: CronJob\nmetadata: {{name: report}}\nspec: {{jobTemplate: {{spec: {job}}}}}\n")
    assert named(explain.read(path)) == [("report", 5)]
