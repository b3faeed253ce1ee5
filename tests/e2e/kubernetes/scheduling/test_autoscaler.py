"""Karpenter adds the nodes that measured room calls for, once full nodes have the taint, and none without it.

On a real API server, kube-scheduler and KWOK's nodes, with the whole of spazio. A node of 4 CPUs takes eleven pods by
the policy, and a hundred and ten by requests.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.e2e.kubernetes import cluster, lab
from tests.e2e.kubernetes.families import GIB, PLAIN, Size
from tests.e2e.kubernetes.lab import Lab
from tests.e2e.kubernetes.output.test_output_full import become, full, kept
from tests.e2e.kubernetes.output.writing import install, until
from tests.e2e.kubernetes.scheduling.karpenter import created_at, karpenter
from tests.e2e.kubernetes.service import Service

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(cluster.missing("karpenter")), reason=cluster.missing("karpenter")),
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


def sink(running: Lab, **more: str) -> Service:
    """Start the Kubernetes sink with taints."""
    only = dict.fromkeys(("SPAZIO_OUTPUT_METRICS", "SPAZIO_OUTPUT_FLOOR"), "false")
    return running.service("kubernetes", "sink", "kubernetes", SPAZIO_OUTPUT_FULL="true", **only, **more)


async def advised(running: Lab, advice: str) -> bool:
    """Tell whether an event of a pod that waits, such as Karpenter's, contains a text."""
    names, events = await waiting(running), await running.kubectl.list("events")
    return any(advice in event["message"] for event in events if event["involvedObject"].get("name") in names)


async def test_no_node_is_added_until_full_nodes_have_taints_and_then_at_most_one_too_many(
    tmp_path: Path,
) -> None:
    """38 pods need four nodes; two are there."""
    async with filled(tmp_path, 38) as running, karpenter(running, SIZE, most=9) as autoscaler:
        await asyncio.sleep(25)  # it looks at each pod every ten seconds; the scheduler has tried each more than once
        assert await autoscaler.added() == []
        stuck = await waiting(running)
        assert len(stuck) >= 38 - NODES * (PER_NODE + 1)
        assert await advised(running, "Pod should schedule on: node/kwok-")
        assert await full(running.kubectl) == []
        sink(running)
        begun = datetime.now(UTC)

        await until(autoscaler.added, 30, "a node")

        async def all_run() -> bool:
            return not await waiting(running)

        await until(all_run, 180, running.services["kubernetes"].log.read_text)
        await become(running.kubectl, seconds=60)
        added = await autoscaler.added()
        seconds = [(created_at(node) - begun).seconds for node in added]
        lab.report({"waited without taints": len(stuck), "added, seconds after the sink's start": seconds})
        assert 2 <= len(added) <= 3
        assert all(node["status"]["allocatable"]["cpu"] == str(SIZE.cpus) for node in added)


async def test_the_taints_go_when_the_sink_ends_and_after_a_kill_with_its_next_start(tmp_path: Path) -> None:
    """The autoscaler has reached its limit, so pods go on waiting."""
    async with filled(tmp_path, 30) as running, karpenter(running, SIZE, most=0) as autoscaler:
        writes = sink(running)
        await become(running.kubectl, *OLD, seconds=60)

        async def is_limited() -> bool:
            return await advised(running, "exceed limits for nodepool")

        await until(is_limited, 30, "Karpenter to want a node")
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
        assert await autoscaler.added() == []


async def test_karpenter_keeps_a_node_whose_pods_need_its_measured_room_as_long_as_the_sink_annotates_it(
    tmp_path: Path,
) -> None:
    """By requests the pods of three nodes fit on two."""
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s"}
    async with filled(tmp_path, 26) as running, karpenter(running, SIZE, most=9, disruption=disruption) as autoscaler:
        marks = sink(running, SPAZIO_OUTPUT_KEEP="true")

        async def all_run() -> bool:
            return not await waiting(running)

        await until(all_run, 90, marks.log.read_text)
        await become(running.kubectl, seconds=60)
        (node,) = [node["metadata"]["name"] for node in await autoscaler.added()]

        await until(autoscaler.may_remove, 90, "Karpenter to consider the node's removal")
        await asyncio.sleep(45)  # it looks every ten seconds, and once more fifteen seconds after it has decided
        assert [each["metadata"]["name"] for each in await autoscaler.added()] == [node]
        assert len(await kept(running.kubectl)) == NODES + 1
        assert await asyncio.to_thread(marks.end) == 0

        async def is_removed() -> bool:
            return not await autoscaler.added()

        await until(is_removed, 120, autoscaler.component.log.read_text)
