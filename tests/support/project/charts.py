"""Helm and kustomize for tests: what they make of deploy/, as objects."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from tests.e2e.kubernetes.control_plane import PROGRAMS, missing

DEPLOY = Path(__file__).parents[3] / "deploy"
CHART = DEPLOY / "helm" / "spazio"
OVERLAYS = {"standard": DEPLOY / "kubernetes"} | {name: DEPLOY / "kustomize" / name for name in ("small", "production")}
MISSING = missing("helm", "kustomize")

Objects = dict[tuple[str, str, str], dict[str, Any]]


def objects(text: str) -> Objects:
    """Return objects by kind, namespace and name."""
    result = Objects()
    for each in yaml.safe_load_all(text):
        if each:
            key = (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
            assert key not in result
            result[key] = each
    return result


def helm(
    *arguments: str, values: Mapping[str, Any] | None = None, kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run helm with values on its standard input, and with no cluster but the one that is given."""
    given = ("--values", "-") if values is not None else ()
    config = str(kubeconfig or os.devnull)
    return subprocess.run(
        [str(PROGRAMS / "helm"), *arguments, *given],
        input=yaml.safe_dump(dict(values or {})),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "KUBECONFIG": config},
    )


def rendered(**values: Any) -> Objects:
    """Return what the chart makes of values."""
    return rendered_by(CHART, values)


def rendered_by(chart: Path, values: Mapping[str, Any]) -> Objects:
    """Return what a chart makes of values."""
    answer = helm("template", "spazio", str(chart), "--kube-version", "1.36.0", values=values)
    assert answer.returncode == 0, answer.stderr
    return objects(answer.stdout)


def written() -> Objects:
    """Return what the manifests have."""
    return objects("\n---\n".join(path.read_text() for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))))


def built(profile: str) -> Objects:
    """Return what kustomize makes of the overlay of a profile."""
    return kustomized(OVERLAYS[profile])


def kustomized(folder: Path) -> Objects:
    """Return what kustomize makes of a folder."""
    command = [str(PROGRAMS / "kustomize"), "build", str(folder)]
    return objects(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
