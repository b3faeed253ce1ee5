"""Following containerd's events: a real gRPC server that answers as containerd does, or does not."""

import asyncio
import contextlib
import importlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producers import clock as grid
from producers.containers.sources import containerd
from producers.containers.sources.containerd import Containerd
from producers.containers.sources.damage import DAMAGED
from producers.containers.sources.source import Identity, Observation
from producers.containers.wire import protobuf
from producers.containers.wire.protobuf import field

WALL = 1_795_262_670 * grid.SECOND
UP = 3600 * grid.SECOND
POD = {
    "io.kubernetes.pod.uid": "0a1b",
    "io.kubernetes.pod.namespace": "shop",
    "io.kubernetes.pod.name": "web-7d4b9c6f5-x2x9k",
}
INNER = {**POD, "io.kubernetes.container.name": "app", "io.cri-containerd.kind": "container"}
OUTER = {**POD, "io.cri-containerd.kind": "sandbox", "spazio.class": "jobs", "spazio.kind": "batch"}
RUNNING, STOPPED = 2, 3


def envelope(topic: str, container: str, *, process: str = "", namespace: str = "k8s.io") -> bytes:
    """Return an event as containerd sends it."""
    number = {"/tasks/exit": 2, "/tasks/delete": 5}.get(topic)
    payload = field(1, container) + (field(number, process) if number and process else b"")
    return (
        field(1, field(1, WALL // grid.SECOND) + field(2, 500_000_000))
        + field(2, namespace)
        + field(3, topic)
        + field(4, field(1, "type") + field(2, payload))
    )


def record(container: str, labels: Mapping[str, str], image: str = "hub.example/web:1") -> bytes:
    entries = b"".join(field(2, field(1, key) + field(2, value)) for key, value in labels.items())
    return field(1, container) + entries + field(3, image)


class Clock(grid.System):
    """Stands a second after the events of these tests; before them when it is first asked."""

    def __init__(self) -> None:
        self._asked = 0

    def boottime(self) -> int:
        self._asked += 1
        return UP + grid.SECOND if self._asked > 1 else UP - grid.SECOND

    def realtime(self) -> int:
        return WALL + grid.SECOND


class Heard:
    def __init__(self) -> None:
        self.observed: asyncio.Queue[Observation] = asyncio.Queue()
        self.listed: asyncio.Queue[Mapping[str, tuple[Identity, bool]]] = asyncio.Queue()

    def observe(self, observation: Observation) -> None:
        self.observed.put_nowait(observation)

    def present(self, source: str, listed: Mapping[str, tuple[Identity, bool]], boottime_us: int) -> None:
        assert source == "containerd"
        self.listed.put_nowait(listed)

    async def events(self, number: int) -> list[Observation]:
        async with asyncio.timeout(5):
            return [await self.observed.get() for _ in range(number)]

    async def listing(self) -> Mapping[str, tuple[Identity, bool]]:
        async with asyncio.timeout(5):
            return await self.listed.get()


class Fake:
    """A gRPC server with the methods of containerd that are used."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "containerd.sock"
        self.containers: dict[str, bytes] = {}
        self.tasks: dict[str, int] = {}
        self.envelopes: list[bytes] = []
        self.asked: list[str] = []
        self.naming = asyncio.Event()
        self.naming.set()
        self.ends = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        grpc: Any = pytest.importorskip("grpc")
        self._grpc = grpc
        handlers = {
            "events.v1.Events": {"Subscribe": grpc.unary_stream_rpc_method_handler(self._subscribe)},
            "namespaces.v1.Namespaces": {"List": grpc.unary_unary_rpc_method_handler(self._namespaces)},
            "tasks.v1.Tasks": {"List": grpc.unary_unary_rpc_method_handler(self._tasks)},
            "containers.v1.Containers": {
                "Get": grpc.unary_unary_rpc_method_handler(self._get),
                "ListStream": grpc.unary_stream_rpc_method_handler(self._list),
            },
        }
        server = grpc.aio.server()
        for service, methods in handlers.items():
            handler = grpc.method_handlers_generic_handler(f"containerd.services.{service}", methods)
            server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"unix://{self.socket}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)

    async def _subscribe(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        self.asked.append(protobuf.text(request, 1))
        for envelope in self.envelopes:
            yield envelope
        await self.ends.wait()

    async def _namespaces(self, request: bytes, context: Any) -> bytes:
        return field(1, field(1, "k8s.io"))

    async def _tasks(self, request: bytes, context: Any) -> bytes:
        return b"".join(field(1, field(2, name) + field(4, status)) for name, status in self.tasks.items())

    async def _get(self, request: bytes, context: Any) -> bytes:
        await self.naming.wait()
        assert ("containerd-namespace", "k8s.io") in context.invocation_metadata()
        container = protobuf.text(request, 1)
        if container not in self.containers:
            await context.abort(self._grpc.StatusCode.NOT_FOUND, "no such container")
        return field(1, self.containers[container])

    async def _list(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        for container in self.containers.values():
            yield field(1, container)


@asynccontextmanager
async def following(fake: Fake, heard: Heard) -> AsyncIterator[asyncio.Task[None]]:
    async with fake.serving():
        running = asyncio.create_task(Containerd(fake.socket, clock=Clock()).run(heard))
        try:
            yield running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


MESSAGES = st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 2**63 - 1) | st.binary(max_size=300)), max_size=8)


@given(MESSAGES)
def test_what_was_encoded_is_decoded(message: list[tuple[int, int | bytes]]) -> None:
    assert list(protobuf.fields(b"".join(field(number, value) for number, value in message))) == message


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(content: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert all(number >= 0 for number, _ in protobuf.fields(content))


@pytest.mark.parametrize("content", [b"\x0a\x05ab", b"\x80", b"\x0b", b"\xff" * 11, b"\x0d\x01"])
def test_a_message_that_is_cut_off_or_of_no_known_kind_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"cut off|wire type"):
        list(protobuf.fields(content))


def test_numbers_of_fixed_width_are_passed_over() -> None:
    assert list(protobuf.fields(b"\x0d\x01\0\0\0\x11\x02\0\0\0\0\0\0\0")) == [(1, 1), (2, 2)]


async def test_it_lists_containers_with_their_pods_and_whether_they_run(tmp_path: Path) -> None:
    fake, heard = Fake(tmp_path), Heard()
    fake.containers = {"app": record("app", INNER), "pod": record("pod", OUTER), "old": record("old", {})}
    fake.tasks = {"app": RUNNING, "pod": RUNNING, "old": STOPPED}
    async with following(fake, heard):
        listed = await heard.listing()
    assert {name: runs for name, (_, runs) in listed.items()} == {"app": True, "pod": True, "old": False}
    pod: Any = {"pod": "0a1b", "namespace": "shop", "name": "web-7d4b9c6f5-x2x9k", "image": "hub.example/web:1"}
    pod |= {"workload": "jobs", "kind": "batch"}
    assert listed["app"][0] == Identity("app", container_name="app", sandbox=False, **pod)
    assert listed["pod"][0] == Identity("pod", sandbox=True, **pod)
    assert listed["old"][0] == Identity("old", image="hub.example/web:1", workload="hub.example/web")
    assert fake.asked[0].startswith('topic~="^(/containers/create|')


async def test_a_life_is_told_with_its_name_and_time_and_ends_of_execs_are_not(tmp_path: Path) -> None:
    fake, heard = Fake(tmp_path), Heard()
    async with following(fake, heard):
        await heard.listing()
    fake.containers = {"app": record("app", INNER)}
    fake.envelopes = [
        envelope("/containers/create", "app"),
        envelope("/tasks/create", "app"),
        envelope("/tasks/start", "app"),
        envelope("/tasks/exit", "app", process="an-exec"),
        envelope("/snapshot/prepare", "app"),
        envelope("/tasks/exit", "app", process="app"),
        envelope("/tasks/delete", "app"),
        envelope("/containers/delete", "app"),
    ]
    async with following(fake, heard):
        observations = await heard.events(6)
    assert [each.event for each in observations] == ["created", "created", "started", "exited", "exited", "deleted"]
    assert {each.identity.workload for each in observations} == {"shop/web"}
    assert {each.boottime_us for each in observations} == {(UP + grid.SECOND // 2) // 1000}


async def test_what_happens_while_a_name_is_asked_for_waits_for_it_and_others_do_not(tmp_path: Path) -> None:
    fake, heard = Fake(tmp_path), Heard()
    fake.naming.clear()
    fake.envelopes = [
        envelope("/containers/create", "app"),
        envelope("/tasks/start", "app"),
        envelope("/containers/create", "other", namespace="moby"),
    ]
    async with following(fake, heard):
        assert [each.identity for each in await heard.events(1)] == [Identity("other")]
        fake.containers = {"app": record("app", INNER)}
        fake.naming.set()
        observations = await heard.events(2)
    assert [(each.event, each.identity.container_name) for each in observations] == [
        ("created", "app"),
        ("started", "app"),
    ]


async def test_a_container_that_nobody_can_name_is_told_by_its_id(tmp_path: Path) -> None:
    fake, heard = Fake(tmp_path), Heard()
    fake.envelopes = [envelope("/containers/create", "gone"), envelope("/containers/delete", "gone")]
    async with following(fake, heard):
        observations = await heard.events(2)
    assert [(each.event, each.identity) for each in observations] == [
        ("created", Identity("gone")),
        ("deleted", Identity("gone")),
    ]


async def test_events_that_cannot_be_read_are_counted_said_once_and_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fake, heard = Fake(tmp_path), Heard()
    before = DAMAGED.labels("containerd")._value.get()
    fake.envelopes = [b"\xff", envelope("/tasks/start", ""), b"\x0a\x7f", envelope("/tasks/exit", "app")]
    async with following(fake, heard):
        assert [observation.event for observation in await heard.events(1)] == ["exited"]
    assert DAMAGED.labels("containerd")._value.get() - before == 3
    assert [record.message for record in caplog.records if record.name.startswith("producers")] == [
        "containers.damaged"
    ]


async def test_no_socket_and_one_that_is_closed_to_us_are_told_with_the_place(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(FileNotFoundError, match=r"containerd\.sock"):
        await Containerd(tmp_path / "containerd.sock").run(Heard())
    fake = Fake(tmp_path)
    async with fake.serving():
        fake.socket.chmod(0)
        request.getfixturevalue("unprivileged")
        with pytest.raises(PermissionError, match=r"containerd\.sock"):
            await Containerd(fake.socket).run(Heard())


async def test_a_daemon_that_leaves_is_a_lost_connection(tmp_path: Path) -> None:
    fake, heard = Fake(tmp_path), Heard()
    async with following(fake, heard) as running:
        await heard.listing()
        fake.ends.set()
        with pytest.raises(ConnectionError, match="ended the stream"):
            await asyncio.wait_for(running, 5)


async def test_a_daemon_that_is_stuck_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containerd, "_ANSWER_SECONDS", 0.1)
    fake = Fake(tmp_path)

    async def stuck(request: bytes, context: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    monkeypatch.setattr(fake, "_namespaces", stuck)
    async with following(fake, Heard()) as running:
        with pytest.raises(TimeoutError, match=r"Namespaces/List: DEADLINE_EXCEEDED"):
            await asyncio.wait_for(running, 5)


async def test_a_server_that_is_no_containerd_is_refused(tmp_path: Path) -> None:
    fake = Fake(tmp_path)

    @asynccontextmanager
    async def empty() -> AsyncIterator[None]:
        grpc: Any = pytest.importorskip("grpc")
        server = grpc.aio.server()
        server.add_insecure_port(f"unix://{fake.socket}")
        await server.start()
        yield
        await server.stop(None)

    async with empty():
        with pytest.raises(ValueError, match="UNIMPLEMENTED"):
            await Containerd(fake.socket).run(Heard())


async def test_without_grpcio_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    fake = Fake(tmp_path)
    async with fake.serving():
        monkeypatch.setattr(importlib, "import_module", absent)
        with pytest.raises(FileNotFoundError, match=r"spazio\[containerd\]"):
            await Containerd(fake.socket).run(Heard())
