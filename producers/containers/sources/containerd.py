"""containerd's own events, over gRPC: every container of every namespace and client.

Events have only the id of a container; the source requests its identity once, when it is created. Until the answer
comes, other events of the container wait, which keeps their order. containerd does not confirm when a subscription
begins, so the source repeats the first listing.

Access to the socket is equivalent to root. This is the most expensive source, 10 ms of CPU a pod and 10 MB, and needs
`grpcio`; the bundle folders provide the same without either.
"""

import asyncio
import re
from pathlib import Path

from producers import clock as grid
from producers.containers import label
from producers.containers.sources.damage import Damage
from producers.containers.sources.source import Event, Identity, Observation, Sink
from producers.containers.wire import protobuf, request
from producers.containers.wire.daemon import Daemon, dial

_ANSWER_SECONDS = 5.0  # a loaded daemon lists hundreds of containers in one
_NAME_SECONDS = (
    0.5  # a container is created 70 ms or more before it runs, and a request takes 2; unnamed is better than late
)
_AGAIN_SECONDS = 1.0
_LIST_SECONDS = 30.0  # for each listing containerd asks every shim for the state of its task
_RUNNING = (2, 4, 5)  # RUNNING, PAUSED, PAUSING
_NAMELESS = "moby"  # dockerd keeps names and labels to itself
_PACKAGE, _HEADER = "/containerd.services.", "containerd-namespace"
_EVENTS: dict[str, Event] = {
    "/containers/create": "created",
    "/tasks/create": "created",
    "/tasks/start": "started",
    "/tasks/exit": "exited",
    "/tasks/delete": "exited",
    "/containers/delete": "deleted",
}
_FILTER = "topic~=" + '"^(' + "|".join(map(re.escape, _EVENTS)) + ')$"'

Parsed = tuple[str, str, Event, int]


class Containerd:
    """Follows one daemon.

    Args:
        socket: Its Unix socket.
        clock: Time since boot and time of day.
        list_seconds: Time between listings.
    """

    name = "containerd"

    def __init__(self, socket: Path, *, clock: grid.Clock | None = None, list_seconds: float = _LIST_SECONDS) -> None:
        self._socket, self._clock, self._list_seconds = socket, clock or grid.System(), list_seconds
        self._damage, self._classes = Damage(self.name), label.Classes()
        self._identities: dict[str, Identity] = {}
        self._waiting: dict[str, list[tuple[Event, int]]] = {}

    async def run(self, sink: Sink) -> None:
        """Follow until cancelled.

        Raises:
            OSError: The socket is missing or not permitted, `grpcio` is not installed, or the daemon has ended or
                hangs.
            ValueError: The peer is not such a daemon.
        """
        _, writer = await request.connect(self._socket, timeout_seconds=_ANSWER_SECONDS)  # has a better error than gRPC
        writer.transport.abort()
        self._identities, self._waiting = {}, {}
        try:
            async with (
                dial(self._socket, package=_PACKAGE, header=_HEADER, timeout_seconds=_ANSWER_SECONDS) as daemon,
                asyncio.TaskGroup() as group,
            ):
                group.create_task(self._follow(daemon, group, self._clock.boottime(), sink))
                await self._list(daemon, sink)
                await asyncio.sleep(_AGAIN_SECONDS)
                while True:
                    await self._list(daemon, sink)
                    await asyncio.sleep(self._list_seconds)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _follow(self, daemon: Daemon, group: asyncio.TaskGroup, earliest: int, sink: Sink) -> None:
        async for envelope in daemon.stream("events.v1.Events/Subscribe", protobuf.field(1, _FILTER)):
            try:
                parsed = parse(envelope)
            except ValueError as error:
                self._damage.count(f"{error} in {envelope[:200]!r}")
                continue
            if parsed is None:
                continue
            namespace, container, event, wall = parsed
            moment = grid.boottime_of(wall, self._clock, earliest=earliest) // 1000
            if container in self._waiting:
                self._waiting[container].append((event, moment))
            elif container in self._identities or event in ("exited", "deleted"):
                self._report(container, event, moment, sink)
            else:
                self._waiting[container] = [(event, moment)]
                group.create_task(self._name(daemon, namespace, container, sink))
        raise ConnectionResetError(f"{self._socket} has ended the stream of events")

    def _report(self, container: str, event: Event, boottime_us: int, sink: Sink) -> None:
        identity = self._identities.get(container, Identity(container))
        sink.observe(Observation(self.name, event, identity, boottime_us))
        if event == "deleted":
            self._identities.pop(container, None)

    async def _name(self, daemon: Daemon, namespace: str, container: str, sink: Sink) -> None:
        """Request the identity of a container, then report the events that waited for it."""
        if namespace != _NAMELESS:
            try:
                answer = await daemon.ask(
                    "containers.v1.Containers/Get", protobuf.field(1, container), namespace, _NAME_SECONDS
                )
                identity, labels = _read(protobuf.content(answer, 1))
                self._identities[container] = self._classes.apply(identity, labels)
            except (OSError, ValueError) as error:
                self._damage.count(f"{container} has no name: {error}")
        self._identities.setdefault(container, Identity(container))
        for event, moment in self._waiting.pop(container):
            self._report(container, event, moment, sink)

    async def _list(self, daemon: Daemon, sink: Sink) -> None:
        # The time before the request: an event that is not yet in the answer must not look older than the answer.
        boottime_us = self._clock.boottime() // 1000
        before, rows = set(self._identities), list[label.Row]()
        namespaces = protobuf.repeated(await daemon.ask("namespaces.v1.Namespaces/List", b""), 1)
        for namespace in (protobuf.text(entry, 1) for entry in namespaces):
            tasks = protobuf.repeated(await daemon.ask("tasks.v1.Tasks/List", b"", namespace), 1)
            running = {protobuf.text(task, 2) for task in tasks if protobuf.number(task, 4) in _RUNNING}
            listing = daemon.stream("containers.v1.Containers/ListStream", b"", namespace, seconds=_ANSWER_SECONDS)
            async for row in listing:
                identity, labels = _read(protobuf.content(row, 1))
                rows.append((identity, labels, identity.container in running))
        listed = self._classes.listing(rows)
        for container in before - listed.keys():
            self._identities.pop(container, None)
        self._identities |= {container: identity for container, (identity, _) in listed.items()}
        sink.present(self.name, listed, boottime_us)


def _read(container: bytes) -> tuple[Identity, dict[str, str]]:
    labels = protobuf.texts(container, 2)
    return label.identity(protobuf.text(container, 1), labels, image=protobuf.text(container, 3)), labels


def parse(envelope: bytes) -> Parsed | None:
    """Return namespace, container, event and its time in nanoseconds since the Unix epoch; None: irrelevant.

    Raises:
        ValueError: This is not an event.
    """
    event = _EVENTS.get(protobuf.text(envelope, 3))
    payload = protobuf.content(protobuf.content(envelope, 4), 2)
    container = protobuf.text(payload, 1)
    if event is None or (event == "exited" and _process(envelope, payload) not in ("", container)):
        return None
    if not container:
        raise ValueError("an event without a container")
    moment = protobuf.content(envelope, 1)
    wall = protobuf.number(moment, 1) * grid.SECOND + protobuf.number(moment, 2)
    return protobuf.text(envelope, 2), container, event, wall


def _process(envelope: bytes, payload: bytes) -> str:
    """Return which process of the container ended: the container's id for its main process, else that of the exec."""
    return protobuf.text(payload, 2 if protobuf.text(envelope, 3) == "/tasks/exit" else 5)
