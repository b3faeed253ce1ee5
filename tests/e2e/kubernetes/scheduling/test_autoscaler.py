"""An autoscaler buys the nodes that measured room calls for, once full nodes have the taint, and none without it.

On a real API server, kube-scheduler and KWOK's nodes, with the whole of spazio and the real Karpenter. A node of 4 CPUs
takes eleven pods by the policy, and a hundred and ten by requests.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.e2e.kubernetes import cluster, lab
from tests.e2e.kubernetes.families import GIB, PLAIN, Size
from tests.e2e.kubernetes.lab import Lab
from tests.e2e.kubernetes.output.test_output_full import become, full
from tests.e2e.kubernetes.output.writing import install, until
from tests.e2e.kubernetes.scheduling.karpenter import karpenter, missing
from tests.e2e.kubernetes.service import Service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(cluster.missing()), reason=cluster.missing()),
]

SIZE = Size(4, 16 * GIB)
NODES, PER_NODE = 2, 11
OLD = ["kwok-000", "kwok-001"]
KNOWN = {
    "SPAZIO_ESTIMATE_POD_CORES": str(PLAIN.cores),
    "SPAZIO_ESTIMATE_POD_MEMORY_BYTES": str(PLAIN.memory),
}


@asynccontextmanager
async def filled(folder: Path, pods: int) -> AsyncIterator[Lab]:
    """Run a cluster whose nodes hold as many of so many pods as fit, while the others wait."""
    async with lab.lab(folder, nodes=NODES, size=SIZE, process=KNOWN) as running:
        await install(running.kubectl, "namespace.yaml")
        for number in range(pods):
            await running.pod(f"pod-{number}", PLAIN)

        async def is_full() -> bool:
            return await bound(running) >= NODES * (PER_NODE - 2) and bool(await waiting(running))

        await until(is_full, 90, "pods on all nodes, and some that wait")
        yield running


async def bound(running: Lab) -> int:
    return sum(bool(pod["spec"].get("nodeName")) for pod in await running.kubectl.list("pods"))


async def waiting(running: Lab) -> list[str]:
    """Return the pods that no node takes."""
    pods = await running.kubectl.list("pods")
    return [pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")]


def sink(running: Lab) -> Service:
    """Start the Kubernetes sink with taints."""
    only = dict.fromkeys(("SPAZIO_OUTPUT_METRICS", "SPAZIO_OUTPUT_FLOOR"), "false")
    return running.service("kubernetes", "sink", "kubernetes", SPAZIO_OUTPUT_FULL="true", **only)


@pytest.mark.skipif(bool(missing()), reason=missing())
async def test_karpenter_adds_no_node_until_full_nodes_have_taints_and_then_at_most_one_too_many(
    tmp_path: Path,
) -> None:
    """38 pods need four nodes; two are there."""
    async with filled(tmp_path, 38) as running, karpenter(running.plane, running.kubectl, SIZE) as autoscaler:
        await asyncio.sleep(25)  # longer than two of its batches, and each pod was tried more than once
        assert await autoscaler.added() == []
        assert len(await waiting(running)) >= 38 - NODES * (PER_NODE + 1)
        assert await full(running.kubectl) == []
        sink(running)
        began = time.monotonic()

        async def all_run() -> bool:
            return not await waiting(running)

        await until(autoscaler.added, 30, autoscaler.log.read_text)
        first = time.monotonic() - began
        await until(all_run, 180, lambda: (autoscaler.log.read_text(), running.services["kubernetes"].log.read_text()))
        await become(running.kubectl, seconds=60)
        added = await autoscaler.added()
        print(f"first node after {first:.0f} s, all pods run after {time.monotonic() - began:.0f} s, nodes: {added}")
        assert 2 <= len(added) <= 3


async def test_the_taints_go_when_the_sink_ends_and_after_a_kill_with_its_next_start(tmp_path: Path) -> None:
    """No autoscaler adds a node, as where it has reached its limit, so pods go on waiting."""
    async with filled(tmp_path, 30) as running:
        writes = sink(running)
        await become(running.kubectl, *OLD, seconds=60)
        assert await asyncio.to_thread(writes.end) == 0
        assert await full(running.kubectl) == []
        writes.start()
        await become(running.kubectl, *OLD, seconds=60)
        writes.kill()
        for name in await waiting(running):
            await running.kubectl.delete(name)
        await asyncio.sleep(2)
        assert await full(running.kubectl) == OLD
        writes.start()
        await become(running.kubectl, seconds=60)
