"""A real Kubernetes sink for tests, in this process or one to be killed, and manifests put on a real API server."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from nats.aio.client import Client

from bus.health import Health
from schemas import codec
from schemas import settings as all_settings
from schemas.live import Live
from schemas.messages.estimate import Availability
from schemas.messages.placement import Shortage
from schemas.messages.prediction import Forecast, Prediction
from schemas.settings import Settings
from schemas.subject import Names, token
from sinks.kubernetes import service as sink
from tests.e2e.kubernetes.control_plane import Kubectl
from tests.support.background import background
from tests.support.server.program import Program

ROOT = Path(__file__).parents[4]
MANIFESTS = ROOT / "deploy" / "kubernetes"
NAMES = Names()
SCALERS = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
METRICS = "/apis/spazio.io/v1alpha1/nodemetrics"
FAST = {
    "mid": True,
    "mid_nodes": "",
    "look_seconds": 0.2,
    "floor_seconds": 2,
    "forecast_seconds": 6,
    "force_seconds": 3600,
    "stale_seconds": 900,
    "full_lease": "default/spazio-full",
}

_PLURALS = {
    "NetworkPolicy": "networkpolicies",
    "PriorityClass": "priorityclasses",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}
_CLUSTER_WIDE = (
    "APIService", "Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "PriorityClass",
    "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
)  # fmt: skip


def documents(name: str) -> list[dict[str, Any]]:
    """Return the objects of a manifest."""
    return [thing for thing in yaml.safe_load_all((MANIFESTS / name).read_text()) if thing]


def path_of(thing: dict[str, Any]) -> str:
    """Return where the API server has an object."""
    version, kind, metadata = thing["apiVersion"], thing["kind"], thing["metadata"]
    space = "" if kind in _CLUSTER_WIDE else f"/namespaces/{metadata.get('namespace', 'default')}"
    plural = _PLURALS.get(kind, f"{kind.lower()}s")
    return f"/{'apis' if '/' in version else 'api'}/{version}{space}/{plural}/{metadata['name']}"


async def put(kubectl: Kubectl, thing: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
    """Apply an object on the server's side, as `kubectl apply --server-side` does."""
    query = "?fieldManager=person&force=true&fieldValidation=Strict" + "&dryRun=All" * dry_run
    return await kubectl.call("PATCH", path_of(thing) + query, thing, patch="apply-patch+yaml")


async def install(kubectl: Kubectl, *names: str) -> None:
    """Apply manifests, and wait until the kinds that they define are served."""
    for name in names:
        for thing in documents(name):
            await put(kubectl, thing)
            while thing["kind"] == "CustomResourceDefinition":
                result = await kubectl.call("GET", path_of(thing))
                conditions = result.get("status", {}).get("conditions") or ()
                if any(
                    condition["type"] == "Established" and condition["status"] == "True" for condition in conditions
                ):
                    break
                await asyncio.sleep(0.1)


def now_us() -> int:
    return time.time_ns() // 1000


async def publish(client: Client, *messages: Availability | Prediction | Forecast | Shortage) -> None:
    """Publish what processors and extenders say."""
    for message in messages:
        if isinstance(message, Forecast):
            subject = NAMES.of("forecast", token(message.namespace), token(f"{message.kind}/{message.workload}"))
        elif isinstance(message, Shortage):
            subject = NAMES.of("shortage", token(message.replica))
        else:
            subject = NAMES.node(type(message).__name__.lower(), message.node)
        await client.jetstream().publish(subject, codec.encode(message))


def configured(settings: Settings, kubeconfig: Path, **output: Any) -> Settings:
    """Return settings of a sink that looks often."""
    return settings.model_copy(
        update={
            "kube": settings.kube.model_copy(update={"config": kubeconfig}),
            "output": type(settings.output).model_validate(FAST | output),
        }
    )


@asynccontextmanager
async def writing(client: Client, settings: Settings) -> AsyncIterator[Health]:
    """Run the sink for the length of a block, and end it as a signal does."""
    health = Health()
    async with background(sink.run(client, Live(settings), health)):
        yield health


class Process(Program):
    """A sink of its own, to be ended or killed."""

    def __init__(self, settings: Settings, log: Path) -> None:
        wanted = {f"output_{name}": str(value) for name, value in settings.output.model_dump().items()}
        wanted |= {"nats_url": settings.nats.url, "nats_partitions": "2", "http_port": "0", "log_format": "json"}
        wanted |= {"kube_config": str(settings.kube.config), "data_dir": str(log.parent / "data")}
        super().__init__(
            [sys.executable, "-m", "tests.e2e.kubernetes.output.writing", json.dumps(wanted)], log, folder=ROOT
        )


async def until(condition: Callable[[], Awaitable[Any]], seconds: float = 60, what: object = "") -> None:
    """Wait until a condition, evaluated by each call, is true."""
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, what() if callable(what) else what
        await asyncio.sleep(0.1)


async def stand_by(sink: Process) -> None:
    """Start a sink beside another one, and wait until it has asked for the Lease."""

    def starts() -> int:
        return [event["event"] for event in sink.events].count("service.started") if sink.log.exists() else 0

    begun = starts()
    sink.start()

    async def runs() -> bool:
        return starts() > begun

    await until(runs, 30)
    await asyncio.sleep(2)


if __name__ == "__main__":
    from spazio.service import service

    chosen = all_settings.load(json.loads(sys.argv[1]), environ={})
    sys.exit(service.run("kubernetes", chosen, lambda context: sink.run(context.client, context.live, context.health)))
