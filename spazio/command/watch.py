"""`spazio watch`: what Kubernetes knows of nodes and pods, onto the bus.

An object is published when its facts change, once for each change, whoever is killed in between: API server, NATS
or the watch itself. A pod that is bound moves from the subject of unbound pods to its node's; the newest version of
a pod counts, wherever it was published. The buckets of nodes and pods are written before the stream, so that what the
stream has is in them: they tell who comes late what the stream has forgotten.
"""

import asyncio
import contextlib
import hashlib
import time
from contextlib import aclosing
from functools import partial

from prometheus_client import Counter, Gauge

from bus.publishing.outbox import Outbox
from kube import api, ledger
from kube.api import Api
from kube.follow import Follower
from kube.ledger import Ledger
from schemas import codec
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.settings import Settings
from schemas.subject import Names
from spazio.recovery import cluster_recovery
from spazio.recovery.cluster_recovery import Memory
from spazio.service import service
from spazio.service.service import Context

_MOST_WAITING = 10_000  # then reading stops until it is said
_UNLIMITED = 1 << 62  # facts may not be dropped; what waits is bounded before it is handed over
_LINGER_SECONDS = 2.0
_PATIENCE_SECONDS = 60.0
_NODE_ENDS = {"KV-Operation": "DEL"}
_POD_ENDS = {"KV-Operation": "PURGE", "Nats-Rollup": "sub", "Nats-TTL": "1h"}
_TURN = 64  # news taken before others get a turn

OBJECTS = Gauge("spazio_watch_objects", "objects that the API server has", ["resource"])
SAID = Counter("spazio_watch_facts_total", "facts handed to the bus, by resource", ["resource"])


def run(settings: Settings) -> int:
    """Run the service; a kubeconfig that is missing ends it at once.

    Raises:
        SettingsError: No API server is known, or what is said of it cannot be used.
    """
    server = asyncio.run(api.address(settings.kube))
    return service.run("watch", settings, lambda context: Watch(context, server).run())


class Watch:
    """The accounts of nodes and pods, and their way onto the bus."""

    def __init__(self, context: Context, server: str) -> None:
        """Open empty accounts.

        Args:
            context: What a service works with.
            server: Address of the API server.
        """
        settings = context.settings
        self._settings, self._health = settings, context.health
        self._names = Names(settings.prefix)
        self._nodes, self._pods = ledger.nodes(settings.kube.price_label), ledger.pods()
        self._memory = Memory(context.client, settings, server, self._nodes, self._pods)
        self._outbox = Outbox(
            context.client,
            context.health,
            limit=_UNLIMITED,
            timeout_seconds=settings.nats.request_timeout_seconds,
            kind="facts",
        )
        self._life = f"{time.time_ns():x}"
        self._heard, self._room = asyncio.Event(), asyncio.Event()

    async def run(self) -> None:
        """Go on where an earlier life has stopped, until cancelled."""
        for facts in await self._memory.recall():
            self._put_copy(facts)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._outbox.run())
                group.create_task(self._follow(self._nodes))
                group.create_task(self._follow(self._pods))
                group.create_task(self._publish())
        finally:
            await self._finish()

    async def _follow(self, account: Ledger[NodeFacts] | Ledger[PodFacts]) -> None:
        client, turn = Api(self._settings.kube), 0
        follower = Follower(client, account.resource, self._settings.kube, partial(self._tell, account.resource))
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

    def _tell(self, resource: str, trouble: str | None) -> None:
        if trouble is None:
            self._health.recover(f"kubernetes {resource}")
        else:
            self._health.degrade(f"kubernetes {resource}", trouble)

    async def _publish(self) -> None:
        """Say what is heard; remember now and then what was said."""
        loop, pause = asyncio.get_running_loop(), self._settings.kube.save_seconds
        saved = loop.time()
        remembered: tuple[int, int] | None = None
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._heard.wait()
            self._heard.clear()
            self._hand_over()
            versions = (self._nodes.version, self._pods.version)
            due = loop.time() - saved >= pause and versions != remembered
            snapshot = self._memory.snapshot() if due else None
            while not await self._outbox.flush(_PATIENCE_SECONDS):
                pass  # the outbox says what is wrong
            if snapshot is not None:
                await self._memory.save(snapshot)
                saved, remembered = loop.time(), versions

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
        """Keep the newest facts in their bucket; what marks the end of a pod leaves it by itself."""
        pod = isinstance(facts, PodFacts)
        bucket = self._names.pods_bucket if pod else self._names.nodes_bucket
        subject = f"$KV.{bucket}.{cluster_recovery.key(facts)}"
        # Of this life, so that what an earlier one has written can be written again if somebody took it away.
        identity = f"{self._life}:{_identity('copy', facts, facts.pod if isinstance(facts, PodFacts) else facts.uid)}"
        if not facts.deleted:
            self._outbox.put(subject, codec.encode(facts), identity)
        else:
            self._outbox.put(subject, b"", identity, _POD_ENDS if pod else _NODE_ENDS)

    def _put(self, kind: str, message: NodeFacts | PodFacts, uid: str) -> None:
        SAID.labels(kind).inc()
        self._outbox.put(self._names.node(kind, message.node), codec.encode(message), _identity(kind, message, uid))

    async def _finish(self) -> None:
        """Say and remember what is left, if the server takes it soon."""
        self._hand_over()
        snapshot = self._memory.snapshot()
        sending = asyncio.create_task(self._outbox.run())
        if await self._outbox.flush(_LINGER_SECONDS):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LINGER_SECONDS / 2):
                    await self._memory.save(snapshot)
        sending.cancel()


def _identity(kind: str, message: NodeFacts | PodFacts, uid: str) -> str:
    """Return the same for the same state, also after a restart."""
    if message.deleted:
        return f"{kind}:{uid}:deleted"
    return f"{kind}:{uid}:{message.version}:{hashlib.blake2b(ledger.core(message), digest_size=6).hexdigest()}"
