"""A namespace earns placement in shadow mode by what its nodes do, and loses it, under a real kube-scheduler."""

import asyncio
from pathlib import Path

import pytest

from schemas import codec
from schemas.messages.placement import Decision, Trust
from tests.e2e.kubernetes import cluster, lab
from tests.e2e.kubernetes.families import GIB, PLAIN, Family, Size
from tests.e2e.kubernetes.lab import Lab
from tests.e2e.kubernetes.output.writing import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(cluster.missing()), reason=cluster.missing()),
]

NODES, PER_NODE = 10, 3  # of four that the policy admits, so that little room is left
SIZE = Size(2, 8 * GIB)
SHADOW = {
    "SPAZIO_EXTENDER_MODE": "shadow",
    "SPAZIO_EXTENDER_PROMOTE": "true",
    "SPAZIO_EXTENDER_PROMOTE_RISK": "0.35",  # none of 8 broken: at most 32 %
    "SPAZIO_EXTENDER_PROMOTE_PROMISES": "8",
}
LIAR = Family(PLAIN.name, cores=0.3, threads=8, memory=PLAIN.memory)  # of a class of modest pods, and overfills a node


async def happened(running: Lab, event: str) -> None:
    log = running.services["extender-0"].log

    async def logged() -> bool:
        return event in log.read_text()

    await until(logged, 150, log.read_text)


async def decided(running: Lab, name: str) -> Decision:
    """Make a pod, and return its decision once it is bound."""
    subject = f"spazio.decision.default.{name}"
    messages = await running.client.subscribe(subject)
    await running.pod(name, PLAIN)
    return codec.decode(Decision, (await messages.next_msg(timeout=30)).data)


async def decision(running: Lab, name: str) -> Decision:
    """Return the newest decision on a pod that placed it."""
    messages = await running.client.jetstream().subscribe(f"spazio.decision.default.{name}", stream="SPAZIO_EVENTS")
    async with asyncio.timeout(60):
        while (made := codec.decode(Decision, (await messages.next_msg(timeout=60)).data)).outcome != "placed":
            pass
    return made


async def node(running: Lab, name: str) -> str:
    pod = await running.kubectl.call("GET", f"/api/v1/namespaces/default/pods/{name}")
    return str(pod["spec"].get("nodeName"))


async def test_a_namespace_is_placed_once_its_nodes_kept_their_promises_and_not_once_they_break_them(
    tmp_path: Path,
) -> None:
    async with lab.lab(tmp_path, nodes=NODES, size=SIZE, extender=SHADOW) as running:
        published = await running.client.subscribe("spazio.trust.*")
        first = await decided(running, "first")
        assert (first.mode, first.bound) == ("shadow", await node(running, "first"))
        await running.kubectl.delete("first")
        for wave in range(PER_NODE):
            for number in range(NODES):
                await running.pod(f"pod-{wave}-{number}", PLAIN)
            await asyncio.sleep(10)  # until nodes have shown what these take
        await happened(running, "namespace.promoted")
        for number in range(NODES):
            await running.kubectl.delete(f"pod-0-{number}")
            await running.pod(f"liar-{number}", LIAR)
        placed = await decision(running, "liar-0")
        assert (placed.mode, placed.outcome, placed.guaranteed) == ("argmax", "placed", True)

        async def bound() -> bool:
            return await node(running, "liar-0") == placed.node

        await until(bound, 20, placed.node)
        await happened(running, "namespace.demoted")
        assert (await decided(running, "last")).mode == "shadow"
        messages = [codec.decode(Trust, (await published.next_msg(timeout=1)).data) for _ in range(2)]
        assert messages[0].nodes == NODES
        settled = {each.namespace: each for each in messages[-1].promises}
        assert settled["default"].evidence >= 8
