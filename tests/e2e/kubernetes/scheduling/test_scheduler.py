"""The configuration of kube-scheduler that users are given, in a real kube-scheduler, while no extender answers."""

import asyncio
from collections.abc import Iterator

import pytest

from bus import server
from tests.e2e.kubernetes import cluster
from tests.e2e.kubernetes.cluster import SCHEDULER_CONFIG, Component
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.watch.watching import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("plane", [("--disable-admission-plugins=TaintNodesByCondition",)], indirect=True),
]


@pytest.fixture
def port() -> int:
    """Where the extender would be."""
    return server.free_port(0)


@pytest.fixture
def scheduler(plane: ControlPlane, port: int, request: pytest.FixtureRequest) -> Iterator[Component]:
    if reason := cluster.missing():
        pytest.skip(reason)
    ignorable = getattr(request, "param", False)
    running = cluster.scheduler(
        plane, cluster.scheduler_config(plane, f"http://127.0.0.1:{port}/scheduler", ignorable=ignorable)
    )
    running.start()
    yield running
    running.kill()


async def events_of(kubectl: Kubectl, pod: str) -> list[str]:
    query = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{pod}"
    return [str(item.get("message")) for item in (await kubectl.call("GET", query))["items"]]


async def node_of(kubectl: Kubectl, pod: str) -> str:
    result = await kubectl.call("GET", f"/api/v1/namespaces/default/pods/{pod}")
    return str(result["spec"].get("nodeName", ""))


async def test_while_the_extender_is_down_pods_wait_and_their_events_say_why(
    plane: ControlPlane, kubectl: Kubectl, scheduler: Component
) -> None:
    given, own = SCHEDULER_CONFIG.read_text().splitlines(), (plane.folder / "kube-scheduler.yaml").read_text()
    differs = [line for line in own.splitlines() if line not in given]
    assert [line.split(":")[0].strip(" -") for line in differs] == ["kubeconfig", "urlPrefix"]
    await kubectl.node("n1")
    await kubectl.node("n2")
    await kubectl.pod("waits")

    async def is_reported() -> bool:
        return any(
            "/scheduler/filter" in message and "refused" in message for message in await events_of(kubectl, "waits")
        )

    await until(is_reported, 30, scheduler.log.read_text)
    assert await node_of(kubectl, "waits") == ""


@pytest.mark.parametrize("scheduler", [True], ids=["ignorable"], indirect=True)
async def test_while_an_ignorable_extender_is_down_pods_go_on(
    plane: ControlPlane, kubectl: Kubectl, scheduler: Component
) -> None:
    await kubectl.node("n1")
    await kubectl.node("n2")
    await kubectl.pod("goes")

    async def bound() -> bool:
        return await node_of(kubectl, "goes") in ("n1", "n2")

    await until(bound, 30, scheduler.log.read_text)


async def test_a_pod_goes_on_once_the_extender_answers(
    plane: ControlPlane, kubectl: Kubectl, scheduler: Component, port: int
) -> None:
    await kubectl.node("n1")
    await kubectl.pod("later")

    async def is_reported() -> bool:
        return bool(await events_of(kubectl, "later"))

    async def all_pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = 0
        while (line := (await reader.readline()).lower()).strip():
            length = int(line.split(b":")[1]) if line.startswith(b"content-length") else length
        await reader.readexactly(length)
        body = b'{"NodeNames":["n1"]}'
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        writer.close()

    async def bound() -> bool:
        return await node_of(kubectl, "later") == "n1"

    await until(is_reported, 30, scheduler.log.read_text)
    async with await asyncio.start_server(all_pass, "127.0.0.1", port):
        await until(bound, 30, scheduler.log.read_text)
