"""The Helm chart makes what kustomize makes, and its values change what they say and nothing else."""

import functools
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tests.support.project.charts import (
    CHART,
    MISSING,
    OVERLAYS,
    Objects,
    built,
    helm,
    kustomized,
    objects,
    rendered,
    written,
)
from tests.support.server.prometheus import DASHBOARDS, RULES

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

PROCESS = ("Deployment", "spazio", "spazio-process")
NATS = ("StatefulSet", "spazio", "spazio-nats")
SINK = ("Deployment", "spazio", "spazio-kubernetes")


@functools.cache
def _standard() -> Objects:
    return rendered()


def changed(values: dict[str, Any]) -> dict[tuple[str, str, str], tuple[Any, Any]]:
    """Return the objects that values change, before and after; None: there is no such object."""
    before, after = _standard(), rendered(**values)
    return {
        key: (before.get(key), after.get(key))
        for key in before.keys() | after.keys()
        if before.get(key) != after.get(key)
    }


def container(result: Objects, key: tuple[str, str, str]) -> dict[str, Any]:
    (only,) = result[key]["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def unfolded(thing: Any) -> Any:
    """Return an object with all expressions on one line: kustomize breaks long lines, which CEL does not notice."""
    if isinstance(thing, list):
        return [unfolded(each) for each in thing]
    if not isinstance(thing, dict):
        return thing
    return {key: " ".join(value.split()) if key == "expression" else unfolded(value) for key, value in thing.items()}


@pytest.mark.parametrize("profile", OVERLAYS)
def test_chart_and_overlay_make_the_same_objects(profile: str) -> None:
    chart, overlay = rendered(profile=profile), built(profile)
    assert chart.keys() == overlay.keys()
    assert [key for key in chart if unfolded(chart[key]) != unfolded(overlay[key])] == []


def test_the_standard_profile_is_the_manifests() -> None:
    assert _standard() == written()


def test_profiles_differ_as_their_table_says() -> None:
    small, standard, production = (built(profile) for profile in ("small", "standard", "production"))
    assert [result[PROCESS]["spec"]["replicas"] for result in (small, standard, production)] == [1, 2, 3]
    assert [result[NATS]["spec"]["replicas"] for result in (small, standard, production)] == [1, 1, 3]
    for space in ("spazio", "spazio-agents"):
        assert production["ConfigMap", space, "spazio"]["data"]["SPAZIO_NATS_REPLICAS"] == "3"
    budgets = {
        key[2]: first["spec"].get("minAvailable", first["spec"].get("maxUnavailable"))
        for key, first in production.items()
        if key[0] == "PodDisruptionBudget"
    }
    assert budgets == {"spazio-extender": 1, "spazio-nats": 1, "spazio-process": 1}
    assert small["PodDisruptionBudget", "spazio", "spazio-extender"]["spec"]["minAvailable"] == 0
    spread = production[NATS]["spec"]["template"]["spec"]["topologySpreadConstraints"]
    assert [(first["topologyKey"].rpartition("/")[2], first["whenUnsatisfiable"]) for first in spread] == [
        ("hostname", "DoNotSchedule"),
        ("zone", "ScheduleAnyway"),
    ]


def test_images_are_replaced_everywhere_and_pull_secrets_named() -> None:
    images = {"full": "r/spazio:2.0", "agent": "r/agent@sha256:" + "0" * 64, "nats": "r/nats:2.16"}
    result = rendered(images=images | {"pullSecrets": ["pull"]})
    workloads = {key: first for key, first in result.items() if "template" in first.get("spec", {})}
    for key, first in workloads.items():
        kind = {"spazio-agent": "agent", "spazio-nats": "nats"}.get(key[2], "full")
        pod = first["spec"]["template"]["spec"]
        every = [*pod.get("initContainers", ()), *pod["containers"]]
        assert {each["image"] for each in every} == {images[kind]}
        assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert len(workloads) == 10


def test_a_component_can_be_changed_alone() -> None:
    process = {
        "replicas": 5,
        "resources": {"limits": {"memory": "4Gi"}},
        "nodeSelector": {"pool": "infra"},
        "tolerations": [{"operator": "Exists"}],
        "settings": {"SPAZIO_LOG_LEVEL": "debug"},
    }
    ((key, (before, after)),) = changed({"components": {"process": process}}).items()
    assert key == PROCESS
    pod = after["spec"]["template"]["spec"]
    assert (after["spec"]["replicas"], pod["nodeSelector"]) == (5, {"kubernetes.io/os": "linux", "pool": "infra"})
    assert pod["tolerations"] == [{"key": "spazio.io/full", "operator": "Exists"}, {"operator": "Exists"}]
    (own,), (old,) = pod["containers"], before["spec"]["template"]["spec"]["containers"]
    assert own["env"] == [{"name": "SPAZIO_LOG_LEVEL", "value": "debug"}]
    assert own["resources"] == old["resources"] | {"limits": {"memory": "4Gi"}}


def test_settings_reach_all_components_and_addresses_all_policies() -> None:
    own = {"SPAZIO_LOG_LEVEL": "debug"}
    result = changed({"settings": own, "controlPlane": {"cidrs": ["10.0.0.1/32", "10.0.0.2/32"]}})
    policies = {key[2] for key in result if key[0] == "NetworkPolicy"}
    assert policies == {"spazio-agent", "spazio-extender", "spazio-kubernetes", "spazio-watch"}
    settings = [after["data"]["SPAZIO_LOG_LEVEL"] for key, (_, after) in result.items() if key[0] == "ConfigMap"]
    assert settings == ["debug", "debug"]
    assert len([key for key in result if key[0] not in ("Deployment", "DaemonSet")]) == 6
    for key in result:
        if key[0] == "NetworkPolicy":
            assert "192.0.2.1" not in yaml.safe_dump(result[key][1])
            assert "10.0.0.2/32" in yaml.safe_dump(result[key][1])


def test_another_annotation_of_floors_is_one_that_the_policy_lets_the_sink_write() -> None:
    result = changed({"settings": {"SPAZIO_OUTPUT_FLOOR_ANNOTATION": "a.io/floor"}})
    (policy,) = (after for key, (_, after) in result.items() if key[0] == "ValidatingAdmissionPolicy")
    assert {"name": "ours", "expression": '"a.io/floor-"'} in policy["spec"]["variables"]


def test_pods_that_read_a_setting_at_their_start_start_again_with_another_one() -> None:
    values = [_standard(), *(rendered(settings={"SPAZIO_LOG_LEVEL": level}) for level in ("debug", "info"))]
    for key in (key for key in _standard() if key[0] in ("Deployment", "DaemonSet")):
        notes = [result[key]["spec"]["template"]["metadata"]["annotations"] for result in values]
        assert len({each.pop("spazio.settings", None) for each in notes}) == 3
        assert values[0][key] == values[1][key] == values[2][key]
    assert values[0][NATS] == values[1][NATS]


def test_a_nats_server_outside_is_reached_at_its_port_by_all_that_speak_with_one() -> None:
    own = {"settings": {"SPAZIO_NATS_URL": "tls://nats.example:5222"}, "nats": {"cidrs": ["10.0.0.9/32"], "port": 5222}}
    result = rendered(components={"nats": {"enabled": False}}, **own)
    policies = {
        key[2]: thing for key, thing in result.items() if key[0] == "NetworkPolicy" and "egress" in thing["spec"]
    }
    assert len(policies) == 9
    for name, policy in policies.items():
        (rule,) = [each for each in policy["spec"]["egress"] if each["ports"] == [{"port": 5222}]]
        assert {"ipBlock": {"cidr": "10.0.0.9/32"}} in rule["to"], name


@pytest.mark.parametrize(("profile", "size"), [("standard", ""), ("small", ""), ("production", ""), ("small", "7Gi")])
def test_the_history_is_limited_to_what_its_volume_holds(profile: str, size: str) -> None:
    result = rendered(profile=profile, components={"history": {"storage": {"size": size}} if size else {}})
    claim = result["PersistentVolumeClaim", "spazio", "spazio-history"]["spec"]["resources"]["requests"]["storage"]
    limit = result["ConfigMap", "spazio", "spazio"]["data"]["SPAZIO_HISTORY_MAX_BYTES"]
    assert limit == str((int(claim.removesuffix("Gi")) << 30) * 8 // 10)
    own = {"SPAZIO_HISTORY_MAX_BYTES": "5"}
    result = rendered(settings=own, components={"history": {"storage": {"size": "7Gi"}}})
    assert result["ConfigMap", "spazio", "spazio"]["data"].items() >= own.items()


def test_volumes_have_the_size_and_class_that_is_asked_for() -> None:
    storage = {"storage": {"size": "7Gi", "className": "fast"}}
    result = rendered(components={"nats": storage, "history": storage})
    (claim,) = result[NATS]["spec"]["volumeClaimTemplates"]
    for spec in (claim["spec"], result["PersistentVolumeClaim", "spazio", "spazio-history"]["spec"]):
        assert (spec["resources"]["requests"]["storage"], spec["storageClassName"]) == ("7Gi", "fast")


def test_the_server_may_use_what_its_volume_holds() -> None:
    for profile in ("standard", "production"):
        result = rendered(profile=profile, components={"nats": {"storage": {"size": "50Gi"}}})
        before, after = (each["ConfigMap", "spazio", "spazio-nats"]["data"] for each in (built(profile), result))
        given = re.sub("max_file_store: .*", f"max_file_store: {40 << 30}", before["spazio.conf"])
        assert after == {"spazio.conf": given}


def test_the_only_extender_does_not_hold_up_a_drain() -> None:
    result = changed({"components": {"extender": {"replicas": 1}}})
    budget = result["PodDisruptionBudget", "spazio", "spazio-extender"][1]
    assert (budget["spec"]["minAvailable"], len(result)) == (0, 2)


@pytest.mark.parametrize("name", ["agent", "cache", "extender", "history", "kubernetes", "metrics", "nats", "process"])
def test_a_component_that_is_left_out_takes_everything_of_its_own_with_it(name: str) -> None:
    result = changed({"components": {name: {"enabled": False}}})
    assert all(after is None for _, after in result.values())
    kinds = {key[0] for key in result}
    assert "NetworkPolicy" in kinds
    assert kinds & {"Deployment", "StatefulSet", "DaemonSet"}
    own = (f"spazio-{name}", f"spazio-{name}-nodes", f"spazio-{name}-floors", f"spazio-{name}-marks")
    assert {key[2] for key in result} <= {*own, *(["nodemetrics.spazio.io"] if name == "kubernetes" else [])}
    assert ("ServiceAccount" in kinds) == (name in ("agent", "extender", "kubernetes"))


def test_binding_brings_its_right_and_is_off_otherwise() -> None:
    result = changed({"components": {"extender": {"bind": True}}})
    assert {key[::2] for key in result} == {
        ("ClusterRole", "spazio-extender-bind"),
        ("ClusterRoleBinding", "spazio-extender-bind"),
        ("Deployment", "spazio-extender"),
    }
    (extender,) = result["Deployment", "spazio", "spazio-extender"][1]["spec"]["template"]["spec"]["containers"]
    assert {"name": "SPAZIO_EXTENDER_BIND", "value": "true"} in extender["env"]


def test_the_governor_brings_what_its_manifest_has_and_is_off_otherwise(tmp_path: Path) -> None:
    optional = OVERLAYS["standard"] / "optional" / "govern"
    result = changed({"components": {"govern": {"enabled": True}}})
    own = objects((optional / "govern.yaml").read_text())
    assert {key: after for key, (_, after) in result.items()} == own
    assert all(before is None for before, _ in result.values())
    places = {"resources": [OVERLAYS["standard"]], "components": [optional]}
    overlay = {name: [os.path.relpath(path, tmp_path) for path in paths] for name, paths in places.items()}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    assert kustomized(tmp_path).keys() == rendered(components={"govern": {"enabled": True}}).keys()


def test_evictions_bring_their_right_and_are_off_otherwise() -> None:
    right = objects((OVERLAYS["standard"] / "optional" / "rbac-evict.yaml").read_text())
    assert not right.keys() & rendered(components={"govern": {"enabled": True}}).keys()
    made = rendered(components={"govern": {"enabled": True, "evict": True}})
    assert right.items() <= made.items()
    (governor,) = made["DaemonSet", "spazio-agents", "spazio-govern"]["spec"]["template"]["spec"]["containers"]
    assert {"name": "SPAZIO_GOVERN_EVICT", "value": "true"} in governor["env"]
    assert changed({"components": {"govern": {"evict": True}}}) == {}


def test_taints_for_an_autoscaler_bring_their_rights_and_are_off_otherwise() -> None:
    result = changed({"components": {"kubernetes": {"full": True}}})
    assert {key[::2] for key in result} == {
        *((kind, "spazio-kubernetes-full") for kind in ("ClusterRole", "ClusterRoleBinding")),
        ("Deployment", "spazio-kubernetes"),
    }
    assert {"name": "SPAZIO_OUTPUT_FULL", "value": "true"} in container(
        rendered(components={"kubernetes": {"full": True}}), SINK
    )["env"]
    assert changed({"components": {"kubernetes": {"full": True, "enabled": False}}}) == changed(
        {"components": {"kubernetes": {"enabled": False}}}
    )


def test_monitoring_has_the_rules_and_dashboards_of_the_project() -> None:
    on = {"podMonitor": True, "rules": True, "dashboards": True, "labels": {"release": "p"}, "runbook": "https://r/x"}
    result = {key[0]: after for key, (_, after) in changed({"monitoring": on}).items()}
    assert result.keys() == {"PodMonitor", "PrometheusRule", "ConfigMap"}
    assert result["PodMonitor"]["spec"]["podMetricsEndpoints"][0]["honorLabels"]  # or the operator renames `namespace`
    text = RULES.read_text().replace("http://127.0.0.1:8000/docs/runbook/", "https://r/x")
    assert result["PrometheusRule"]["spec"] == yaml.safe_load(text)
    assert result["ConfigMap"]["data"] == {f"spazio-{path.name}": path.read_text() for path in DASHBOARDS}
    assert all(value["metadata"]["labels"]["release"] == "p" for value in result.values())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"profile": "large"}, "profile"),
        ({"image": "x"}, "image"),
        ({"images": {"full": "spazio:latest"}}, "images/full"),
        ({"images": {"full": "spazio"}}, "images/full"),
        ({"components": {"kubernetes": {"replicas": 2}}}, "components/kubernetes"),
        ({"components": {"process": {"replicas": 0}}}, "replicas"),
        ({"monitoring": {"runbook": "docs/runbook.md"}}, "monitoring/runbook"),
        ({"settings": {"SPAZIO_NATS_REPLICAS": 3}}, "SPAZIO_NATS_REPLICAS"),
        ({"settings": {"LOG_LEVEL": "debug"}}, "settings"),
        ({"controlPlane": {"cidrs": ["10.0.0.1"]}}, "cidrs"),
        ({"controlPlane": {"cidrs": []}}, "cidrs"),
        ({"nats": {"cidrs": ["nats.example"]}}, "cidrs"),
    ],
)
def test_values_that_mean_nothing_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    answer = helm("template", "spazio", str(CHART), values=values)
    assert answer.returncode != 0
    assert message in answer.stderr.replace(".", "/")


def test_the_chart_has_no_fault_that_helm_knows_and_can_be_packed_whole(tmp_path: Path) -> None:
    assert helm("lint", "--strict", str(CHART)).returncode == 0
    packed = helm("package", str(CHART), "--destination", str(tmp_path))
    assert packed.returncode == 0, packed.stderr
    (archive,) = tmp_path.glob("spazio-*.tgz")
    answer = helm("template", "spazio", str(archive), values={"profile": "production"})
    assert answer.returncode == 0, answer.stderr
    # Links of the chart lead out of its folder, and the archive has what they lead to.
    assert len(answer.stdout.split("\nkind: ")) == len(built("production")) + 1
