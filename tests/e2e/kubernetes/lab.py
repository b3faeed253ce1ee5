"""A whole cluster on this machine: control plane, KWOK's nodes, made-up telemetry, spazio, and the scheduler that asks.

Every part is a process of its own, to be killed and started again. Pods take what their family does and
request nothing or little, so that kube-scheduler by itself would put 110 on each node.
"""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from bus import connection, server
from schemas import settings as all_settings
from tests.e2e.kubernetes import cluster
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.families import Family, Size
from tests.e2e.kubernetes.robin import robin
from tests.e2e.kubernetes.service import Service
from tests.support.server.natsd import Natsd

_PROCESS = {
    "SPAZIO_PREDICT_ENABLED": "false",
    "SPAZIO_REJECT_ENABLED": "false",
    "SPAZIO_FORECAST_ENABLED": "false",
    "SPAZIO_SMOOTHING_PUBLISH": "false",
}


class Lab:
    """The running parts.

    Attributes:
        plane: etcd and API server.
        kubectl: A client of it.
        client: A client of NATS.
        services: Commands of spazio by name: process, cache, watch, load, and extender-0 and so on.
        scheduler: kube-scheduler.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        plain = all_settings.load({"data_dir": str(folder / "nats")}, environ={})
        port = server.free_port(0)
        self.nats = Natsd(server.write_config(plain, port), port)
        self.plane = ControlPlane(folder / "plane", "--disable-admission-plugins=TaintNodesByCondition")
        self.kubectl = Kubectl(self.plane)
        self.services: dict[str, Service] = {}
        self.kwok: cluster.Component
        self.scheduler: cluster.Component
        self.client: Client

    @property
    def extenders(self) -> list[Service]:
        return [service for name, service in self.services.items() if name.startswith("extender")]

    def service(self, name: str, *arguments: str, **environ: str) -> Service:
        """Start a command of spazio."""
        common = {
            "SPAZIO_NATS_URL": self.nats.url,
            "SPAZIO_NATS_PARTITIONS": "2",
            "SPAZIO_KUBE_CONFIG": str(self.plane.kubeconfig()),
        }
        made = Service(arguments[-1], arguments, self.folder / name, {**common, **environ})
        self.services[name] = made
        made.start()
        return made

    def stop(self) -> None:
        """Kill everything that is left."""
        for name in ("scheduler", "kwok"):
            if hasattr(self, name):
                getattr(self, name).kill()
        for service in self.services.values():
            service.kill()
        self.plane.stop()
        self.nats.kill()

    async def nodes(self, count: int, size: Size) -> None:
        """Make nodes of a size, and wait until each has telemetry behind it."""
        amounts = {"cpu": str(size.cpus), "memory": str(size.memory), "pods": "110"}
        status = {"capacity": amounts, "allocatable": amounts}
        names = [f"kwok-{number:03d}" for number in range(count)]
        await asyncio.gather(
            *(
                self.kubectl.call("POST", "/api/v1/nodes", {"metadata": {"name": name}, "status": status})
                for name in names
            )
        )
        bucket = await self.client.jetstream().key_value("SPAZIO_AVAILABILITY")
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(Exception):
                    if len(await bucket.keys()) >= count:
                        return
                await asyncio.sleep(0.5)

    async def pod(self, name: str, family: Family, **annotations: str) -> None:
        """Make a pod of a family."""
        messages = family.annotations() | annotations
        metadata = {"name": name, "labels": {"spazio.class": family.name}, "annotations": messages}
        container = {"name": "main", "image": "x", "resources": {"requests": family.requests}}
        pod = {"metadata": metadata, "spec": {"containers": [container]}}
        await self.kubectl.call("POST", "/api/v1/namespaces/default/pods", pod)

    async def events(self, pod: str) -> list[str]:
        """Return what the API server's events say of a pod."""
        query = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{pod}"
        return [
            str(item.get("message") or item.get("note")) for item in (await self.kubectl.call("GET", query))["items"]
        ]

    def schedule(self, extender: str, *, ignorable: bool = False) -> None:
        """Start kube-scheduler, or start it again with another configuration."""
        if hasattr(self, "scheduler"):
            self.scheduler.kill()
        config = cluster.scheduler_config(self.plane, extender, ignorable=ignorable)
        self.scheduler = cluster.scheduler(self.plane, config)
        self.scheduler.start()


@asynccontextmanager
async def lab(
    folder: Path,
    *,
    nodes: int,
    size: Size,
    replicas: int = 1,
    process: Mapping[str, str] | None = None,
    extender: Mapping[str, str] | None = None,
) -> AsyncIterator[Lab]:
    """Run a cluster for the length of a block; it has its nodes and their telemetry, and the scheduler asks.

    Args:
        folder: For everything.
        nodes: How many.
        size: Of each.
        replicas: Of the extender; more than one stand behind a load balancer; 0: none, and an address that nobody has.
        process: More settings of the processors.
        extender: Its settings.
    """
    running = Lab(folder)
    async with AsyncExitStack() as stack:
        stack.callback(running.stop)
        await asyncio.to_thread(running.nats.start)
        await asyncio.to_thread(running.plane.start)
        await stack.enter_async_context(running.kubectl)
        running.service("process", "process", **{**_PROCESS, **(process or {})}).ready()
        running.service("cache", "sink", "cache")
        running.service("watch", "watch")
        running.service("load", "load", SPAZIO_SIMULATED_FOLLOW="true")
        ports = [server.free_port(0) for _ in range(max(1, replicas))]
        for number, port in enumerate(ports[:replicas]):
            running.service(
                f"extender-{number}", "sink", "extender", SPAZIO_EXTENDER_PORT=str(port), **(extender or {})
            )
        own = all_settings.load({"nats_url": running.nats.url}, environ={})
        running.client = await stack.enter_async_context(connection.connect(own, "lab"))
        running.kwok = cluster.kwok(running.plane)
        await asyncio.to_thread(running.kwok.start)
        await running.nodes(nodes, size)
        for service in running.services.values():
            await asyncio.to_thread(service.ready)
        port = ports[0] if replicas <= 1 else await stack.enter_async_context(robin(ports))
        await asyncio.to_thread(running.schedule, f"http://127.0.0.1:{port}/scheduler")
        yield running


def figures(services: Mapping[str, Service], seconds: float) -> dict[str, float]:
    """Return the share of a core that each command has used over so many seconds."""
    return {name: round(each.cpu_seconds / seconds, 3) for name, each in services.items() if each.process is not None}


def report(content: Mapping[str, Any], files: Sequence[Path] = ()) -> None:
    """Print figures, and where the logs are."""
    print(json.dumps(content, indent=1), *map(str, files), sep=os.linesep, flush=True)
