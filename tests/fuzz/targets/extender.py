"""The extender over HTTP, with its real selector: bodies in good requests, and requests that are none."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from bus.health import Health
from sinks.extender.web import server
from tests.fuzz.session import Run, Target
from tests.support.extender.asking import Wire
from tests.support.extender.placement import START, Clock, Replica, asked, given, node, pod, report

_VERBS = ("filter", "prioritize", "preempt", "bind")
_NODES = ["a", "b", "c"]
_ANSWERED = {200, 400, 404, 405, 411, 413, 431}


def target() -> Target:
    """Return the target; the first byte is the verb, or above those says that the rest is the whole request."""
    pods = [asked("p"), asked("q", workload="web", owner="ReplicaSet"), asked("r", owner="DaemonSet")]
    questions = [{"Pod": each, "Nodes": None, "NodeNames": _NODES} for each in pods]
    whole = {"Pod": pods[0], "Nodes": {"items": [{"metadata": {"name": name}} for name in _NODES]}, "NodeNames": None}
    meta = {"a": {"Pods": [{"UID": "bound"}], "NumPDBViolations": 1}}
    victims = {"a": {"Pods": [{"metadata": {"uid": "bound"}}]}}
    binding = {"PodNamespace": "n", "PodName": "p", "PodUID": "u", "Node": "a"}
    seeds = [bytes([verb]) + _dump(each) for verb in (0, 1) for each in (*questions, whole)]
    seeds += [
        b"\2" + _dump({"Pod": pods[0], "NodeNameToMetaVictims": meta}),
        b"\2" + _dump({"Pod": pods[0], "NodeNameToVictims": victims}),
        b"\3" + _dump(binding),
        b"\4POST /scheduler/filter HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
        b"\4POST /filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"\4GET /healthz HTTP/1.0\r\n\r\n",
    ]
    return Target("extender", seeds, _opened, (), (b'"NodeNames":', b"Transfer-Encoding: chunked\r\n", b"Expect: "))


def _dump(content: object) -> bytes:
    return json.dumps(content).encode()


@contextmanager
def _opened() -> Iterator[Run]:
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        address, replica = runner.run(stack.enter_async_context(_served()))
        try:
            yield lambda data: runner.run(_ask(address, replica, data)) if data else None
        finally:
            runner.run(stack.aclose())


@asynccontextmanager
async def _served() -> AsyncIterator[tuple[tuple[str, int], Replica]]:
    replica = Replica(given(extender_port="0"), Clock())
    for name, room in zip(_NODES, (5.0, 3.0, 0.0), strict=True):
        replica.cluster_state.describe(node(name))
        replica.cluster_state.report(report(name, START, room, free={"cpu": 4.0, "memory": 8e9}))
    replica.cluster_state.pods.hear(pod("bound", 1, node="a"))
    async with server.serve(replica.settings.extender, replica.selector, Health()) as address:
        host, _, port = address.removeprefix("http://").removesuffix(server.PREFIX).rpartition(":")
        yield (host, int(port)), replica


async def _ask(address: tuple[str, int], replica: Replica, data: bytes) -> None:
    """Ask, and expect an answer that says what is wrong if the question is."""
    if data[0] < len(_VERBS):
        head = f"POST /scheduler/{_VERBS[data[0]]} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data) - 1}\r\n\r\n"
        async with _wire(address) as wire:
            await wire.send(head.encode() + data[1:])
            status, _, body = await wire.answer()
        assert status in _ANSWERED, (status, body[:300])
    else:
        async with _wire(address) as wire:
            await wire.send(data[1:])
            wire.writer.write_eof()
            await wire.closed()
    assert not [row for row, name in enumerate(replica.cluster_state.rows.names) if name and name not in _NODES]
    replica.decisions.clear()
    replica.clock.pass_seconds(1)


@asynccontextmanager
async def _wire(address: tuple[str, int]) -> AsyncIterator[Wire]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()
