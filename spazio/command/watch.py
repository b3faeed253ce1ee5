"""`spazio watch`: publishes facts of nodes and pods from Kubernetes.

An object is published when its facts change, once for each change, even if the API server, NATS or the watch is killed
in between. A pod that is bound moves from the subject of unbound pods to that of its node; the newest version of a pod
counts, on whatever subject. The buckets of nodes and pods are written before the stream, so that they contain all that
the stream has: late readers find there what has expired from the stream.
"""

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial

from prometheus_client import Counter, Gauge

from bus import errors
from bus.publishing import identity
from bus.publishing.bounds import Bounds
from bus.publishing.outbox import Outbox
from bus.publishing.storage_check import StorageCheck, StorageLost
from kube import api, ledger
from kube.api import Api
from kube.follow import Follower
from kube.ledger import Ledger
from kube.pod import of_file
from schemas import codec
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.settings import Settings
from schemas.subject import Names
from spazio.recovery import cluster_recovery
from spazio.recovery.cluster_recovery import Memory
from spazio.service import service
from spazio.service.service import Context

log = logging.getLogger(__name__)

_MOST_WAITING = 10_000  # then reading stops until they are published
_UNLIMITED = 1 << 62  # facts may not be dropped; the number of waiting facts is bounded before the outbox
_LINGER_SECONDS = 2.0
_PATIENCE_SECONDS = 60.0
_ENDS = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}
_NODE_ENDS, _POD_ENDS = _ENDS | {"Nats-TTL": "24h"}, _ENDS | {"Nats-TTL": "1h"}
_RECOVERY, _AGAIN_SECONDS = "recall", 1.0
_TURN = 64  # events processed before other coroutines run

OBJECTS = Gauge("spazio_watch_objects", "objects that the API server has", ["resource"])
FACTS_PUBLISHED = Counter("spazio_watch_facts_total", "facts handed to the bus, by resource", ["resource"])


def run(settings: Settings) -> int:
    """Run the service; a missing kubeconfig ends it at once.

    Raises:
        SettingsError: No API server is configured, or its settings cannot be used.
    """
    cluster = asyncio.run(api.cluster(settings.kube))
    return service.run("watch", settings, lambda context: keep(context, cluster))


async def keep(context: Context, cluster: str) -> None:
    """Publish until cancelled; begin with what the server has whenever it came back with less than it had."""
    while True:
        try:
            await Watch(context, cluster).run()
        except* StorageLost as lost:
            log.warning("watch.storage_lost", extra={"reason": str(lost.exceptions[0])})


