"""An autoscaler scales on forecasts: a real kube-controller-manager, through the API server's aggregation layer."""

import asyncio
import base64
import copy
import subprocess
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from bus import server
from schemas.messages.prediction import Resources
from schemas.settings import Settings
from tests.e2e.kubernetes import control_plane as lab
from tests.e2e.kubernetes.cluster import Component
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.output.writing import (
    ROOT,
    SCALERS,
    configured,
    documents,
    install,
    now_us,
    publish,
    put,
    until,
    writing,
)
from tests.support.processors.predicted import forecast

MISSING = lab.missing("etcd", "kube-apiserver", "kube-controller-manager")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/prod-example"
METRIC = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/spazio-forecast-cpu"
SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.external.metrics.k8s.io"


def controllers(plane: ControlPlane) -> Component:
    """Return a kube-controller-manager that scales, and makes the pods that are wanted."""
    port = server.free_port(0)
    return Component(
        "kube-controller-manager",
        [
            f"--kubeconfig={plane.kubeconfig()}", "--leader-elect=false", "--bind-address=127.0.0.1",
            f"--secure-port={port}", f"--cert-dir={plane.folder / 'controller-certificates'}",
            "--controllers=horizontal-pod-autoscaler-controller,deployment-controller,replicaset-controller",
            "--horizontal-pod-autoscaler-sync-period=1s", "--authorization-always-allow-paths=/healthz",
        ],
        plane.folder,
        f"https://127.0.0.1:{port}/healthz",
    )  # fmt: skip


async def register(kubectl: Kubectl, keys: Path, port: int) -> None:
    """Put the example on a cluster without a network: its Service leads to this machine."""
    for thing in documents("examples/mid.yaml")[:2]:
        await put(kubectl, thing)
    await install(kubectl, "namespace.yaml", "examples/prod.yaml")
    for thing in documents("examples/external.yaml"):
        changed = copy.deepcopy(thing)
        if thing["kind"] == "Service":
            changed["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        elif thing["kind"] == "APIService":
            changed["spec"]["caBundle"] = base64.b64encode((keys / "ca.crt").read_bytes()).decode()
            changed["spec"]["service"]["port"] = port
        elif thing["kind"] == "HorizontalPodAutoscaler":
            changed["spec"]["metrics"] = thing["spec"]["metrics"][:1]  # without measurements here
        await put(kubectl, changed)


async def replicas(kubectl: Kubectl) -> int:
    return int((await kubectl.call("GET", DEPLOYMENT))["spec"]["replicas"])


async def condition(kubectl: Kubectl, path: str, kind: str) -> str:
    """Return the status of a condition, with its reason."""
    conditions = (await kubectl.call("GET", path))["status"].get("conditions") or ()
    matching: list[dict[str, Any]] = [each for each in conditions if each["type"] == kind]
    return f"{matching[0]['status']} {matching[0].get('reason')}" if matching else ""


def certificates(folder: Path) -> Path:
    """Make keys of the service, and of the API server's proxy."""
    command = [str(ROOT / "deploy" / "certificates.sh"), str(folder), "spazio-external.spazio.svc"]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def external(keys: Path, port: int) -> dict[str, Any]:
    """Return the settings of the service."""
    files = {"cert": "server.crt", "key": "server.key", "client_ca": "ca.crt"}
    named = {f"external_tls_{name}": keys / file for name, file in files.items()}
    return {"external": True, "external_port": port, "forecast_seconds": 600, **named}


async def foresee(client: Client, cores: float, age_seconds: float = 0) -> None:
    amounts = Resources(cpu=cores, memory=1e9)
    at_us = now_us() - round(age_seconds * 1e6)
    await publish(client, forecast(namespace="default", workload="prod-example", forecast=amounts, at_us=at_us))


async def becomes(kubectl: Kubectl, path: str, kind: str, status: str) -> None:
    """Wait until a condition has a status."""

    async def so() -> bool:
        return (await condition(kubectl, path, kind)).startswith(status)

    await until(so, 60, f"{kind} {status}")


async def scales(kubectl: Kubectl, count: int) -> None:
    """Wait until the Deployment has so many replicas."""

    async def so() -> bool:
        return await replicas(kubectl) == count

    await until(so, 60, f"{count} replicas")


async def test_an_autoscaler_scales_a_deployment_to_the_forecast_and_keeps_it_without_one(
    tmp_path: Path, client: Client, settings: Settings
) -> None:
    keys, port = await asyncio.to_thread(certificates, tmp_path / "keys"), server.free_port(0)
    flags = (f"--proxy-client-cert-file={keys / 'client.crt'}", f"--proxy-client-key-file={keys / 'client.key'}")
    with lab.control_plane(tmp_path / "plane", *flags) as plane:
        chosen = configured(settings, plane.kubeconfig(), metrics=False, mid=False, **external(keys, port))
        manager = controllers(plane)
        try:
            async with Kubectl(plane) as kubectl, writing(client, chosen):
                await foresee(client, 3.0)
                await register(kubectl, keys, port)
                await becomes(kubectl, SERVICE, "Available", "True")
                listed = await kubectl.call("GET", f"{METRIC}?labelSelector=kind%3DDeployment")
                assert [(each["metricLabels"]["workload"], each["value"]) for each in listed["items"]] == [
                    ("prod-example", "3000m")
                ]
                await asyncio.to_thread(manager.start)
                # Half a core for each pod.
                await scales(kubectl, 6)
                await foresee(client, 4.5)
                await scales(kubectl, 9)
                # A forecast that is too old says nothing, and nothing is taken away.
                await foresee(client, 0.5, age_seconds=3600)
                await becomes(kubectl, f"{SCALERS}/prod-example", "ScalingActive", "False")
                assert await replicas(kubectl) == 9
        finally:
            manager.kill()
