"""A namespace earns placement in shadow mode by what its nodes do, and loses it, under a real kube-scheduler."""

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

NODES = 12
SHADOW = {
    "SPAZIO_EXTENDER_MODE": "shadow",
    "SPAZIO_EXTENDER_PROMOTE": "true",
    "SPAZIO_EXTENDER_PROMOTE_RISK": "0.3",  # none of 10 broken: at most 28 %
    "SPAZIO_EXTENDER_PROMOTE_PROMISES": "10",
}
LIAR = Family(PLAIN.name, cores=0.3, threads=16, memory=PLAIN.memory)  # of a class of modest pods, and overfills a node


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


async def node(running: Lab, name: str) -> str:
    pod = await running.kubectl.call("GET", f"/api/v1/namespaces/default/pods/{name}")
    return str(pod["spec"].get("nodeName"))


async def test_a_namespace_is_placed_once_its_nodes_kept_their_promises_and_not_once_they_break_them(
    tmp_path: Path,
) -> None:
    async with lab.lab(tmp_path, nodes=NODES, size=Size(4, 16 * GIB), extender=SHADOW) as running:
        published = await running.client.subscribe("spazio.trust.*")
        first = await decided(running, "first")
        assert (first.mode, first.bound) == ("shadow", await node(running, "first"))
        for number in range(NODES - 1):
            await running.pod(f"pod-{number}", PLAIN)
        await happened(running, "namespace.promoted")
        placed = await decided(running, "placed")
        assert (placed.mode, placed.outcome, placed.guaranteed) == ("argmax", "placed", True)

        async def bound() -> bool:
            return await node(running, "placed") == placed.node

        await until(bound, 20, placed.node)
        for number in range(NODES):
            await running.pod(f"liar-{number}", LIAR)
        await happened(running, "namespace.demoted")
        assert (await decided(running, "last")).mode == "shadow"
        messages = [codec.decode(Trust, (await published.next_msg(timeout=1)).data) for _ in range(2)]
        assert messages[0].nodes == NODES
        settled = {each.namespace: each for each in messages[-1].promises}
        assert settled["default"].evidence >= 10
