"""A real kube-scheduler understands what the extender answers."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bus.health import Health
from schemas.sections.placement import Extender
from sinks.extender.web import server
from tests.e2e.kubernetes import control_plane
from tests.e2e.kubernetes.control_plane import Kubectl
from tests.golden.extender import record
from tests.support.extender.asking import Rule, make_keys

PODS = "/api/v1/namespaces/default/pods"

pytestmark = pytest.mark.slow


class Binding(Rule):
    """Binds as well, and writes down what it was asked to evict."""

    def __init__(self, kubectl: Kubectl) -> None:
        super().__init__()
        self._kubectl = kubectl
        self.evicted: list[dict[str, Sequence[str]]] = []

    async def bind(self, namespace: str, name: str, uid: str, node: str) -> str:
        await self._kubectl.bind(name, node)
        return await super().bind(namespace, name, uid, node)

    async def preempt(
        self, pod: Mapping[str, Any], victims: Mapping[str, Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        self.evicted.append(dict(victims))
        return {node: uids for node, uids in victims.items() if node == "lab-1"}


def pod(name: str, cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


async def settled(kubectl: Kubectl, name: str, key: str) -> Any:
    """Wait for a field of a pod's status or spec, and return it."""
    async with asyncio.timeout(60):
        while True:  # the API tells; a watch of one field would be longer than the test
            pod = await kubectl.call("GET", f"{PODS}/{name}")
            value = pod["spec"].get(key) or pod["status"].get(key)
            if value:
                return value
            await asyncio.sleep(0.1)


async def events(kubectl: Kubectl, name: str) -> str:
    """Wait until something is reported of a pod that failed to schedule, and return it."""
    async with asyncio.timeout(60):
        while True:
            listed = await kubectl.call("GET", "/api/v1/namespaces/default/events")
            reasons = [
                event["message"]
                for event in listed["items"]
                if event["involvedObject"].get("name") == name and event["reason"] == "FailedScheduling"
            ]
            if reasons:
                return "\n".join(reasons)
            await asyncio.sleep(0.1)


async def make_nodes(kubectl: Kubectl) -> None:
    """Make three nodes that take pods."""
    for index in range(3):
        await kubectl.node(f"lab-{index}")
        await kubectl.call("PATCH", f"/api/v1/nodes/lab-{index}", {"spec": {"taints": None}})


@pytest.mark.parametrize("names", [True, False], ids=["names", "nodes"])
async def test_a_scheduler_filters_ranks_binds_and_evicts_as_it_is_answered(tmp_path: Path, names: bool) -> None:
    if reason := control_plane.missing():
        pytest.skip(reason)
    with control_plane.control_plane(tmp_path / "plane") as plane:
        async with Kubectl(plane) as kubectl:
            await make_nodes(kubectl)
            urgent = {"metadata": {"name": "urgent"}, "value": 1000000}
            await kubectl.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", urgent)
            rule = Binding(kubectl)
            async with server.serve(Extender(port=0, bind=True), rule, Health()) as address:
                with record.scheduler(plane, address, names=names):
                    # lab-0 is turned down, and lab-2 has the higher score
                    await kubectl.call("POST", PODS, pod("web", "100m"))
                    assert await settled(kubectl, "web", "nodeName") == "lab-2"
                    uid = (await kubectl.call("GET", f"{PODS}/web"))["metadata"]["uid"]
                    assert rule.bound == {uid: "lab-2"}

                    await kubectl.call("POST", PODS, pod("breaks", "100m"))
                    assert "code 500" in await events(kubectl, "breaks")
                    await kubectl.call("POST", PODS, pod("puzzles", "100m"))
                    assert "nobody knows" in await events(kubectl, "puzzles")
                    await asyncio.gather(*map(kubectl.delete, ("breaks", "puzzles")))

                    fillers = [pod(f"filler-{index}", "3", nodeName=f"lab-{index}") for index in range(3)]
                    await asyncio.gather(*(kubectl.call("POST", PODS, filler) for filler in fillers))
                    await kubectl.call("POST", PODS, pod("urgent", "2", priorityClassName="urgent"))
                    assert await settled(kubectl, "urgent", "nominatedNodeName") == "lab-1"
                    filler = (await kubectl.call("GET", f"{PODS}/filler-1"))["metadata"]
                    assert rule.evicted[0]["lab-1"] == [filler["uid"]]


async def test_a_scheduler_with_a_certificate_is_served_over_https(tmp_path: Path) -> None:
    if reason := control_plane.missing():
        pytest.skip(reason)
    make_keys(tmp_path)
    files = {name: tmp_path / name for name in ("server.pem", "server.key", "ca.pem", "client.pem", "client.key")}
    settings = Extender(
        port=0, tls_cert=files["server.pem"], tls_key=files["server.key"], tls_client_ca=files["ca.pem"]
    )
    secure = {"caFile": str(files["ca.pem"]), "certFile": str(files["client.pem"]), "keyFile": str(files["client.key"])}
    with control_plane.control_plane(tmp_path / "plane") as plane:
        async with Kubectl(plane) as kubectl, server.serve(settings, Rule(), Health()) as address:
            await make_nodes(kubectl)
            # without a verb for it, the scheduler binds
            with record.scheduler(plane, address, names=True, enableHTTPS=True, tlsConfig=secure, bindVerb=""):
                await kubectl.call("POST", PODS, pod("web", "100m"))
                assert await settled(kubectl, "web", "nodeName") == "lab-2"
