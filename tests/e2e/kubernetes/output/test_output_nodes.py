"""What the Kubernetes sink writes of nodes, on a real API server: only what has changed, whatever happens."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from schemas.messages.prediction import Prediction, Resources
from schemas.settings import Settings
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.writing import METRICS, Process, configured, install, now_us, publish, until, writing
from tests.support.processors.predicted import prediction
from tests.unit.sinks.metrics.test_metrics import row

pytestmark = pytest.mark.slow

CPU, MEMORY = "kubernetes.io/mid-cpu", "kubernetes.io/mid-memory"


def lending(cpu: float, memory: float = 1e9, *, node: str = "n1", age: float = 0) -> Prediction:
    mid = {"reclaim": Resources(cpu=cpu, memory=memory)}
    return prediction(node=node, at_us=now_us() - round(age * 1e6), formula="reclaim", mid=mid)


async def node(kubectl: Kubectl, name: str = "n1") -> dict[str, Any]:
    return await kubectl.call("GET", f"/api/v1/nodes/{name}")


async def lent(kubectl: Kubectl, name: str = "n1") -> tuple[Any, ...]:
    """Return what a node has of the Mid tier: CPU and memory of its capacity, and of what is allocatable."""
    status = (await node(kubectl, name))["status"]
    return tuple(status[side].get(resource) for side in ("capacity", "allocatable") for resource in (CPU, MEMORY))


async def becomes(kubectl: Kubectl, cpu: int | None, memory: int | None, name: str = "n1", seconds: float = 60) -> None:
    wanted = tuple(None if amount is None else amount for amount in (cpu, memory) * 2)

    async def so() -> bool:
        return tuple(None if text is None else int(_plain(text)) for text in await lent(kubectl, name)) == wanted

    await until(so, seconds, f"{wanted}")


def _plain(text: str) -> str:
    return text.replace("k", "000").replace("M", "000000").replace("G", "000000000")


async def version(kubectl: Kubectl, path: str = "/api/v1/nodes/n1") -> str:
    return str((await kubectl.call("GET", path))["metadata"]["resourceVersion"])


@contextmanager
def killed(settings: Settings, folder: Path) -> Iterator[None]:
    """Run a sink of its own, which is killed at the end of a block."""
    process = Process(settings, folder / "sink.log")
    process.start()
    try:
        yield
    finally:
        process.kill()


async def test_what_is_lent_is_written_when_it_has_changed_and_only_then(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings, tmp_path: Path
) -> None:
    await kubectl.node("n1")
    await kubectl.node("n2")
    chosen = configured(settings, plane.kubeconfig(), metrics=False, full_lease_seconds=1)
    await publish(client, lending(1.001, 2_000_000_001))
    async with writing(client, chosen) as health:
        await becomes(kubectl, 1001, 2_000_000_001)
        assert await lent(kubectl, "n2") == (None,) * 4
        before = await version(kubectl)
        for cpu in (1.001, 1.1, 0.902):  # the same, and less than a tenth of it away
            await publish(client, lending(cpu, 2_000_000_001))
            await asyncio.sleep(0.7)
        assert await version(kubectl) == before
        await publish(client, lending(1.102, 2_000_000_001))
        await becomes(kubectl, 1102, 2_000_000_001)
        before = await version(kubectl)
        assert health.problems == {}
    # Nothing is written by another life, either, which reads what a killed one left.
    with killed(chosen, tmp_path):
        await becomes(kubectl, 1102, 2_000_000_001, seconds=30)
    before = await version(kubectl)
    async with writing(client, chosen):
        await asyncio.sleep(3)
        assert await version(kubectl) == before
    # What has moved by little is written when it is long ago, and what has not moved is not.
    async with writing(client, configured(settings, plane.kubeconfig(), metrics=False, force_seconds=1)):
        await becomes(kubectl, 1102, 2_000_000_001)
        before = await version(kubectl)
        await asyncio.sleep(3)
        assert await version(kubectl) == before
        await publish(client, lending(1.103, 2_000_000_001))
        await becomes(kubectl, 1103, 2_000_000_001)


async def test_what_is_lent_goes_to_0_when_nobody_predicts_any_more_and_away_when_the_sink_ends(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings, tmp_path: Path
) -> None:
    for name in ("n1", "n2", "n3"):
        await kubectl.node(name)
    await publish(client, lending(1.5), lending(2.5, node="n2"))
    with killed(configured(settings, plane.kubeconfig(), metrics=False, full_lease_seconds=1), tmp_path):
        await becomes(kubectl, 1500, 10**9, seconds=30)
        await becomes(kubectl, 2500, 10**9, "n2", seconds=30)
    await client.jetstream().purge_stream("SPAZIO_ESTIMATES", subject="spazio.prediction.n2")
    async with writing(client, configured(settings, plane.kubeconfig(), metrics=False, stale_seconds=5)):
        # Nobody has published anything of n2 since the start; for as long as a prediction holds it may yet come.
        await asyncio.sleep(1)
        assert "2500m" in (await lent(kubectl, "n2")) or "2500" in [_plain(text) for text in await lent(kubectl, "n2")]
        await becomes(kubectl, 0, 0)
        await becomes(kubectl, 0, 0, "n2")
        assert await lent(kubectl, "n3") == (None,) * 4
        await publish(client, lending(1.25, age=-1000))  # of a clock that is wrong
        await asyncio.sleep(1)
        assert [_plain(text) for text in await lent(kubectl)] == ["0"] * 4
    assert await lent(kubectl) == await lent(kubectl, "n2") == (None,) * 4
    assert (await node(kubectl))["status"]["capacity"]["cpu"] == "4"


async def test_what_a_kubelet_resets_is_written_again_and_what_others_write_is_left_to_them(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings
) -> None:
    for name in ("n1", "n2"):  # with a field, or the server does not begin to account for who manages which
        await kubectl.node(name, labels={"by": "kubelet"})
    theirs = {"status": {side: {CPU: "700", MEMORY: "7"} for side in ("capacity", "allocatable")}}
    await kubectl.call("PATCH", "/api/v1/nodes/n2/status?fieldManager=koord-manager", theirs)
    await publish(client, lending(1.5), lending(2.5, node="n2"))
    async with writing(client, configured(settings, plane.kubeconfig(), metrics=False)) as health:
        await becomes(kubectl, 1500, 10**9)
        zero = {"status": {side: {CPU: "0", MEMORY: "0"} for side in ("capacity", "allocatable")}}
        await kubectl.call("PATCH", "/api/v1/nodes/n1/status?fieldManager=kubelet", zero)
        await becomes(kubectl, 1500, 10**9)

        async def is_reported() -> bool:
            return "koord-manager writes them too" in health.problems.get("kubernetes write mid", "")

        await until(is_reported, what=lambda: health.problems)
        assert await lent(kubectl, "n2") == ("700", "7") * 2
        gone = {"status": {side: {CPU: None, MEMORY: None} for side in ("capacity", "allocatable")}}
        await kubectl.call("PATCH", "/api/v1/nodes/n2/status?fieldManager=koord-manager", gone)
        await becomes(kubectl, 2500, 10**9, "n2")

        async def well() -> bool:
            return not health.problems

        await until(well, what=lambda: health.problems)


async def test_node_metrics_wait_for_their_definition_and_belong_to_their_nodes(
    plane: ControlPlane,
    kubectl: Kubectl,
    client: Client,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    await kubectl.node("n1")
    await publish(client, lending(1.5), lending(1.5, node="../pods"), lending(1.5, node="elsewhere"))
    chosen = settings.model_copy(update={"cache": settings.cache.model_copy(update={"expiry_seconds": 3})})
    async with writing(client, configured(chosen, plane.kubeconfig())) as health:
        await becomes(kubectl, 1500, 10**9)

        async def is_reported() -> bool:
            return "kubectl apply -f deploy/kubernetes/crd.yaml" in health.problems.get("kubernetes nodemetrics", "")

        await until(is_reported, what=lambda: health.problems)
        await asyncio.sleep(3)
        degraded = [record for record in caplog.records if record.message == "service.degraded"]
        assert len(degraded) == 1
        await install(kubectl, "crd.yaml")

        async def written() -> bool:
            return bool((await kubectl.call("GET", METRICS))["items"])

        await until(written, 60, lambda: health.problems)
        items = (await kubectl.call("GET", METRICS))["items"]
        assert [item["metadata"]["name"] for item in items] == ["n1"]
        uid = (await node(kubectl))["metadata"]["uid"]
        assert [owner["uid"] for owner in items[0]["metadata"]["ownerReferences"]] == [uid]
        assert items[0]["status"]["prediction"]["mid"] == {"cpu": "1500m", "memory": "954Mi"}
        assert items[0]["status"]["prediction"]["peaks"]["max"] == {"cpu": "1500m", "memory": "1907Mi"}
        assert items[0]["status"]["prediction"]["prodPeak"] == {"cpu": "500m", "memory": "954Mi"}
        assert "availability" not in items[0]["status"]
        assert health.problems == {}

        await availability_comes_and_goes(kubectl, client)
        assert (await node(kubectl))["metadata"]["uid"] == uid

        await belongs_to_the_next_node_of_that_name(kubectl)
        table = await kubectl.call(
            "GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodemetrics.spazio.io"
        )
        assert not [each for each in table["status"]["conditions"] if each["type"] == "NonStructuralSchema"]


async def belongs_to_the_next_node_of_that_name(kubectl: Kubectl) -> None:
    """A node that is made again has another uid, and its object another owner."""
    await kubectl.call("DELETE", "/api/v1/nodes/n1")
    await kubectl.node("n1")

    async def adopted() -> bool:
        owners = (await kubectl.call("GET", f"{METRICS}/n1"))["metadata"]["ownerReferences"]
        return [owner["uid"] for owner in owners] == [(await node(kubectl))["metadata"]["uid"]]

    await until(adopted)
    # What was predicted is of the node before.
    assert not (await kubectl.call("GET", f"{METRICS}/n1")).get("status")


async def availability_comes_and_goes(kubectl: Kubectl, client: Client) -> None:
    """And nothing is written while it stays."""

    async def pods(wanted: float | None) -> None:
        async def so() -> bool:
            status = (await kubectl.call("GET", f"{METRICS}/n1"))["status"]
            return bool(status.get("availability", {}).get("available") == wanted)

        await until(so, what=str(wanted))

    await publish(client, row(node="n1", at_us=now_us(), available=12.34))
    await pods(12.34)
    before = await version(kubectl, f"{METRICS}/n1")
    for available in (12.34, 11.9):
        await publish(client, row(node="n1", at_us=now_us(), available=available))
        await asyncio.sleep(0.7)
    assert await version(kubectl, f"{METRICS}/n1") == before
    await publish(client, row(node="n1", at_us=now_us(), available=3))
    await pods(3)
    await pods(None)


@pytest.mark.parametrize("plane", [("--watch-cache=false",), ()], ids=["uncached", "cached"], indirect=True)
async def test_a_restart_of_the_api_server_that_forgets_its_past_is_one_outage(
    plane: ControlPlane,
    kubectl: Kubectl,
    client: Client,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    await install(kubectl, "crd.yaml")
    for number in range(5):
        await kubectl.node(f"n{number}")
        await publish(client, lending(1.5, node=f"n{number}"))
    async with writing(client, configured(settings, plane.kubeconfig())) as health:
        for number in range(5):
            await becomes(kubectl, 1500, 10**9, f"n{number}")
        caplog.clear()
        await asyncio.to_thread(plane.kill_server)
        for number in range(5):
            await publish(client, lending(2.5, node=f"n{number}"))
        await asyncio.sleep(4)
        assert "kubernetes write mid" in health.problems
        plane.compact()
        await asyncio.to_thread(plane.start_server)
        for number in range(5):
            await becomes(kubectl, 2500, 10**9, f"n{number}", 60)
        # What the watch would go on from may be gone; whatever has changed meanwhile is seen again.
        await kubectl.node("n5")
        await publish(client, lending(3.5, node="n5"))
        await becomes(kubectl, 3500, 10**9, "n5", 60)

        async def well() -> bool:
            return not health.problems

        await until(well, 60, lambda: health.problems)
    messages = [record for record in caplog.records if record.message == "service.degraded"]
    parts = [record.__dict__["part"] for record in messages]
    assert len(parts) == len(set(parts)), [record.__dict__["reason"] for record in messages]


async def test_who_may_not_write_learns_which_rule_is_missing(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings, tmp_path: Path
) -> None:
    await kubectl.node("n1")
    async with writing(client, configured(settings, plane.stranger())) as health:

        async def is_reported() -> bool:
            return {"kubernetes nodes", "kubernetes autoscalers", "kubernetes nodemetrics"} <= health.problems.keys()

        await until(is_reported, what=lambda: health.problems)
        for part, resource in (("nodes", "nodes"), ("autoscalers", "horizontalpodautoscalers.autoscaling")):
            assert f"verbs list and watch on {resource}" in health.problems[f"kubernetes {part}"]
