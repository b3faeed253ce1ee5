"""The manifests are hardened, agree with each other, and with what they are made from."""

from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from schemas import settings as all_settings
from schemas.messages.base import RELEASE

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "deploy" / "kubernetes").rglob("*.yaml"))
THINGS = [(path.name, thing) for path in FILES for thing in yaml.safe_load_all(path.read_text()) if thing]
PODS: dict[str, dict[str, Any]] = {
    name: thing["spec"]["template"]["spec"] for name, thing in THINGS if "template" in (thing.get("spec") or {})
}


def things(kind: str) -> list[dict[str, Any]]:
    return [thing for _, thing in THINGS if thing["kind"] == kind]


@pytest.mark.parametrize("name", PODS)
def test_no_pod_can_do_more_than_its_work(name: str) -> None:
    pod = PODS[name]
    assert pod["enableServiceLinks"] is False  # a Service called spazio-nats would set SPAZIO_NATS_PORT
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    speaks = pod["serviceAccountName"] != "spazio-none"
    assert pod["automountServiceAccountToken"] is speaks
    (container,) = pod["containers"]
    own = container["securityContext"]
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
    assert {"readinessProbe", "livenessProbe", "startupProbe"} <= container.keys()
    hosts = {volume["name"] for volume in pod["volumes"] if "hostPath" in volume}
    assert all(mount["readOnly"] for mount in container["volumeMounts"] if mount["name"] in hosts)


def test_every_account_and_volume_and_setting_that_is_named_is_there() -> None:
    accounts = {one["metadata"]["name"] for one in things("ServiceAccount")}
    assert {pod["serviceAccountName"] for pod in PODS.values()} == accounts
    bound = {subject["name"] for one in things("ClusterRoleBinding") for subject in one["subjects"]}
    assert bound == accounts - {"spazio-none"}
    containers = [container for pod in PODS.values() for container in pod["containers"]]
    images = {container["image"] for container in containers if container["image"].startswith("spazio")}
    assert {image.partition(":")[2] for image in images} == {RELEASE}
    (settings,) = (one["data"] for one in things("ConfigMap") if one["metadata"]["name"] == "spazio")
    named = {entry["name"] for container in containers for entry in container.get("env", ())}
    known = {
        f"SPAZIO_{all_settings.option_name(section, field).upper()}" for section, field, _ in all_settings.options()
    }
    assert named | settings.keys() <= {name.replace("-", "_") for name in known}


def test_the_server_is_configured_as_the_one_of_the_stack() -> None:
    (deployed,) = (one["data"]["spazio.conf"] for one in things("ConfigMap") if one["metadata"]["name"] != "spazio")

    def shared(text: str) -> set[str]:
        stripped = {line.strip() for line in text.splitlines()}
        own = ("#", "server_name", "http")
        return {line for line in stripped if line and not line.startswith(own)}

    assert shared(deployed) == shared((ROOT / "deploy" / "nats.conf").read_text())
