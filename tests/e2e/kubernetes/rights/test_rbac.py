"""Each component works with the rights that deploy/kubernetes gives it, and with none less."""

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from nats.aio.client import Client

from kube import answer
from kube.api import Api
from schemas.sections.measurement import Kube
from schemas.settings import Settings
from sinks.extender import service
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.floor import asking, scaler
from tests.e2e.kubernetes.output.test_output_full import MARKING, full, kept, lacking_room
from tests.e2e.kubernetes.output.test_output_nodes import lending
from tests.e2e.kubernetes.output.writing import (
    METRICS,
    SCALERS,
    configured,
    documents,
    install,
    path_of,
    publish,
    put,
    until,
    writing,
)
from tests.e2e.kubernetes.watch.watching import Watch

pytestmark = pytest.mark.slow

MANIFESTS = ("rbac.yaml", "optional/rbac-bind.yaml", "optional/rbac-full.yaml")
ROLES = ("ClusterRole", "Role")
LEASE = "/apis/coordination.k8s.io/v1/namespaces/spazio/leases/spazio-full"
SPACE = "spazio"


class Rule(NamedTuple):
    """One verb on one resource, of objects of this name; empty: of all objects."""

    role: tuple[str, str]
    group: str
    resource: str
    verb: str
    name: str = ""