class Watch:
    """Publishes the ledgers of nodes and pods."""

    def __init__(self, context: Context, cluster: str) -> None:
        """Start with empty ledgers.

        Args:
            context: Connection, settings and health of the service.
            cluster: What tells the cluster from others.
        """
        settings = context.settings
        self._settings, self._health = settings, context.health
        self._names, timeout = Names(settings.prefix), settings.nats.request_timeout_seconds
        self._nodes, self._pods = ledger.nodes(settings.kube.price_label), ledger.pods()
        self._memory = Memory(context.client, settings, cluster, self._nodes, self._pods)
        self._outbox = Outbox(
            context.client,
            context.health,
            limit=_UNLIMITED,
            timeout_seconds=timeout,
            kind="facts",
            sealer=identity.stored(settings.data.dir),
            bounds=Bounds(context.client, self._names, "watch", timeout_seconds=timeout),
        )
        buckets = (f"KV_{name}" for name in (self._names.nodes_bucket, self._names.pods_bucket))
        self._storage = StorageCheck(context.client, [self._names.telemetry, *buckets], timeout_seconds=timeout)
        self._outbox.guard(self._storage)
        self._life = f"{time.time_ns():x}"
        self._heard, self._room = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        """Continue where an earlier run stopped, until cancelled.

        Raises:
            StorageLost: In a group: the ledgers have what the server lost. Another watch recalls what it has.
        """
        for facts in await self._published_before():
            self._put_copy(facts)
        lost = False
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._outbox.run())
                group.create_task(self._follow(self._nodes))
                group.create_task(self._follow(self._pods))
                group.create_task(self._publish())
        except* StorageLost:
            lost = True
            raise
        finally:
            if not lost:
                await self._finish()

    async def _published_before(self) -> Sequence[NodeFacts | PodFacts]:
        """Recall what an earlier run published; again, if the server goes away meanwhile."""
        while True:
            try:
                await self._storage.begin()
                facts = await self._memory.load()
            except errors.REQUEST_FAILED as error:
                self._health.degrade(_RECOVERY, f"what was published earlier cannot be read: {error!r}")
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self._health.recover(_RECOVERY)
                return facts

    async def _follow(self, account: Ledger[NodeFacts] | Ledger[PodFacts]) -> None:
        client, turn = Api(self._settings.kube), 0
        follower = Follower(client, account.resource, self._settings.kube, partial(self._report, account.resource))
        try:
            async with aclosing(follower.news(account.version)) as news:
                async for each in news:
                    account.hear(each, time.time_ns() // 1000)
                    self._heard.set()
                    turn += 1
                    if account.waiting >= _MOST_WAITING:
                        self._room.clear()
                        await self._room.wait()
                    elif turn % _TURN == 0:
                        await asyncio.sleep(0)
        finally:
            await client.close()

    def _report(self, resource: str, trouble: str | None) -> None:
        if trouble is None:
            self._health.recover(f"kubernetes {resource}")
        else:
            self._health.degrade(f"kubernetes {resource}", trouble)

    async def _publish(self) -> None:
        """Publish changes, and write a checkpoint regularly."""
        loop, pause = asyncio.get_running_loop(), self._settings.kube.save_seconds
        saved = loop.time()
        saved_versions: tuple[int, int] | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._heard.wait()
            self._heard.clear()
            self._hand_over()
            versions = (self._nodes.version, self._pods.version)
            due = loop.time() - saved >= pause and versions != saved_versions
            snapshot = self._memory.snapshot() if due else None
            while not await self._outbox.flush(_PATIENCE_SECONDS):
                pass  # the outbox reports the problem
            if snapshot is not None and await self._outbox.check():
                await self._memory.save(snapshot)
                saved, saved_versions = loop.time(), versions

    def _hand_over(self) -> None:
        for node in self._nodes.drain():
            self._put_copy(node)
            self._put("nodefacts", node, node.uid)
        for pod in self._pods.drain():
            self._put_copy(pod)
            self._put("podfacts", pod, pod.pod)
        for account in (self._nodes, self._pods):
            OBJECTS.labels(account.resource).set(len(account))
        self._room.set()

    def _put_copy(self, facts: NodeFacts | PodFacts) -> None:
        """Store the newest facts in their bucket; the marker of a deleted pod expires."""
        pod = isinstance(facts, PodFacts)
        bucket = self._names.pods_bucket if pod else self._names.nodes_bucket
        subject = f"$KV.{bucket}.{cluster_recovery.key(facts)}"
        # Unique to this run, so that a key of an earlier run can be written again if it was removed.
        copied = f"{self._life}:{_identity('copy', facts, facts.pod if isinstance(facts, PodFacts) else facts.uid)}"
        if not facts.deleted:
            self._outbox.put(subject, codec.encode(facts), copied)
        else:
            self._outbox.put(subject, b"", copied, _POD_ENDS if pod else _NODE_ENDS)

    def _put(self, kind: str, message: NodeFacts | PodFacts, uid: str) -> None:
        FACTS_PUBLISHED.labels(kind).inc()
        self._outbox.put(self._names.node(kind, message.node), codec.encode(message), _identity(kind, message, uid))

    async def _finish(self) -> None:
        """Publish the remaining facts and write a checkpoint, if the server stores them soon."""
        self._hand_over()
        snapshot = self._memory.snapshot()
        sending = asyncio.create_task(self._outbox.run())
        if await self._outbox.flush(_LINGER_SECONDS):
            with contextlib.suppress(TimeoutError, StorageLost):
                async with asyncio.timeout(_LINGER_SECONDS / 2):
                    if await self._outbox.check():
                        await self._memory.save(snapshot)
        sending.cancel()


def _identity(kind: str, message: NodeFacts | PodFacts, uid: str) -> str:
    """Return a message id that is the same for the same state, also after a restart.

    An end has no version, which is another one where it was missed; only a static pod ends more than once.
    """
    if message.deleted and not of_file(uid):
        return f"{kind}:{uid}:deleted"
    return f"{kind}:{uid}:{message.version}:{hashlib.blake2b(ledger.core(message), digest_size=6).hexdigest()}"
