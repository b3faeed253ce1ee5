"""What RBAC allows and admission narrows, on a real API server: fields of nodes and autoscalers, and pods."""

import copy
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from kube import answer
from kube.api import Api
from schemas.sections.measurement import Kube
from sinks.extender import service
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.floor import scaler
from tests.e2e.kubernetes.output.writing import MANIFESTS, SCALERS, documents, install, until
from tests.e2e.kubernetes.rights.rules import kubeconfig

pytestmark = pytest.mark.slow

NODE, STATUS, SCALER = "/api/v1/nodes/n1", "/api/v1/nodes/n1/status", f"{SCALERS}/web"
NOTES = {"metadata": {"annotations": {service.ANNOTATION: "now"}}}


class Attempt(NamedTuple):
    """A patch that a component's token sends, and what the refusal says."""

    account: str
    path: str
    change: Mapping[str, Any]
    message: str


EXTENDER = "the extender may set the annotation kick.spazio.io/at of a node and change nothing else"
SINK = "the sink may set the Mid-tier resources of a node and change nothing else"
FLOORS = "the sink may set minReplicas and its own annotations of an autoscaler and change nothing else"
MARKS = "the sink may set the taint spazio.io/full of a node, annotations against its removal, and nothing else"
THEIRS = {"key": "theirs", "effect": "NoSchedule"}
TAINTED = {"spec": {"taints": [THEIRS, {"key": "spazio.io/full", "value": "20261124T081049Z", "effect": "NoSchedule"}]}}
KEPT = dict.fromkeys(
    ("spazio.io/keep", "cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt"), "true"
)
LENT = {"status": {side: {"kubernetes.io/mid-cpu": "1500"} for side in ("capacity", "allocatable")}}
ALLOWED = (
    Attempt("spazio-extender", NODE, NOTES, ""),
    Attempt("spazio-kubernetes", STATUS, LENT, ""),
    Attempt("spazio-kubernetes", NODE, TAINTED, ""),
    Attempt("spazio-kubernetes", NODE, {"metadata": {"annotations": KEPT}}, ""),
    Attempt("spazio-kubernetes", NODE, {"metadata": {"annotations": KEPT}} | TAINTED, ""),
    Attempt("spazio-kubernetes", SCALER, {"spec": {"minReplicas": 3}}, ""),
    Attempt("spazio-kubernetes", SCALER, {"metadata": {"annotations": {"spazio.floor-raised": "3"}}}, ""),
)
REFUSED = (
    *(
        Attempt("spazio-extender", NODE, change, EXTENDER)
        for change in (
            {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}},
            {"metadata": {"labels": {"by": None}}},
            {"metadata": {"annotations": {"theirs": "changed"}}},
            {"metadata": {"annotations": {"theirs": None}}},
            {"metadata": {"annotations": {"new": "1"}}},
            {"metadata": {"annotations": {service.ANNOTATION: "now"}, "finalizers": ["a.b/c"]}},
            {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}},
            {"spec": {"unschedulable": True}},
        )
    ),
    *(
        Attempt("spazio-kubernetes", STATUS, change, SINK)
        for change in (
            {"status": {"capacity": {"cpu": "400"}}},
            {"status": {"allocatable": {"memory": "1Ti"}}},
            {"status": {"allocatable": {"pods": None}}},
            {"status": {"capacity": {"nvidia.com/gpu": "8"}}},
            {"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}},
            {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
            {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}},
            {"status": {"declaredFeatures": ["UserNamespacesHostNetworkSupport"]}},
            {"metadata": {"labels": {"a": "b"}}},
            {"metadata": {"annotations": {"theirs": "changed"}}},
        )
    ),
    *(
        Attempt("spazio-kubernetes", NODE, change, MARKS)
        for change in (
            {"spec": {"taints": [THEIRS, {"key": "spazio.io/full", "effect": "NoExecute"}]}},
            {"spec": {"taints": [THEIRS, {"key": "other", "effect": "NoSchedule"}]}},
            {"spec": {"taints": [THEIRS | {"value": "changed"}]}},
            {"spec": {"taints": None}},
            {"spec": {"unschedulable": True}},
            {"spec": {"podCIDR": "10.9.0.0/24", "podCIDRs": ["10.9.0.0/24"]}},
            {"spec": {"providerID": "made://up"}},
            {"metadata": {"labels": {"a": "b"}}},
            {"metadata": {"annotations": {"theirs": "changed"}}},
            {"metadata": {"annotations": {"theirs": None}}},
            {"metadata": {"annotations": {"new": "1"}}},
            {"metadata": {"finalizers": ["a.b/c"]}},
        )
    ),
    *(
        Attempt("spazio-kubernetes", SCALER, change, FLOORS)
        for change in (
            {"spec": {"maxReplicas": 1000}},
            {"spec": {"scaleTargetRef": {"name": "other"}}},
            {"spec": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}},
            {"metadata": {"annotations": {"spazio.floor": "false"}}},
            {"metadata": {"labels": {"a": "b"}}},
        )
    ),
)


