"""Taints and annotations for autoscalers on a real API server: whose they are, and that none outlives the sink."""

import asyncio
import os
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from schemas.messages.placement import Shortage
from schemas.settings import Settings
from tests.e2e.kubernetes.control_plane import PROGRAMS, ControlPlane, Kubectl, missing
from tests.e2e.kubernetes.output.writing import Process, configured, install, now_us, publish, stand_by, until, writing

pytestmark = pytest.mark.slow

NODES = "/api/v1/nodes"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/spazio/leases/spazio-full"
MARKING = {
    "full": True, "keep": True, "full_seconds": 0.5, "full_lease": "spazio/spazio-full", "full_lease_seconds": 3,
}  # fmt: skip
THEIRS = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}


def lacking_room(*full: str, stranded: Sequence[str] | None = None, seconds: float = 600) -> Shortage:
    """Return what an extender says of nodes without room; by default their pods would fit nowhere else, too."""
    at_us = now_us()
    return Shortage(
        replica="e-1", at_us=at_us, until_us=at_us + round(seconds * 1e6), pods=len(full), waiting=[],
        full=list(full), stranded=list(full if stranded is None else stranded),
    )  # fmt: skip


async def taints(kubectl: Kubectl, name: str) -> list[dict[str, Any]]:
    """Return the taints of a node without the times of ours."""
    spec = (await kubectl.call("GET", f"{NODES}/{name}"))["spec"]
    return [{key: value for key, value in taint.items() if key != "timeAdded"} for taint in spec.get("taints") or ()]


async def full(kubectl: Kubectl) -> list[str]:
    """Return the nodes that have the taint."""
    nodes = (await kubectl.call("GET", NODES))["items"]
    keys = {node["metadata"]["name"]: [taint["key"] for taint in node["spec"].get("taints") or ()] for node in nodes}
    return sorted(name for name, each in keys.items() if "spazio.io/full" in each)


async def kept(kubectl: Kubectl) -> list[str]:
    """Return the nodes that no autoscaler removes."""
    nodes = (await kubectl.call("GET", NODES))["items"]
    notes = {node["metadata"]["name"]: node["metadata"].get("annotations") or {} for node in nodes}
    both = ("cluster-autoscaler.kubernetes.io/scale-down-disabled", "karpenter.sh/do-not-disrupt")
    return sorted(name for name, each in notes.items() if all(each.get(key) == "true" for key in both))


async def become(kubectl: Kubectl, *names: str, seconds: float = 60) -> None:
    """Wait until these nodes have the taint, and no others."""

    async def so() -> bool:
        return await full(kubectl) == list(names)

    await until(so, seconds, str(names))


@pytest.fixture
async def cluster(kubectl: Kubectl) -> Kubectl:
    """A cluster with the namespace of the Lease, and three nodes."""
    await install(kubectl, "namespace.yaml")
    for name in ("n1", "n2", "n3"):
        await kubectl.node(name, labels={"by": "kubelet"})
    return kubectl


@pytest.fixture
def processes(plane: ControlPlane, settings: Settings, tmp_path: Path) -> Iterator[list[Process]]:
    chosen = configured(settings, plane.kubeconfig(), metrics=False, floor=False, mid=False, **MARKING)
    made = [Process(chosen, tmp_path / name / "sink.log") for name in ("one", "two")]
    for each in made:
        each.log.parent.mkdir()
    yield made
    for each in made:
        each.kill()


async def test_marks_come_and_go_and_what_others_have_set_stays(
    plane: ControlPlane, cluster: Kubectl, client: Client, settings: Settings
) -> None:
    own = {"karpenter.sh/do-not-disrupt": "true"}
    change = {"spec": {"taints": [THEIRS]}, "metadata": {"annotations": own}}
    await cluster.call("PATCH", f"{NODES}/n1", change, patch="merge-patch+json")
    async with writing(client, configured(settings, plane.kubeconfig(), metrics=False, **MARKING)) as health:
        await publish(client, lacking_room("n1", "n2"))
        await become(cluster, "n1", "n2")
        assert await kept(cluster) == ["n1", "n2"]
        theirs, ours = await taints(cluster, "n1")
        assert (theirs, ours["effect"]) == (THEIRS, "NoSchedule")
        assert abs(now_us() / 1e6 - _seconds(ours["value"])) < 60
        await publish(client, lacking_room("n2", stranded=[]))
        await become(cluster, "n2")
        assert await taints(cluster, "n1") == [THEIRS]
        assert health.problems == {}
    assert await full(cluster) == await kept(cluster) == []
    assert (await cluster.call("GET", f"{NODES}/n1"))["metadata"]["annotations"] == own