def roles() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the roles by kind and name."""
    things = [thing for name in MANIFESTS for thing in documents(name)]
    return {(thing["kind"], thing["metadata"]["name"]): thing for thing in things if thing["kind"] in ROLES}


def rules() -> list[Rule]:
    return [
        Rule(key, group, resource, verb, name)
        for key, role in roles().items()
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", ("",))
    ]


def without(lacking: Rule) -> dict[str, Any]:
    """Return a role that lacks one rule."""
    role = copy.deepcopy(roles()[lacking.role])
    role["rules"] = [
        {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": [rule.verb]}
        | ({"resourceNames": [rule.name]} if rule.name else {})
        for rule in rules()
        if rule.role == lacking.role and rule != lacking
    ]
    return role


@pytest.fixture
async def cluster(shared: ControlPlane) -> AsyncIterator[Kubectl]:
    """A cluster with everything installed, a node, a pod and an autoscaler, and nothing written to them."""
    async with Kubectl(shared) as kubectl:
        # With the policies of admission: what they leave of each right must suffice.
        await install(kubectl, "namespace.yaml", "crd.yaml", "admission.yaml", *MANIFESTS)
        await kubectl.node("n1", labels={"by": "kubelet"})
        await kubectl.pod("p1")
        await scaler(kubectl, spazio_floor="true")
        yield kubectl
        for path in (f"{METRICS}/n1", f"{SCALERS}/web", "/api/v1/nodes/n1", LEASE):
            await kubectl.call("DELETE", path)
        await kubectl.delete("p1")


async def kubeconfig(plane: ControlPlane, kubectl: Kubectl, account: str, space: str = SPACE) -> Path:
    """Return a kubeconfig with a token of a ServiceAccount, as a pod of it has one."""
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    path = f"/api/v1/namespaces/{space}/serviceaccounts/{account}/token"
    token = (await kubectl.call("POST", path, request))["status"]["token"]
    written = plane.kubeconfig(token="account")
    written.write_text(written.read_text().replace('"account"', f'"{token}"'))
    return written


async def allowed(kubectl: Kubectl, rule: Rule, account: str) -> bool:
    """Tell whether the API server has taken notice of a role."""
    resource, _, part = rule.resource.partition("/")
    asked = {"verb": rule.verb, "group": rule.group, "resource": resource, "subresource": part, "name": rule.name}
    if rule.role[0] == "Role":
        asked["namespace"] = SPACE
    user = f"system:serviceaccount:{SPACE}:{account}"
    spec = {"user": user, "groups": ["system:authenticated"], "resourceAttributes": asked}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answered = await kubectl.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answered["status"]["allowed"])


@asynccontextmanager
async def lacking(kubectl: Kubectl, rule: Rule, account: str) -> AsyncIterator[None]:
    """Take a rule away for the length of a block."""

    async def gone() -> bool:
        return not await allowed(kubectl, rule, account)

    async def back() -> bool:
        return await allowed(kubectl, rule, account)

    role = without(rule)
    await kubectl.call("PUT", path_of(role), role)
    await until(gone)
    try:
        yield
    finally:
        await put(kubectl, roles()[rule.role])
        await until(back)


def account_of(role: str) -> str:
    return role.removesuffix("-bind").removesuffix("-full")


def named(rule: Rule) -> str:
    return f"{rule.resource}.{rule.group}" if rule.group else rule.resource


async def requeue(plane: ControlPlane, kubectl: Kubectl) -> None:
    """Annotate a node as the extender does."""
    api = Api(Kube(config=await kubeconfig(plane, kubectl, "spazio-extender")))
    try:
        await service._annotate(api, "n1")
        made = await kubectl.call("GET", "/api/v1/nodes/n1")
        assert service.ANNOTATION in made["metadata"]["annotations"]
    finally:
        await api.close()


async def bind(plane: ControlPlane, kubectl: Kubectl, uid: str | None = None) -> str:
    """Bind a pod as the extender does; returns why it could not be."""
    pod = (await kubectl.call("GET", "/api/v1/namespaces/default/pods/p1"))["metadata"]
    api = Api(Kube(config=await kubeconfig(plane, kubectl, "spazio-extender")))
    try:
        return await service.bind_pod(api, "default", "p1", uid or pod["uid"], "n1")
    finally:
        await api.close()


OF_BIND = [rule for rule in rules() if rule.role[1] == "spazio-extender-bind"]
OF_KICK = [rule for rule in rules() if rule.role[1] == "spazio-extender"]
OF_SINK = [rule for rule in rules() if rule.role[1] in ("spazio-kubernetes", "spazio-kubernetes-full")]
OF_WATCH = [rule for rule in rules() if rule.role[1] == "spazio-watch"]


OF_AGENT = [rule for rule in rules() if rule.role[1] == "spazio-agent"]  # test_node_secrets.py tries it


def test_every_rule_is_tried() -> None:
    assert sorted(rules()) == sorted(OF_AGENT + OF_BIND + OF_KICK + OF_SINK + OF_WATCH)
    assert [rule[1:] for rule in OF_AGENT] == [("", "secrets", "patch", "")]
    assert [rule.verb for rule in OF_BIND] == ["create", "get"]
    leases = {(rule.verb, rule.name) for rule in rules() if rule.resource == "leases"}
    assert leases == {("create", ""), ("get", "spazio-full"), ("update", "spazio-full")}
    assert len(rules()) == len(set(rules())) == 22
    bindings = [thing for name in MANIFESTS for thing in documents(name) if thing["kind"].endswith("RoleBinding")]
    refs = [(binding["roleRef"], binding["subjects"][0]["name"]) for binding in bindings]
    assert {(ref["kind"], ref["name"]): account for ref, account in refs} == {
        (kind, name): account_of(name) for kind, name in roles()
    }


@pytest.mark.parametrize("rule", OF_KICK, ids=str)
async def test_the_extender_kicks_with_its_rules_and_not_without(
    shared: ControlPlane, cluster: Kubectl, rule: Rule
) -> None:
    async with lacking(cluster, rule, "spazio-extender"):
        with pytest.raises(answer.Forbidden, match=f"verb {rule.verb} on {named(rule)}"):
            await requeue(shared, cluster)
    await requeue(shared, cluster)


async def test_the_extender_binds_and_knows_what_is_bound_with_its_rules_and_not_without(
    shared: ControlPlane, cluster: Kubectl
) -> None:
    create, get = OF_BIND
    async with lacking(cluster, create, "spazio-extender"):
        assert f"verb create on {named(create)}" in await bind(shared, cluster)
    assert await bind(shared, cluster) == ""
    # An answer that was lost is asked for again.
    assert await bind(shared, cluster) == ""
    assert await bind(shared, cluster, uid="of-another-pod") != ""
    async with lacking(cluster, get, "spazio-extender"):
        assert await bind(shared, cluster) != ""


async def test_the_kubernetes_sink_writes_everything_with_its_rules(
    shared: ControlPlane, cluster: Kubectl, client: Client, settings: Settings
) -> None:
    await publish(client, lending(1.5), asking(5), lacking_room("n1"))
    config = await kubeconfig(shared, cluster, "spazio-kubernetes")
    async with writing(client, configured(settings, config, **MARKING)) as health:
        await until(lambda: complete(cluster), what=lambda: health.problems)
        assert health.problems == {}


async def complete(kubectl: Kubectl) -> bool:
    """Tell whether all that the sink writes is written."""
    lent = (await kubectl.call("GET", "/api/v1/nodes/n1"))["status"]["allocatable"].get("kubernetes.io/mid-cpu")
    items = (await kubectl.call("GET", METRICS))["items"]
    least = (await kubectl.call("GET", f"{SCALERS}/web"))["spec"]["minReplicas"]
    status = items[0].get("status", {}) if items else {}
    marked = (await full(kubectl), await kept(kubectl)) == (["n1"], ["n1"])
    return bool(lent == "1500" and least == 5 and "prediction" in status and marked)


@pytest.mark.parametrize("rule", OF_SINK, ids=str)
async def test_the_kubernetes_sink_lacks_each_rule_that_is_taken_away_and_says_which(
    shared: ControlPlane, cluster: Kubectl, client: Client, settings: Settings, rule: Rule
) -> None:
    config = await kubeconfig(shared, cluster, "spazio-kubernetes")
    await publish(client, lending(1.5), asking(5), lacking_room("n1"))
    verbs = "verbs list and watch" if rule.verb in ("list", "watch") else f"verb {rule.verb}"
    chosen = configured(settings, config, **MARKING)
    async with lacking(cluster, rule, "spazio-kubernetes"), writing(client, chosen) as health:

        async def is_reported() -> bool:
            return any(f"{verbs} on {named(rule)}" in reason for reason in health.problems.values())

        await until(is_reported, what=lambda: health.problems)
        assert len(health.problems) == 1, health.problems
    async with writing(client, chosen) as health:
        await until(lambda: complete(cluster), what=lambda: health.problems)


@pytest.mark.parametrize("rule", OF_WATCH, ids=str)
async def test_the_watch_lacks_each_rule_that_is_taken_away_and_says_which(
    shared: ControlPlane, cluster: Kubectl, client: Client, settings: Settings, rule: Rule, tmp_path: Path
) -> None:
    watch = Watch(settings, await kubeconfig(shared, cluster, "spazio-watch"), tmp_path)

    async def is_reported() -> bool:
        events = watch.events if watch.log.exists() else []
        return any(
            event["event"] == "service.degraded" and f"{rule.verb} {rule.resource}" in event["reason"]
            for event in events
        )

    async def published() -> bool:
        stream = await client.jetstream().stream_info("SPAZIO_TELEMETRY", subjects_filter="spazio.part.>")
        return {subject.split(".")[3] for subject in stream.state.subjects or ()} == {"nodefacts", "podfacts"}

    try:
        async with lacking(cluster, rule, "spazio-watch"):
            watch.start()
            await until(is_reported, 30, watch.log.read_text)
            assert not [event for event in watch.events if event["event"] == "service.recovered"]
            watch.kill()
        watch.start()
        await until(published, 30, watch.log.read_text)
    finally:
        watch.kill()
        await asyncio.sleep(0)
