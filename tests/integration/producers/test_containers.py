"""Container events of a real agent on a real nats-server: across restarts and kills nothing is lost or sent twice."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from nats.aio.client import Client

from bus.reading.reader import Reader
from producers import inventory
from schemas import codec
from schemas.messages.telemetry import POD_COLUMNS, ContainerEvent, PodUsageBlock
from schemas.settings import Settings
from schemas.subject import Names
from spazio.recovery import agent_recovery
from tests.conftest import NatsServer

NAMES = Names()
NODE = "node.one"
A, B, C, D = (digit * 64 for digit in "abcd")
BOOT = inventory.boot_id(Path("/proc"))
LIFE = ["created", "started", "exited", "deleted"]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "cgroup"
    (made / "docker").mkdir(parents=True)
    (made / "cgroup.controllers").write_text("cpu\n")
    return made


def start(tree: Path, container: str) -> None:
    path = tree / "docker" / container
    path.mkdir()
    (path / "cgroup.events").write_text("populated 1\n")


def end(tree: Path, container: str) -> None:
    shutil.rmtree(tree / "docker" / container)


@contextmanager
def agent(settings: Settings, tree: Path, *, kill: bool = False) -> Iterator[subprocess.Popen[bytes]]:
    """Run a real agent on a tree; killed in the end, or asked to stop."""
    environ = os.environ | {
        "SPAZIO_NATS_URL": settings.nats.url,
        "SPAZIO_DATA_DIR": str(settings.data.dir),
        "SPAZIO_HTTP_PORT": "0",
        "SPAZIO_SAMPLE_NODE": NODE,
        "SPAZIO_SAMPLE_CGROUP": str(tree),
        "SPAZIO_CONTAINERS": "cgroup",
    }
    with (tree.parent / "agent.log").open("ab") as log:
        process = subprocess.Popen([sys.executable, "-m", "spazio", "agent"], env=environ, stdout=log, stderr=log)
    try:
        yield process
        assert process.poll() is None, (tree.parent / "agent.log").read_text()
    finally:
        process.kill() if kill else process.terminate()
        process.wait(10)


async def heard(reader: Reader, *expected: tuple[str, str]) -> None:
    """Wait for these events; the order between containers is nobody's business."""
    events: list[ContainerEvent] = []
    async with asyncio.timeout(60):
        while len(events) < len(expected):
            messages = await reader.read()
            events += [codec.decode_from(ContainerEvent, item.data, item.subject) for item in messages]
    story = [(event.event, event.container) for event in events]
    assert sorted(story, key=lambda item: (item[1], LIFE.index(item[0]))) == sorted(expected, key=lambda item: item[1])
    assert {(event.node, event.boot) for event in events} == {(NODE, BOOT)}


def events_of(client: Client) -> Reader:
    return Reader(client, NAMES.telemetry, [NAMES.part("*", "containers")])


@pytest.mark.slow
async def test_after_a_kill_only_what_has_changed_meanwhile_is_reported(
    client: Client, settings: Settings, tree: Path
) -> None:
    start(tree, A)
    start(tree, B)
    async with events_of(client) as reader:
        with agent(settings, tree, kill=True):
            await heard(reader, *((event, container) for container in (A, B) for event in LIFE[:2]))
            start(tree, C)
            await heard(reader, ("created", C), ("started", C))
        end(tree, B)
        start(tree, D)
        with agent(settings, tree):
            await heard(reader, ("exited", B), ("deleted", B), ("created", D), ("started", D))
            for container in (A, C, D):
                end(tree, container)
            await heard(reader, *((event, container) for container in (A, C, D) for event in LIFE[2:]))
        with agent(settings, tree):
            start(tree, B)
            await heard(reader, ("created", B), ("started", B))
        assert await reader.read(timeout_seconds=0.2) == []


@pytest.mark.slow
async def test_events_of_a_time_without_a_server_are_published_once_when_it_is_back(
    client: Client, settings: Settings, tree: Path, nats_server: NatsServer
) -> None:
    async with events_of(client) as reader:
        with agent(settings, tree):
            start(tree, A)
            await heard(reader, ("created", A), ("started", A))
            await asyncio.to_thread(nats_server.kill)
            end(tree, A)
            start(tree, B)
            await asyncio.to_thread(nats_server.start)
            await heard(reader, ("exited", A), ("deleted", A), ("created", B), ("started", B))
        assert await reader.read(timeout_seconds=0.2) == []


def payload_of(event: str, container: str, boottime_us: int, *, node: str = NODE, boot: str = BOOT) -> bytes:
    return codec.encode(
        ContainerEvent.model_validate(
            {
                "node": node,
                "boot": boot,
                "at_us": boottime_us,
                "boottime_us": boottime_us,
                "event": event,
                "container": container,
                "sources": ["cgroup"],
            }
        )
    )


async def read(client: Client, names: Names = NAMES) -> dict[str, tuple[str, bool]]:
    memory = await agent_recovery.read(client, names, node=NODE, boot=BOOT, timeout_seconds=1)
    return {container: (item.happening.event, item.rebooted) for container, item in memory.events.items()}


async def test_the_last_event_of_each_container_of_the_node_is_remembered(client: Client) -> None:
    js, subject = client.jetstream(), NAMES.node("containers", NODE)
    assert await read(client) == {}
    await js.publish(subject, payload_of("started", D, 1, boot="before"))
    await js.publish(subject, b"{}")
    for number, (event, container) in enumerate([("created", A), ("created", B), ("started", A), ("deleted", B)]):
        await js.publish(subject, payload_of(event, container, 2 + number))
    await js.publish(NAMES.node("containers", "other"), payload_of("started", C, 9, node="other"))
    await js.publish(NAMES.node("samples", NODE), b"{}")
    assert await read(client) == {D: ("started", True), A: ("started", False), B: ("deleted", False)}


def usage(*pods: str, boot: str = BOOT) -> bytes:
    columns = {column: [None] * len(pods) for column in POD_COLUMNS} | {"containers": [1] * len(pods)}
    head = {"node": NODE, "boot": boot, "seq": 1, "at_us": 1, "span_us": 1_000_000}
    return codec.encode(PodUsageBlock.model_validate({**head, **columns, "pods": list(pods)}))


async def test_pods_and_containers_whose_beginning_was_forgotten_are_known_by_their_usage(client: Client) -> None:
    js, subject = client.jetstream(), NAMES.node("pods", NODE)
    await js.publish(NAMES.node("containers", NODE), payload_of("deleted", B, 1))
    await js.publish(subject, usage("gone", C))
    await js.publish(subject, usage("uid", A, B))
    memory = await agent_recovery.read(client, NAMES, node=NODE, boot=BOOT, timeout_seconds=1)
    assert {id_: item.alive for id_, item in memory.events.items()} == {A: True, B: False}
    assert (memory.pods, memory.boottime_us) == ({"uid": 1, A: 1, B: 1}, 1_850_000)
    await js.publish(subject, usage("uid", A, boot="before"))
    assert (await agent_recovery.read(client, NAMES, node=NODE, boot=BOOT, timeout_seconds=1)).pods == {}


async def test_where_nothing_can_be_read_nothing_is_remembered_and_that_is_reported(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    assert await read(client, Names("other")) == {}
    (record,) = caplog.records
    assert record.getMessage() == "containers.recovery_failed"
    assert "OTHER_TELEMETRY" in getattr(record, "reason", "")
