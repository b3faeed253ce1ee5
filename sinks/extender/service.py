"""The extender as a service: follow the state, answer kube-scheduler, publish decisions and shortages, requeue pods.

It answers once it has loaded the state that existed at its start. It publishes decisions after the answers; if NATS is
unavailable, the oldest decisions are dropped, but answers are not delayed.
"""

import asyncio
import contextlib
import functools
import gc
import logging
import secrets
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

from prometheus_client import Gauge

from bus.client import Client
from bus.health import Health
from kube import answer
from schemas.sections.placement import Extender
from schemas.settings import Settings
from schemas.subject import Names
from sinks.extender import shortage
from sinks.extender.decision_publisher import DecisionPublisher
from sinks.extender.feed.follow import Followed
from sinks.extender.placement import Bind, PlacementSelector, now_us
from sinks.extender.requeue import WaitingPods
from sinks.extender.shadow import Ledger, ShadowSelector
from sinks.extender.state.cluster_state import ClusterState
from sinks.extender.state.store import BucketReservationStore
from sinks.extender.trust import service as trust
from sinks.extender.trust.promises import PromiseTracker
from sinks.extender.trust.promotion import PromotingSelector
from sinks.extender.web import server
from sinks.extender.web.selector import Selector

if TYPE_CHECKING:
    from kube.api import Api  # takes a second to import, which a start without a cluster saves

log = logging.getLogger(__name__)

ANNOTATION = "kick.spazio.io/at"  # the cluster watch ignores this prefix
_COUNT_SECONDS = 1.0
_SWEEP_SECONDS = 60.0
_READY_SECONDS = 5.0

HELD = Gauge("spazio_extender_reservations", "reservations of pods that are not bound yet")
WAITING = Gauge("spazio_extender_waiting_pods", "rejected pods that are waiting")
LONGEST_WAIT = Gauge(
    "spazio_extender_longest_wait_seconds", "time since the first rejection of the pod that waits longest"
)
MARKETS = Gauge(
    "spazio_extender_markets", "markets with enough node-hours to know their past; 0 while none are published"
)
NODES = Gauge("spazio_extender_nodes", "nodes by age of their reports", ["state"])