@pytest.fixture
async def cluster(shared: ControlPlane) -> AsyncIterator[Kubectl]:
    """A cluster with the manifests that rights depend on, a node and an autoscaler; the policies are in force."""
    async with Kubectl(shared) as kubectl:
        await install(
            kubectl, "namespace.yaml", "admission.yaml", "rbac.yaml", "optional/rbac-full.yaml", "settings.yaml"
        )
        await kubectl.node("n1", labels={"by": "kubelet"}, annotations={"theirs": "kept"})
        await kubectl.call("PATCH", NODE, {"spec": {"taints": [THEIRS]}}, patch="merge-patch+json")
        await scaler(kubectl, spazio_floor="true")
        marking = next(attempt for attempt in REFUSED if attempt.message == MARKS)
        lending = [attempt for attempt in REFUSED if "capacity" in str(attempt.change)]
        for first in (REFUSED[0], *lending, marking, REFUSED[-1]):

            async def refused(first: Attempt = first) -> bool:
                return bool(await send(shared, kubectl, first))

            await until(refused, 30, str(first))
        yield kubectl


async def send(plane: ControlPlane, kubectl: Kubectl, attempt: Attempt) -> str:
    """Send a patch with the component's own token, as a dry run; returns why it is refused."""
    api = Api(Kube(config=await kubeconfig(plane, kubectl, attempt.account)))
    query = {"dryRun": "All"}
    try:
        await api.send("PATCH", attempt.path, attempt.change, query=query, kind="application/merge-patch+json")
    except (answer.Invalid, answer.Forbidden) as refusal:
        return refusal.reason
    finally:
        await api.close()
    return ""


async def test_each_component_changes_what_it_is_for(shared: ControlPlane, cluster: Kubectl) -> None:
    for attempt in ALLOWED:
        assert await send(shared, cluster, attempt) == "", attempt


async def test_no_component_changes_anything_else_of_an_object_that_it_may_patch(
    shared: ControlPlane, cluster: Kubectl
) -> None:
    for attempt in REFUSED:
        assert attempt.message in await send(shared, cluster, attempt), attempt


def pods() -> dict[str, dict[str, Any]]:
    """Return a pod of each workload."""
    result = {}
    for path in [*sorted(MANIFESTS.glob("*.yaml")), MANIFESTS / "examples" / "backup.yaml"]:
        for thing in documents(str(path)):
            if "template" in (thing.get("spec") or {}):
                name, template = thing["metadata"]["name"], copy.deepcopy(thing["spec"]["template"])
                mounted = {volume["name"] for volume in template["spec"].get("volumes", ())}
                # A controller adds the volumes of claims.
                claims = [{"name": each["metadata"]["name"]} for each in thing["spec"].get("volumeClaimTemplates", ())]
                template["spec"]["volumes"] += [
                    each | {"emptyDir": {}} for each in claims if each["name"] not in mounted
                ]
                template["metadata"] |= {"name": name, "namespace": thing["metadata"]["namespace"]}
                result[name] = template | {"apiVersion": "v1", "kind": "Pod"}
    return result


async def create(plane: ControlPlane, pod: Mapping[str, Any], space: str) -> str:
    """Create a pod as an administrator, as a dry run; returns why it is refused."""
    made = json.loads(json.dumps(pod))
    made["metadata"]["namespace"] = space
    api = Api(Kube(config=plane.kubeconfig()))
    try:
        await api.send("POST", f"/api/v1/namespaces/{space}/pods", made, query={"dryRun": "All"})
    except (answer.Invalid, answer.Forbidden) as refusal:
        return refusal.reason
    finally:
        await api.close()
    return ""


async def test_every_pod_is_admitted_where_it_belongs_and_the_agent_nowhere_else(
    shared: ControlPlane, cluster: Kubectl
) -> None:
    every = pods()
    assert len(every) == 11
    for name, pod in every.items():
        assert await create(shared, pod, pod["metadata"]["namespace"]) == "", name
    assert "restricted" in await create(shared, every["spazio-agent"], "spazio")


BAD: dict[str, dict[str, Any]] = {
    "a folder of the host": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
    "the host's network": {"hostNetwork": True},
    "the host's processes": {"hostPID": True},
    "root": {"securityContext": {"runAsNonRoot": False}},
}
BAD_CONTAINER: dict[str, dict[str, Any]] = {
    "privileged": {"securityContext": {"privileged": True, "allowPrivilegeEscalation": True}},
    "a capability": {"securityContext": {"capabilities": {"drop": ["ALL"], "add": ["SYS_PTRACE"]}}},
    "more privileges": {"securityContext": {"allowPrivilegeEscalation": True}},
    "a port of the host": {"ports": [{"containerPort": 1, "hostPort": 1}]},
    "a folder to write": {"volumeMounts": [{"name": "proc", "mountPath": "/host/proc"}]},
}


async def test_the_namespace_of_the_agents_admits_agents_and_not_what_takes_the_node(
    shared: ControlPlane, cluster: Kubectl
) -> None:
    agent = pods()["spazio-agent"]
    for what, change in BAD.items():
        pod = copy.deepcopy(agent)
        pod["spec"] |= change | {"volumes": pod["spec"]["volumes"] + change.get("volumes", [])}
        assert "pods here" in await create(shared, pod, "spazio-agents"), what
    for (what, change), kind in itertools.product(BAD_CONTAINER.items(), ("containers", "initContainers")):
        pod = copy.deepcopy(agent)
        (container,) = pod["spec"][kind]
        container["securityContext"] |= change.get("securityContext", {})
        container |= {key: value for key, value in change.items() if key != "securityContext"}
        with suppress(KeyError):
            del container["startupProbe"], container["readinessProbe"], container["livenessProbe"]
        assert " here " in await create(shared, pod, "spazio-agents"), (what, kind)
