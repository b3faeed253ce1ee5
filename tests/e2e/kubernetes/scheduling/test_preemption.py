"""Production takes the place of Mid pods through a real kube-scheduler that asks the extender whom to evict."""

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.kubernetes import cluster, lab
from tests.e2e.kubernetes.families import GIB, PLAIN, Size
from tests.e2e.kubernetes.lab import Lab
from tests.e2e.kubernetes.output.writing import documents, put, until
from tests.e2e.kubernetes.placement import VARIANTS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(cluster.missing()), reason=cluster.missing())]

PODS = "/api/v1/namespaces/default/pods"
MID_MILLICORES, PROD_MILLICORES, NODE_MILLICORES = 300, 2000, 4000
STILL_SECONDS = 15.0  # what the first pod of a kind takes is known before


async def make(running: Lab, name: str, millicores: int, priority: str) -> None:
    metadata = {"name": name, "labels": {"spazio.class": PLAIN.name}, "annotations": PLAIN.annotations()}
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": f"{millicores}m"}}}
    spec = {"containers": [container], "priorityClassName": priority}
    await running.kubectl.call("POST", PODS, {"metadata": metadata, "spec": spec})


async def bound(running: Lab) -> dict[str, str]:
    """Return the node of each pod that has one."""
    pods: list[dict[str, Any]] = (await running.kubectl.call("GET", PODS))["items"]
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}


async def when_still(running: Lab) -> dict[str, str]:
    """Return the node of each pod once none has come or gone for a while."""
    before: dict[str, str] = {}
    while (now := await bound(running)) != before or not now:
        before = now
        await asyncio.sleep(STILL_SECONDS)
    return now


async def test_production_evicts_mid_pods_on_one_node_goes_there_and_evicts_no_others(tmp_path: Path) -> None:
    size = Size(NODE_MILLICORES // 1000, 16 * GIB)
    async with lab.lab(tmp_path, nodes=2, size=size, process=VARIANTS["plain"].process) as running:
        for thing in documents("examples/mid.yaml")[:2]:
            await put(running.kubectl, thing)
        # As many Mid pods as the extender lets in: both nodes are full as measured.
        for number in range(26):
            await make(running, f"mid-{number}", MID_MILLICORES, "spazio-mid")
        mid = await when_still(running)
        assert set(mid.values()) == {"kwok-000", "kwok-001"}
        for number in range(26):
            if f"mid-{number}" not in mid:
                await running.kubectl.delete(f"mid-{number}")
        left = {node: NODE_MILLICORES - MID_MILLICORES * list(mid.values()).count(node) for node in set(mid.values())}
        assert max(left.values()) < PROD_MILLICORES, left

        await make(running, "prod", PROD_MILLICORES, "spazio-prod")

        async def runs() -> bool:
            return "prod" in await bound(running)

        await until(runs, 60, lambda: running.scheduler.log.read_text()[-3000:])
        after = await when_still(running)
        evicted = mid.keys() - after.keys()
        assert {mid[name] for name in evicted} == {after["prod"]}
        assert len(evicted) == math.ceil((PROD_MILLICORES - left[after["prod"]]) / MID_MILLICORES)
