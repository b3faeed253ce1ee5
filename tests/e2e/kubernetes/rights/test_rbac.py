"""Each component works with the rights that deploy/kubernetes gives it, and with none less."""

import asyncio
from pathlib import Path

import pytest
from nats.aio.client import Client

from kube import answer
from kube.api import Api
from schemas.sections.measurement import Kube
from schemas.settings import Settings
from sinks.extender import service
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.floor import asking
from tests.e2e.kubernetes.output.test_output_full import MARKING, full, kept, lacking_room
from tests.e2e.kubernetes.output.test_output_nodes import lending
from tests.e2e.kubernetes.output.writing import (
    METRICS,
    SCALERS,
    configured,
    documents,
    publish,
    until,
    writing,
)
from tests.e2e.kubernetes.rights.rules import (
    MANIFESTS,
    Rule,
    account_of,
    kubeconfig,
    lacking,
    named,
    roles,
    rules,
)
from tests.e2e.kubernetes.watch.watching import Watch

pytestmark = pytest.mark.slow


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
    assert [rule[1:] for rule in OF_AGENT] == [("", "serviceaccounts/token", "create", "")]
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
        await publish(client, lending(1.5), asking(5), lacking_room("n1"))
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
