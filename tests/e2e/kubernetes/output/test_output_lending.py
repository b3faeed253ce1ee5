"""What is lent, from a prediction to a pod that runs on it: the example, a real kube-scheduler, KWOK's kubelets."""

import asyncio
from typing import Any

import pytest
from nats.aio.client import Client

from schemas.settings import Settings
from tests.e2e.kubernetes import cluster
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.test_output_nodes import becomes, lending, lent
from tests.e2e.kubernetes.output.writing import configured, documents, publish, put, until, writing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(cluster.missing()), reason=cluster.missing())]

GIB = 1 << 30
PODS = "/api/v1/namespaces/default/pods"
SCHEDULER = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {{kubeconfig: {}}}
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
"""


async def make(kubectl: Kubectl, name: str, template: dict[str, Any]) -> None:
    """Make a pod as the example's Deployment would."""
    await kubectl.call("POST", PODS, {**template, "metadata": {**template["metadata"], "name": name}})


async def where(kubectl: Kubectl) -> dict[str, tuple[str, str]]:
    """Return the phase and the node of each pod."""
    pods = (await kubectl.call("GET", PODS))["items"]
    return {pod["metadata"]["name"]: (pod["status"]["phase"], pod["spec"].get("nodeName", "")) for pod in pods}


@pytest.mark.parametrize("plane", [("--disable-admission-plugins=TaintNodesByCondition",)], indirect=True)
async def test_pods_of_the_example_run_on_what_a_node_that_opted_in_lends(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings
) -> None:
    await kubectl.node("lends", annotations={"spazio.mid": "true"})
    await kubectl.node("keeps", labels={"pool": "spare"})
    *classes, deployment = documents("examples/mid.yaml")
    for thing in classes:
        await put(kubectl, thing)
    template = deployment["spec"]["template"]
    await publish(client, lending(1.0, 2 * GIB, node="lends"), lending(2.0, 2 * GIB, node="keeps"))
    kubelets = cluster.kwok(plane)
    scheduler = cluster.scheduler(plane, SCHEDULER.format(plane.kubeconfig()))
    try:
        await asyncio.to_thread(kubelets.start)
        await asyncio.to_thread(scheduler.start)
        for name in ("one", "two", "three"):
            await make(kubectl, name, template)
        chosen = configured(settings, plane.kubeconfig(), metrics=False, mid_nodes="spazio.mid=true")
        async with writing(client, chosen) as health:
            await becomes(kubectl, 1000, 2 * GIB, "lends")
            assert await lent(kubectl, "keeps") == (None,) * 4

            async def two_run() -> bool:
                return sorted((await where(kubectl)).values()) == [("Pending", ""), *[("Running", "lends")] * 2]

            await until(two_run, 40, "two pods that run where half a core each is lent, and one that waits")
            # Production takes it back: no more is lent, and the pods that run there go on; nothing ends them.
            await publish(client, lending(0.0, 2 * GIB, node="lends"))
            await becomes(kubectl, 0, 2 * GIB, "lends")
            assert await two_run()
            assert health.problems == {}
        # Another pool opts in by its label; the node that no longer does is given back what it had.
        chosen = configured(settings, plane.kubeconfig(), metrics=False, mid_nodes="pool=spare")
        async with writing(client, chosen):
            await becomes(kubectl, 2000, 2 * GIB, "keeps")
            await becomes(kubectl, None, None, "lends")

            async def third_runs() -> bool:
                return ("Running", "keeps") in (await where(kubectl)).values()

            await until(third_runs, 40, "the pod that waited")
        # Production is known by its priority, and the Mid tier by its own.
        (priority,) = {(await kubectl.call("GET", f"{PODS}/{name}"))["spec"]["priority"] for name in ("one", "two")}
        assert priority == 7000
    finally:
        scheduler.kill()
        kubelets.kill()


async def test_nothing_is_lent_by_default(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings
) -> None:
    await kubectl.node("n1", annotations={"spazio.mid": "true"})
    await publish(client, lending(1.0))
    assert not settings.output.mid
    chosen = configured(settings, plane.kubeconfig(), metrics=False, mid=settings.output.mid)
    async with writing(client, chosen):
        await asyncio.sleep(2)
        assert await lent(kubectl) == (None,) * 4
