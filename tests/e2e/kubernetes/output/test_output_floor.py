"""Floors of autoscalers on a real API server: raised ahead of a ramp, never above the maximum, always given back."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from schemas import codec
from schemas.messages.prediction import Forecast, Resources, WorkloadSums
from schemas.settings import Settings
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.writing import SCALERS, Process, configured, now_us, publish, until, writing
from tests.integration.processors.test_engine import running
from tests.support.predicted import forecast

pytestmark = pytest.mark.slow

OPTED = {"spazio.floor": "true"}


def asking(desired: int, workload: str = "web", *, raises: bool = True, age: float = 0) -> Forecast:
    """Return a forecast for pods of one core that takes so many at 80 %, which the API server sets by default."""
    usage = Resources(cpu=0.8 * desired, memory=1e9)
    return forecast(
        namespace="default",
        workload=workload,
        pods=2,
        requested=Resources(cpu=2.0, memory=4e9),
        current=Resources(cpu=0.1, memory=1e9) if raises else usage,
        forecast=usage,
        desired=desired,
        raises=raises,
        at_us=now_us() - round(age * 1e6),
    )


async def scaler(kubectl: Kubectl, name: str = "web", *, least: int = 2, most: int = 10, **notes: str) -> None:
    await kubectl.call(
        "POST",
        f"{SCALERS}?fieldManager=owner",
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "annotations": {key.replace("_", "."): value for key, value in notes.items()}},
            "spec": {
                "minReplicas": least,
                "maxReplicas": most,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            },
        },
    )


async def test_the_floor_follows_the_autoscalers_own_target(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings
) -> None:
    """6.4 cores for pods of one core are 8 pods at 80 %, and 13 at 50 %."""
    await scaler(kubectl, most=20)
    aim = {"type": "Utilization", "averageUtilization": 50}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": aim}}]
    await change(kubectl, {"metadata": {"annotations": OPTED}, "spec": {"metrics": metrics}})
    async with writing(client, configured(settings, plane.kubeconfig(), metrics=False)):
        await publish(client, asking(8))
        await becomes(kubectl, 13)
        await change(kubectl, {"metadata": {"annotations": {"spazio.floor-target": "0.4"}}})
        await becomes(kubectl, 16)
        # The annotation is the owner's: it stays.
        assert (await scaler_state(kubectl))[1]["spazio.floor-target"] == "0.4"


async def scaler_state(kubectl: Kubectl, name: str = "web") -> tuple[int, dict[str, str]]:
    """Return minReplicas and annotations."""
    thing = await kubectl.call("GET", f"{SCALERS}/{name}")
    return thing["spec"]["minReplicas"], thing["metadata"].get("annotations") or {}


async def change(kubectl: Kubectl, change: dict[str, Any], name: str = "web") -> dict[str, Any]:
    return await kubectl.call("PATCH", f"{SCALERS}/{name}?fieldManager=owner", change, patch="merge-patch+json")


async def becomes(
    kubectl: Kubectl, least: int, name: str = "web", *, seconds: float = 20, marks: int | None = None
) -> None:
    async def so() -> bool:
        minimum, notes = await scaler_state(kubectl, name)
        ours = [key for key in notes if key.startswith("spazio.floor-")]
        return minimum == least and (marks is None or len(ours) == marks)

    await until(so, seconds, f"{least}")


async def stays(kubectl: Kubectl, least: int, name: str = "web", *, seconds: float) -> None:
    for _ in range(round(seconds / 0.2)):
        assert (await scaler_state(kubectl, name))[0] == least
        await asyncio.sleep(0.2)


@pytest.fixture
async def process(plane: ControlPlane, settings: Settings, tmp_path: Path, client: Client) -> AsyncIterator[Process]:
    running = Process(configured(settings, plane.kubeconfig(), metrics=False), tmp_path / "sink.log")
    yield running
    running.kill()


async def test_a_floor_is_raised_before_a_ramp_never_above_the_maximum_and_restored_after_it(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings
) -> None:
    await scaler(kubectl, spazio_floor="true")
    await scaler(kubectl, "other")
    await scaler(kubectl, "maybe", spazio_floor="yes")
    versions = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in await listed(kubectl)}
    async with writing(client, configured(settings, plane.kubeconfig(), metrics=False)) as health:
        await publish(client, asking(1))
        await stays(kubectl, 2, seconds=1)
        for desired in (3, 5, 8, 14, 400):
            await publish(client, *(asking(desired, name) for name in ("web", "other", "maybe", "none")))
            await becomes(kubectl, min(desired, 10))
            notes = (await scaler_state(kubectl))[1]
            assert notes["spazio.floor-restore"] == "2"
            assert notes["spazio.floor-raised"] == str(min(desired, 10))
        # Lower forecasts lower it, when they have been lower for so long; not at once.
        await publish(client, asking(6))
        await stays(kubectl, 10, seconds=1)
        await becomes(kubectl, 6)
        # No rise is foreseen any more: what is needed now is the autoscaler's to see.
        await publish(client, asking(6, raises=False))
        await becomes(kubectl, 2, marks=0)
        assert health.problems == {}
    for item in await listed(kubectl):
        name = item["metadata"]["name"]
        assert name == "web" or item["metadata"]["resourceVersion"] == versions[name]


async def listed(kubectl: Kubectl) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await kubectl.call("GET", SCALERS))["items"]
    return items


async def test_a_floor_is_restored_when_forecasts_grow_old_when_the_opt_in_goes_and_at_the_end(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings
) -> None:
    for name in ("web", "api", "job"):
        await scaler(kubectl, name, spazio_floor="true")
    chosen = configured(settings, plane.kubeconfig(), metrics=False, forecast_seconds=4)
    async with writing(client, chosen):
        await publish(client, *(asking(5, name) for name in ("web", "api", "job")))
        for name in ("web", "api", "job"):
            await becomes(kubectl, 5, name, marks=2)
        await change(kubectl, {"metadata": {"annotations": {"spazio.floor": None}}}, "api")
        await becomes(kubectl, 2, "api", marks=0, seconds=2)
        await becomes(kubectl, 2, "web", marks=0)
        await publish(client, asking(7, "job"), asking(7, "web"))
        await becomes(kubectl, 7, "job")
        await becomes(kubectl, 7, "web")
    for name in ("web", "api", "job"):
        await becomes(kubectl, 2, name, marks=0, seconds=0.5)


async def test_marks_that_somebody_else_has_set_too_go_with_the_floor(
    plane: ControlPlane, kubectl: Kubectl, client: Client, settings: Settings
) -> None:
    await scaler(kubectl, spazio_floor="true")
    async with writing(client, configured(settings, plane.kubeconfig(), metrics=False)):
        await publish(client, asking(6))
        await becomes(kubectl, 6, marks=2)
        await change(kubectl, {"metadata": {"annotations": {"spazio.floor-restore": "3"}}})
        await publish(client, asking(6, raises=False))
        await becomes(kubectl, 3, marks=0)
        await publish(client, asking(7))
        await becomes(kubectl, 7, marks=2)
        await change(kubectl, {"metadata": {"annotations": {"spazio.floor-restore": "4"}}})
    await becomes(kubectl, 4, marks=0, seconds=0.5)


async def test_after_a_kill_the_next_life_keeps_what_is_still_asked_for_and_restores_what_is_not(
    kubectl: Kubectl, client: Client, process: Process
) -> None:
    for name in ("web", "api"):
        await scaler(kubectl, name, spazio_floor="true")
    process.start()
    await publish(client, asking(5), asking(6, "api"))
    await becomes(kubectl, 5, seconds=30)
    await becomes(kubectl, 6, "api")
    process.kill()
    await stays(kubectl, 5, seconds=1)
    before = (await kubectl.call("GET", f"{SCALERS}/web"))["metadata"]["resourceVersion"]
    await publish(client, asking(5), asking(3, "api", raises=False))
    process.start()
    await becomes(kubectl, 2, "api", marks=0, seconds=30)
    await becomes(kubectl, 2, seconds=30, marks=0)  # since nobody forecasts any more
    process.kill()

    await publish(client, asking(5))
    process.start()
    await becomes(kubectl, 5, seconds=30)
    assert process.end() == 0
    await becomes(kubectl, 2, marks=0, seconds=1)
    assert before != (await kubectl.call("GET", f"{SCALERS}/web"))["metadata"]["resourceVersion"]
    assert "service.failed" not in process.log.read_text()


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