def _seconds(stamp: str) -> float:
    return datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()


async def test_no_taint_that_somebody_sets_meanwhile_is_lost(
    plane: ControlPlane, cluster: Kubectl, client: Client, settings: Settings
) -> None:
    """Somebody adds a taint to a node every few milliseconds, as it is then, while ours comes and goes."""

    async def somebody() -> int:
        number = 0
        while not stop.is_set():
            node = await cluster.call("GET", f"{NODES}/n1")
            more = [*(node["spec"].get("taints") or ()), {"key": f"theirs-{number}", "effect": "PreferNoSchedule"}]
            metadata = {"resourceVersion": node["metadata"]["resourceVersion"]}
            change = {"metadata": metadata, "spec": {"taints": more}}
            made = await cluster.call("PATCH", f"{NODES}/n1", change, patch="merge-patch+json")
            number += made["kind"] == "Node"  # else the version was another: once more
            await asyncio.sleep(0.03)
        return number

    stop = asyncio.Event()
    async with writing(client, configured(settings, plane.kubeconfig(), metrics=False, **MARKING)):
        adding = asyncio.create_task(somebody())
        for _ in range(3):
            await publish(client, lacking_room("n1"))
            await become(cluster, "n1")
            await publish(client, lacking_room())
            await become(cluster)
        await publish(client, lacking_room("n1"))
        await become(cluster, "n1")
    # The end, too, meets somebody.
    assert await full(cluster) == []
    stop.set()
    added = await adding
    assert added > 20
    keys = [taint["key"] for taint in await taints(cluster, "n1")]
    assert [key for key in keys if key.startswith("theirs-")] == [f"theirs-{number}" for number in range(added)]


async def test_a_signal_removes_all_marks_and_after_a_kill_the_next_start_does(
    cluster: Kubectl, client: Client, processes: list[Process]
) -> None:
    first, _ = processes
    first.start()
    await publish(client, lacking_room("n1", "n2"))
    await become(cluster, "n1", "n2", seconds=30)
    assert first.end() == 0
    assert await full(cluster) == await kept(cluster) == []
    assert (await cluster.call("GET", LEASE))["spec"]["holderIdentity"] == ""
    first.start()
    await become(cluster, "n1", "n2", seconds=30)
    first.kill()
    await publish(client, lacking_room("n2"))
    await asyncio.sleep(1)
    assert await full(cluster) == ["n1", "n2"]
    before = await taints(cluster, "n2")
    first.start()
    await become(cluster, "n2", seconds=30)
    assert await kept(cluster) == ["n2"]
    assert await taints(cluster, "n2") == before  # still due, and never removed
    assert "service.failed" not in first.log.read_text()


async def test_of_two_sinks_one_writes_and_the_other_goes_on_for_it_once_it_is_dead(
    cluster: Kubectl, client: Client, processes: list[Process]
) -> None:
    first, second = processes
    first.start()
    await publish(client, lacking_room("n1"))
    await become(cluster, "n1", seconds=30)
    holder = (await cluster.call("GET", LEASE))["spec"]["holderIdentity"]
    await stand_by(second)
    assert (await cluster.call("GET", LEASE))["spec"]["holderIdentity"] == holder
    # The one that only waits leaves everything as it is.
    assert second.end() == 0
    assert await full(cluster) == ["n1"]
    await stand_by(second)
    first.kill()
    await publish(client, lacking_room("n3"))
    await become(cluster, "n3", seconds=30)
    assert (await cluster.call("GET", LEASE))["spec"]["holderIdentity"] not in ("", holder)


@pytest.mark.skipif(bool(missing("kubectl")), reason=missing("kubectl"))
async def test_one_line_of_kubectl_removes_what_is_left_where_no_sink_starts_again(
    plane: ControlPlane, cluster: Kubectl, client: Client, processes: list[Process]
) -> None:
    first, _ = processes
    await cluster.call("PATCH", f"{NODES}/n1", {"spec": {"taints": [THEIRS]}}, patch="merge-patch+json")
    first.start()
    await publish(client, lacking_room("n1", "n3"))
    await become(cluster, "n1", "n3", seconds=30)
    first.kill()
    guide = (Path(__file__).parents[4] / "docs" / "kubernetes.md").read_text()
    (line,) = (line.strip() for line in guide.splitlines() if line.strip().startswith("kubectl taint"))
    environ = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "KUBECONFIG": str(plane.kubeconfig()), "HOME": "/nowhere"}
    await asyncio.to_thread(subprocess.run, ["sh", "-c", line], env=environ, capture_output=True, check=False)
    assert await full(cluster) == []
    assert await taints(cluster, "n1") == [THEIRS]
