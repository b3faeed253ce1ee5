"""The newest availability of all nodes, for all open pages, read only while somebody looks.

A page first gets all nodes, then once a second those that have changed, and the names of those that have expired. Rows
are lists, and names of classes are numbers of a table, since thousands of nodes would repeat them.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import msgspec

from bus import errors, subscription
from bus.accounting.ledger import LEDGER
from bus.client import Client
from bus.reading.reader import Reader
from bus.subscription import Subscription
from schemas.messages.estimate import Availability
from schemas.messages.facts import NodeFacts
from schemas.settings import Settings
from schemas.subject import Names
from sinks import cluster
from sinks.dashboard.feed import newest

log = logging.getLogger(__name__)

COLUMNS = (
    *("node", "at", "available", "lower", "upper", "pods", "binding", "churn", "signal", "prior"),
    *("cpuUsed", "cpuSaturation", "memory", "freeCpu", "freeMemory", "classes"),
)
_TURN_SECONDS = 1.0
_TOTALS_SECONDS = 2.0
_TOTALS = 100  # of classes, those that come first
_IDLE_SECONDS = 20.0  # after the last page has closed, in case it was only reloaded
_SPARE_CLASSES = 64  # which come and go, as those of jobs, until all are counted again
_encode = msgspec.json.encode


class ClusterFeed:
    """Events for pages, each encoded once."""

    def __init__(self, client: Client, settings: Settings) -> None:
        """Describe the feed; it reads while there are pages."""
        self._client, self._names = client, Names(settings.prefix)
        self._expiry = settings.cache.expiry_seconds
        self._rows: dict[str, Availability] = {}
        self._facts: dict[str, NodeFacts] = {}
        self._classes: dict[str, int] = {}
        self._most_classes = 0
        self._pages: set[asyncio.Queue[bytes]] = set()
        self._following = 0  # pages, also those that wait for the first answer
        self._reading: asyncio.Task[None] | None = None
        self._whole = asyncio.Event()

    @property
    def pages(self) -> int:
        """Number of open pages."""
        return len(self._pages)

    async def follow(self) -> AsyncIterator[bytes]:
        """Yield events for one page, until it is closed."""
        queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=20)
        self._following += 1
        try:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._read(), name="dashboard cluster")
            await self._whole.wait()
            self._pages.add(queue)
            yield self._event("nodes", self._nodes(self._rows.values(), full=True))
            yield self._event("facts", self._facts_of(self._facts))
            yield self._event("totals", self._totals())
            while event := await queue.get():
                yield event
        finally:
            self._following -= 1
            self._pages.discard(queue)

    async def _read(self) -> None:
        """Read until no page has asked for a while."""
        while True:
            try:
                await self._read_once()
            except errors.REQUEST_FAILED as error:
                log.warning("cluster_feed.broken", extra={"reason": repr(error)})
                await asyncio.sleep(_TURN_SECONDS)
            else:
                if not self._following:
                    return
            finally:
                self._whole.clear()

    async def _read_once(self) -> None:
        self._rows, self._facts = {}, {}
        availability, nodes = self._names.availability_bucket, self._names.nodes_bucket
        async with contextlib.AsyncExitStack() as stack:
            cache = await stack.enter_async_context(
                Subscription(
                    Reader(self._client, f"KV_{availability}", [f"$KV.{availability}.>"], newest=True),
                    subscription.or_deleted(subscription.of(Availability)),
                    subscription.ignore,
                    newest_only=True,
                    account=LEDGER.account("dashboard availability", f"KV_{availability}"),
                )
            )
            facts = await stack.enter_async_context(
                Subscription(
                    Reader(self._client, f"KV_{nodes}", [f"$KV.{nodes}.>"], newest=True),
                    subscription.or_deleted(subscription.of(NodeFacts)),
                    subscription.ignore,
                    newest_only=True,
                    account=LEDGER.account("dashboard nodes", f"KV_{nodes}"),
                )
            )
            await self._follow(cache, facts)

    async def _follow(self, cache: Subscription[Availability | None], facts: Subscription[NodeFacts | None]) -> None:
        """Send changes to the pages; return when there has been none for a while."""
        idle_since, totals_due = time.monotonic(), 0.0
        while True:
            began = time.monotonic()
            rows = await newest.changes(cache, 0.5 if self._whole.is_set() else 1.0)
            changed = {node: row for node, row in rows.items() if row is not None}
            new_facts = await newest.changes(facts, 0.01)
            gone = self._take(changed, new_facts)
            if not self._whole.is_set() or len(self._classes) > self._most_classes:
                # Also for pages that were open before the connection broke. Classes that no node has any more go.
                self._classes = {}
                self._send(self._event("nodes", self._nodes(self._rows.values(), full=True)))
                self._most_classes = 2 * len(self._classes) + _SPARE_CLASSES
                self._whole.set()
            elif changed:
                self._send(self._event("nodes", self._nodes(changed.values(), full=False)))
            if gone:
                self._send(self._event("gone", gone))
            if new_facts:
                self._send(self._event("facts", self._facts_of(new_facts)))
            now = time.monotonic()
            if self._pages and now >= totals_due:
                totals_due = now + _TOTALS_SECONDS
                self._send(self._event("totals", self._totals()))
            idle_since = now if self._following else idle_since
            if now - idle_since > _IDLE_SECONDS:
                return
            await asyncio.sleep(max(0.0, _TURN_SECONDS - (now - began)))

    def _take(self, changed: dict[str, Availability], new_facts: dict[str, NodeFacts | None]) -> list[str]:
        """Take changes in, and return the nodes whose last row is now too old."""
        self._rows |= changed
        for node, facts in new_facts.items():
            if facts is None:
                self._facts.pop(node, None)
            else:
                self._facts[node] = facts
        oldest = (time.time() - self._expiry) * 1e6
        gone = [node for node, row in self._rows.items() if row.at_us < oldest]
        for node in gone:
            del self._rows[node]
        return gone

    def _send(self, event: bytes) -> None:
        for queue in list(self._pages):
            try:
                queue.put_nowait(event)
            except asyncio.QueueFull:  # a page that does not read: it gets all nodes when it connects again
                self._pages.discard(queue)
                queue.get_nowait()
                queue.put_nowait(b"")

    @staticmethod
    def _event(name: str, content: object) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (name.encode(), _encode(content))

    def _nodes(self, rows: Iterable[Availability], *, full: bool) -> dict[str, Any]:
        content = [self._row(row) for row in rows]
        return {"full": full, "columns": COLUMNS, "classes": list(self._classes), "rows": content}

    def _row(self, row: Availability) -> list[Any]:
        free, usage = row.free or {}, row.usage
        classes = [
            [self._classes.setdefault(name, len(self._classes)), room.available, room.lower, room.pods, room.binding]
            for name, room in (row.classes or {}).items()
        ]
        return [
            *(row.node, row.at_us, row.available, row.lower, row.upper, row.pods, row.binding, row.churn),
            *(row.signal, row.prior, row.cpu_used, usage.get("cpu"), usage.get("memory")),
            *(free.get("cpu"), free.get("memory"), classes),
        ]

    @staticmethod
    def _facts_of(facts: Mapping[str, NodeFacts | None]) -> dict[str, Any]:
        """Return what pages show of facts; null: Kubernetes has deleted the node."""
        return {
            node: fact
            and {
                "zone": fact.zone or "",
                "type": fact.type or "",
                "labels": fact.labels,
                "ready": fact.ready,
                "unschedulable": fact.unschedulable,
            }
            for node, fact in facts.items()
        }

    def _totals(self) -> dict[str, Any]:
        rows = list(self._rows.values())
        totals = cluster.totals(rows)
        classes = [total._asdict() | {"binding": total.binding} for total in totals[:_TOTALS]]
        return {
            "nodes": len(rows),
            "pods": sum(row.pods for row in rows),
            "available": sum(int(row.available) for row in rows),
            "lower": sum(int(row.lower) for row in rows),
            "classes": classes,
            "classCount": len(totals),
            "stranded": [each._asdict() for each in cluster.stranded(rows)],
        }
