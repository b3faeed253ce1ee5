"""Floors beside the autoscaler itself, its owner, and a processor that sees a ramp."""

import asyncio
from typing import Any

import pytest
from nats.aio.client import Client

from schemas import codec
from schemas.messages.prediction import WorkloadSums
from schemas.settings import Settings
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.floor import asking, becomes, change, scaler, scaler_state, stays
from tests.e2e.kubernetes.output.writing import SCALERS, configured, now_us, publish, until, writing
from tests.integration.processors.test_engine import running

pytestmark = pytest.mark.slow


async def test_who_sets_the_minimum_meanwhile_wins_until_the_forecast_has_come_down(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings
) -> None:
    await scaler(kubectl, spazio_floor="true")
    chosen = configured(settings, plane.kubeconfig(), metrics=False, forecast_seconds=60)
    async with writing(client, chosen):
        await publish(client, asking(6))
        await becomes(kubectl, 6, marks=2)
        await change(kubectl, {"spec": {"minReplicas": 3}})
        await becomes(kubectl, 3, marks=1)
        await publish(client, asking(8))
        await stays(kubectl, 3, seconds=1)
    # It holds in another life, too.
    async with writing(client, chosen):
        await stays(kubectl, 3, seconds=1)
        await publish(client, asking(3))
        await becomes(kubectl, 3, marks=0)
        await publish(client, asking(7))
        await becomes(kubectl, 7, marks=2)
    await becomes(kubectl, 3, marks=0, seconds=1)


async def test_what_was_restored_is_its_owners_again(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings
) -> None:
    await scaler(kubectl, spazio_floor="true")
    async with writing(client, configured(settings, plane.kubeconfig(), metrics=False)):
        await publish(client, asking(6))
        await becomes(kubectl, 6)
        refused = await apply(kubectl, 4)
        assert 'conflict with "spazio"' in refused["message"]
        await publish(client, asking(1))
        await becomes(kubectl, 2, marks=0)

        async def given() -> bool:
            return (await apply(kubectl, 4)).get("kind") == "HorizontalPodAutoscaler"

        await until(given)
        await stays(kubectl, 4, seconds=1)
        thing = await kubectl.call("GET", f"{SCALERS}/web")
        assert "spazio" not in [entry["manager"] for entry in thing["metadata"]["managedFields"]]
        assert thing["spec"]["maxReplicas"] == 10


async def apply(kubectl: Kubectl, least: int) -> dict[str, Any]:
    """Apply a minimum as its owner, without force."""
    thing = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "spec": {"minReplicas": least}}
    path = f"{SCALERS}/web?fieldManager=gitops&force=false"
    return await kubectl.call("PATCH", path, thing | {"metadata": {"name": "web"}}, patch="apply-patch+yaml")


async def test_the_autoscaler_itself_changes_its_status_meanwhile_and_nothing_is_lost(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings
) -> None:
    await scaler(kubectl, spazio_floor="true")

    async def controller() -> None:
        for number in range(10_000):
            status = {"status": {"currentReplicas": number % 9, "desiredReplicas": number % 7}}
            await kubectl.call("PATCH", f"{SCALERS}/web/status", status, patch="merge-patch+json")
            await asyncio.sleep(0.05)

    async with writing(client, configured(settings, plane.kubeconfig(), metrics=False)) as health:
        controlling = asyncio.create_task(controller())
        for desired in (5, 7, 9):
            await publish(client, asking(desired))
            await becomes(kubectl, desired)
        assert health.problems == {}
    await becomes(kubectl, 2, marks=0, seconds=1)
    assert not controlling.done()
    controlling.cancel()


async def test_the_processor_sees_a_ramp_and_the_floor_is_there_before_the_load(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings
) -> None:
    """The proposal's example, faster: pods take 15 s to be ready, and 10 of them carry 8 cores."""
    forecasting = settings.forecast.model_copy(update={"seconds": 1})
    settings = settings.model_copy(update={"forecast": forecasting})
    await scaler(kubectl, least=10, most=14, spazio_floor="true")
    load, raised = 3.0, list[tuple[float, int]]()
    with running(settings, "process"):
        async with writing(client, configured(settings, plane.kubeconfig(), metrics=False)):
            for second in range(60):
                load = 3.0 + 0.15 * max(0, second - 10)
                for partition in range(2):
                    sums = used(partition, load if partition == 0 else None)
                    await client.jetstream().publish(f"spazio.workloads.partition.{partition}", codec.encode(sums))
                await asyncio.sleep(1)
                least = (await scaler_state(kubectl))[0]
                assert least <= 14
                if least > 10:
                    raised.append((load, least))
                if load > 9:
                    break
            assert raised[0][0] < 8
            assert raised[-1][1] > 11
            for _ in range(30):  # and it falls
                load = max(3.0, load - 1)
                await client.jetstream().publish("spazio.workloads.partition.0", codec.encode(used(0, load)))
                await client.jetstream().publish("spazio.workloads.partition.1", codec.encode(used(1, None)))
                await asyncio.sleep(1)
                if (await scaler_state(kubectl))[0] == 10:
                    break
            await becomes(kubectl, 10, marks=0, seconds=1)


def used(partition: int, cores: float | None) -> WorkloadSums:
    """Return what a partition says of ten pods that ask for a core each; None: it has none of them."""
    fields: dict[str, Any] = {
        "namespaces": ["default"], "kinds": ["Deployment"], "workloads": ["web"], "pods": [10], "ready": [10],
        "cpu": [cores], "memory": [1e9], "requested_cpu": [10.0], "requested_memory": [1e10], "initialized": [10],
        "initialization_seconds": [150.0],
    }  # fmt: skip
    if cores is None:
        fields = {name: [] for name in fields}
    return WorkloadSums(partition=partition, at_us=now_us(), **fields)
