"""The extender as a service: follow, answer, say what was decided, kick.

It answers once everything is known that was there when it started. Decisions are said behind the answers; a server
that is away costs the oldest of them, never an answer.
"""

import asyncio
import contextlib
import gc
import logging
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from prometheus_client import Gauge

from bus.client import Client
from bus.health import Health
from kube import answer
from schemas.settings import Settings
from schemas.subject import Names
from sinks.extender.decision_publisher import Telling
from sinks.extender.placement import Placing
from sinks.extender.requeue import Waiting
from sinks.extender.state import market
from sinks.extender.state.cluster_state import Board
from sinks.extender.state.follow import Followed
from sinks.extender.state.store import Store
from sinks.extender.web import server

if TYPE_CHECKING:
    from kube.api import Api  # a second of imports that who has no cluster does without

log = logging.getLogger(__name__)

KICK = "kick.spazio.io/at"  # not of the annotations that the watch takes for facts
_COUNT_SECONDS = 1.0
_SWEEP_SECONDS = 60.0
_OBJECTS_BEFORE_COLLECTION = 50_000
_MARKET_SECONDS = 600.0
_READY_SECONDS = 5.0

HELD = Gauge("spazio_extender_reservations", "places held for pods that are not bound yet")
NODES = Gauge("spazio_extender_nodes", "nodes by how old what they report is", ["state"])


async def run(
    client: Client,
    settings: Settings,
    health: Health,
    api: "Api | None",
    listening: asyncio.Future[str],
    *,
    kicks: bool,
) -> None:
    """Serve until cancelled.

    Args:
        client: Connection.
        settings: All settings.
        health: Told what does not work.
        api: The Kubernetes API, for kicks and binds; None: neither is done.
        listening: Told the address once questions are answered.
        kicks: Whether rejected pods are to be tried again when room appears.
    """
    own, names = settings.extender, Names(settings.prefix)
    board, waiting = Board(settings), Waiting()
    followed = Followed(client, settings, board)
    store = Store(client, names, board.book, timeout_seconds=own.store_seconds)
    telling = Telling(client, names, health, timeout_seconds=settings.nats.request_timeout_seconds)

    async def bind(namespace: str, name: str, uid: str, node: str) -> str:
        return (
            "the extender has no Kubernetes API to bind with"
            if api is None
            else await bind_pod(api, namespace, name, uid, node)
        )

    async def annotate(node: str) -> None:
        assert api is not None  # nobody kicks without
        notes = {KICK: datetime.now(UTC).isoformat()}
        path = f"/api/v1/nodes/{node}"
        await api.send("PATCH", path, {"metadata": {"annotations": notes}}, kind="application/merge-patch+json")

    async def kick() -> None:
        await followed.ready.wait()
        # Whom an earlier life has rejected nobody remembers; so all are tried again once.
        for node in board.nodes()[:1]:
            with contextlib.suppress(answer.Trouble):
                await annotate(node)
        await waiting.run(own, board, annotate)

    async with asyncio.TaskGroup() as group, AsyncExitStack() as stack:
        if api is not None:
            stack.push_async_callback(api.close)
        tasks = [
            group.create_task(followed.run()),
            group.create_task(telling.run()),
            group.create_task(_count(board, health)),
        ]
        tasks.append(group.create_task(_trade(settings, board)))
        if kicks and api is not None:
            tasks.append(group.create_task(kick()))
        try:
            await _ready(followed, health)
            gc.freeze()  # what is known now stays; to look through it for garbage would hold answers up
            gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)
            placing = Placing(own, board, store, waiting, telling.say, bind)
            address = await stack.enter_async_context(server.serve(own, placing, health))
            listening.set_result(address)
            log.info("extender.listening", extra={"address": address, "nodes": len(board.rows)})
            await asyncio.Event().wait()
        finally:
            for task in tasks:
                task.cancel()


async def _ready(followed: Followed, health: Health) -> None:
    while not followed.ready.is_set():
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await followed.ready.wait()
        except TimeoutError:
            health.degrade(
                "extender", "not everything is read yet that has to be known; nothing is answered until then"
            )
    health.recover("extender")


async def _count(board: Board, health: Health) -> None:
    """Keep gauges and health current."""
    silent, swept = False, time.monotonic()
    while True:
        await asyncio.sleep(_COUNT_SECONDS)
        now_us = time.time_ns() // 1000
        board.book.lapse(now_us)
        if time.monotonic() >= swept + _SWEEP_SECONDS:
            swept = time.monotonic()
            board.sweep(now_us)
        HELD.set(len(board.book))
        counts = board.counts(now_us)
        for state, number in counts.items():
            NODES.labels(state).set(number)
        if (nothing := bool(sum(counts.values())) and not counts["fresh"]) != silent:
            silent = nothing
            if silent:
                health.degrade("telemetry", "no node reports; look after agents, processors and the cache sink")
            else:
                health.recover("telemetry")


async def _trade(settings: Settings, board: Board) -> None:
    """Look up prices and interruptions of the past now and then, where there is a history."""
    while True:
        since_us = time.time_ns() // 1000 - round(settings.extender.window_seconds * 1e6)
        try:
            board.trade(await asyncio.to_thread(market.read, settings.history_dir / "nodes", since_us))
        except Exception:  # prices that are missing must not end the answers
            log.exception("extender.no_market")
        await asyncio.sleep(_MARKET_SECONDS)


async def bind_pod(api: "Api", namespace: str, name: str, uid: str, node: str) -> str:
    """Bind a pod to a node; returns why it could not be, or nothing, also where it was bound there before."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    try:
        await api.send("POST", f"{path}/binding", binding)
    except answer.Trouble as trouble:
        try:
            bound = await api.send("GET", path)
        except answer.Trouble:
            return str(trouble)
        same = bound.get("metadata", {}).get("uid") == uid and bound.get("spec", {}).get("nodeName") == node
        return "" if same else str(trouble)
    return ""
