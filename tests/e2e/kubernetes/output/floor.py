"""Autoscalers on a real API server that ask for a floor, and what becomes of it."""

import asyncio
from typing import Any

from schemas.messages.prediction import Forecast, Resources
from tests.e2e.kubernetes.control_plane import Kubectl
from tests.e2e.kubernetes.output.writing import SCALERS, now_us, until
from tests.support.processors.predicted import forecast


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


async def scaler_state(kubectl: Kubectl, name: str = "web") -> tuple[int, dict[str, str]]:
    """Return minReplicas and annotations."""
    thing = await kubectl.call("GET", f"{SCALERS}/{name}")
    return thing["spec"]["minReplicas"], thing["metadata"].get("annotations") or {}


async def change(kubectl: Kubectl, change: dict[str, Any], name: str = "web") -> dict[str, Any]:
    return await kubectl.call("PATCH", f"{SCALERS}/{name}?fieldManager=owner", change, patch="merge-patch+json")


async def becomes(
    kubectl: Kubectl, least: int, name: str = "web", *, seconds: float = 60, marks: int | None = None
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
