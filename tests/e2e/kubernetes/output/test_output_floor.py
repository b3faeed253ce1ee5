"""Floors of autoscalers on a real API server: raised ahead of a ramp, never above the maximum, always given back."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from schemas.settings import Settings
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.floor import asking, becomes, change, scaler, scaler_state, stays
from tests.e2e.kubernetes.output.writing import SCALERS, Process, configured, publish, writing

pytestmark = pytest.mark.slow
OPTED = {"spazio.floor": "true"}


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


@pytest.fixture
async def process(plane: ControlPlane, settings: Settings, tmp_path: Path, client: Client) -> AsyncIterator[Process]:
    running = Process(
        configured(settings, plane.kubeconfig(), metrics=False, full_lease_seconds=1), tmp_path / "sink.log"
    )
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