class _Parts:
    """What the extender consists of beside its network, put together."""

    def __init__(self, client: Client, settings: Settings, health: Health) -> None:
        own, names = settings.extender, Names(settings.prefix)
        self._own = own
        self.cluster_state, self.waiting = ClusterState(settings), WaitingPods()
        self._store = BucketReservationStore(
            client, names, self.cluster_state.reservations, timeout_seconds=own.store_seconds
        )
        self.publisher = DecisionPublisher(client, names, health, timeout_seconds=settings.nats.request_timeout_seconds)
        self.promises = PromiseTracker(own, self.cluster_state, f"{socket.gethostname()}-{secrets.token_hex(2)}")
        self.ledger = Ledger(self.publisher.publish)
        self.followed = Followed(
            client,
            settings,
            self.cluster_state,
            self.ledger.bound,
            lambda facts: self.promises.bound(facts, now_us()),
            self.promises.hear if own.promote else None,
        )

    def selector(self, bind: Bind) -> Selector:
        """Return what answers; call it in the event loop."""
        own = self._own
        placing = own.model_copy(update={"mode": "argmax"}) if own.mode == "shadow" else own
        selector = PlacementSelector(
            placing, self.cluster_state, self._store, self.waiting, self.publisher.publish, bind
        )
        if own.mode != "shadow":
            return selector
        soon = asyncio.get_running_loop().call_soon
        shadow = ShadowSelector(own, self.cluster_state, self.ledger, bind, soon)
        return PromotingSelector(self.promises, shadow, selector, self._switched) if own.promote else shadow

    async def once_placing(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do some work once pods are placed: at once, in shadow mode once a namespace is promoted, or never."""
        if self._own.mode == "shadow":
            await self.promises.promotion.wait()
        await work()

    def _switched(self, uid: str) -> None:
        """Forget a pod that was placed before and passes now, or the other way round."""
        self.waiting.done(uid)
        self.ledger.withdraw(uid)


async def run(
    client: Client,
    settings: Settings,
    health: Health,
    api: "Api | None",
    listening: asyncio.Future[str],
    *,
    requeues: bool,
) -> None:
    """Serve until cancelled.

    Args:
        client: Connection.
        settings: All settings.
        health: Receives problems.
        api: The Kubernetes API, for annotations and binds; None: the extender does neither.
        listening: Receives the address once the extender answers.
        requeues: Whether to requeue rejected pods when room appears.
    """
    own, parts = settings.extender, _Parts(client, settings, health)
    state, waiting, promises = parts.cluster_state, parts.waiting, parts.promises
    counting = _count(state, waiting, parts.ledger, health, settings.cache.expiry_seconds)
    services = [parts.followed.run(), parts.publisher.run(), counting]
    if requeues and api is not None:
        services.append(parts.once_placing(functools.partial(_requeue, api, own, state, waiting, parts.followed.ready)))
    async with asyncio.TaskGroup() as group, AsyncExitStack() as stack:
        if api is not None:
            stack.push_async_callback(api.close)
        tasks = [group.create_task(service) for service in services]
        try:
            await _ready(parts.followed, health)
            _freeze()
            tasks.append(group.create_task(trust.run(client, settings, state, promises)))
            shortages = functools.partial(shortage.run, client, settings, health, state, waiting, promises.replica)
            tasks.append(group.create_task(parts.once_placing(shortages)))
            selector = parts.selector(functools.partial(_bind, api))
            address = await stack.enter_async_context(server.serve(own, selector, health))
            listening.set_result(address)
            log.info("extender.listening", extra={"address": address, "nodes": len(state.rows)})
            await asyncio.Event().wait()
        finally:
            for task in tasks:
                task.cancel()


def _freeze() -> None:
    """Spare the garbage collector the long-lived state, which it would scan while requests wait."""
    gc.freeze()


async def _requeue(
    api: "Api", settings: Extender, cluster_state: ClusterState, waiting: WaitingPods, ready: asyncio.Event
) -> None:
    """Annotate nodes that have room for waiting pods, once the state is loaded."""
    annotate = functools.partial(_annotate, api)
    await ready.wait()
    # The pods that an earlier process rejected are unknown, so all are requeued once.
    for node in cluster_state.nodes()[:1]:
        with contextlib.suppress(answer.Trouble):
            await annotate(node)
    await waiting.run(settings, cluster_state, annotate)


async def _annotate(api: "Api", node: str) -> None:
    notes = {ANNOTATION: datetime.now(UTC).isoformat()}
    path = f"/api/v1/nodes/{node}"
    await api.send("PATCH", path, {"metadata": {"annotations": notes}}, kind="application/merge-patch+json")


async def _ready(followed: Followed, health: Health) -> None:
    while not followed.ready.is_set():
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await followed.ready.wait()
        except TimeoutError:
            health.degrade("extender", "the state is still being loaded; requests are answered once it is complete")
    health.recover("extender")


async def _count(
    cluster_state: ClusterState, waiting: WaitingPods, ledger: Ledger, health: Health, expiry_seconds: float
) -> None:
    """Keep gauges and health current, and remove lapsed reservations, pods that no longer wait and unused rows.

    What a bucket has from before a pause counts as missing only once agents have had the time to report.
    """
    silent, began = False, time.monotonic()
    swept = began
    while True:
        await asyncio.sleep(_COUNT_SECONDS)
        now_us = time.time_ns() // 1000
        cluster_state.reservations.lapse(now_us)
        cluster_state.pods.age(now_us)
        ledger.lapse()
        if time.monotonic() >= swept + _SWEEP_SECONDS:
            swept = time.monotonic()
            cluster_state.sweep(now_us)
        waiting.forget(cluster_state)
        WAITING.set(len(waiting))
        LONGEST_WAIT.set(waiting.longest_wait(time.monotonic()))
        HELD.set(len(cluster_state.reservations))
        MARKETS.set(0 if cluster_state.market.is_stale(now_us) else len(cluster_state.market.kinds))
        counts = cluster_state.counts(now_us)
        for state, number in counts.items():
            NODES.labels(state).set(number)
        is_silent = bool(sum(counts.values())) and not counts["fresh"]
        if is_silent != silent and (silent or time.monotonic() - began > expiry_seconds):
            silent = is_silent
            if silent:
                health.degrade("telemetry", "no node reports; check agents, processors and the cache sink")
            else:
                health.recover("telemetry")


async def _bind(api: "Api | None", namespace: str, name: str, uid: str, node: str) -> str:
    if api is None:
        return "the extender has no Kubernetes API to bind with"
    return await bind_pod(api, namespace, name, uid, node)


async def bind_pod(api: "Api", namespace: str, name: str, uid: str, node: str) -> str:
    """Bind a pod to a node; returns the error, empty: none. Binding it to the same node again succeeds."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "namespace": namespace, "uid": uid},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
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
