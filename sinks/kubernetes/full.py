"""Autoscaler truth: taints nodes without room while pods wait, and annotates nodes whose pods would fit nowhere else.

An autoscaler simulates the scheduler by requests and taints. Where a node has no measured room, the simulation finds
room by requests and buys nothing. The taint makes both agree; it evicts nothing. What lacks room the extenders say
(`Shortage`); a summary that is too old says nothing, so marks go when the extenders are gone.

Only the holder of a Lease writes. The sink removes all marks when it stops. Those of a dead process are removed by the
next holder, unless they are still due. If no node is added while nodes have the taint, the autoscaler cannot help, and
the taints pause: a node that is full for large pods may have room for small ones, which only come to it untainted.
"""

import asyncio
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import Gauge

from bus.health import Health
from kube import answer
from kube.api import Api
from schemas.sections.output import Output
from sinks.kubernetes import mark
from sinks.kubernetes.latest import Latest
from sinks.kubernetes.node import Node
from sinks.kubernetes.objects import Objects, key_of
from sinks.kubernetes.steady import Steady
from sinks.kubernetes.writing.lease import Lease
from sinks.kubernetes.writing.writer import Write, Writer

log = logging.getLogger(__name__)

_PART = "kubernetes lease"
_RACES = 5
_AT_ONCE = 16
_ROUNDING = 1e-9
_MERGE = "application/merge-patch+json"
_RIGHTS = "; for spazio's own: kubectl apply -f deploy/kubernetes/optional/rbac-full.yaml"

FULL = Gauge("spazio_kube_full_nodes", "nodes with the taint spazio.io/full")
KEPT = Gauge("spazio_kube_kept_nodes", "nodes with annotations against their removal")


class Full:
    """Keeps the marks of all nodes."""

    def __init__(
        self,
        api: Api,
        nodes: Objects[Node],
        latest: Latest,
        output: Output,
        health: Health,
        clock: Callable[[], float],
    ) -> None:
        """Create the part; it writes nothing before `refresh`.

        Args:
            api: The API server.
            nodes: The nodes.
            latest: The newest messages.
            output: Settings.
            health: Receives problems with the Lease.
            clock: Seconds since the epoch.
        """
        self._api, self._nodes, self._latest, self._output = api, nodes, latest, output
        self._health, self._clock = health, clock
        self._lease = Lease(api, output.full_lease, output.full_lease_seconds)
        self._full, self._keep, self._pause = Steady(), Steady(), Pause(output.full_hold_seconds)
        self._sent: set[str] = set()  # nodes whose patch has no answer yet

    async def refresh(self, writer: Writer) -> bool:
        """Write due changes; returns False while the state is not loaded completely.

        Args:
            writer: Sends the writes.
        """
        if not self._nodes.whole or not self._latest.current.is_set():
            return False
        nodes = dict(self._nodes)
        needed = self._output.full or self._output.keep or any(node.marks.any for node in nodes.values())
        if needed and await self._holds():
            await writer.write(self._due(nodes), done=self._done, gone=self._gone)
        FULL.set(sum(node.marks.full_at is not None for _, node in self._nodes))
        KEPT.set(sum(node.marks.keep_at is not None for _, node in self._nodes))
        return True

    async def end(self) -> None:
        """Remove all marks and give the Lease up, if this process holds it."""
        if not self._lease.held:
            return
        limit = asyncio.Semaphore(_AT_ONCE)
        marked = {key for key, node in self._nodes if node.marks.any} | self._sent
        try:
            results: list[BaseException | None] = await asyncio.gather(
                *(self._clear(key, limit) for key in marked), return_exceptions=True
            )
            await self._lease.release()
        except answer.Trouble as trouble:
            results = [trouble]
        for result in results:
            if isinstance(result, BaseException):
                log.warning(
                    "full.removal_failed",
                    extra={"reason": str(result), "remedy": "the next start of the sink removes what is left"},
                )

    async def _holds(self) -> bool:
        try:
            holds = await self._lease.hold()
        except answer.Trouble as trouble:
            self._health.degrade(_PART, trouble.reason + _RIGHTS * isinstance(trouble, answer.Forbidden))
            return False
        self._health.recover(_PART)
        return holds

    def _due(self, nodes: Mapping[str, Node]) -> Iterator[Write]:
        full, keep = self._wanted(nodes, self._clock())
        for key, node in nodes.items():
            if (key in full, key in keep) != (node.marks.full_at is not None, node.marks.keep_at is not None):
                yield Write(key, functools.partial(self._apply, key, node, full=key in full, keep=key in keep))

    def _wanted(self, nodes: Mapping[str, Node], now: float) -> tuple[frozenset[str], frozenset[str]]:
        """Return the nodes that should have the taint, and those that should have the annotations."""
        shortages = self._latest.valid_shortages(now)
        lacking = {name for each in shortages for name in each.full} if self._output.full else set()
        stranded = {name for each in shortages for name in each.stranded} if self._output.keep else set()
        full_at = {key: node.marks.full_at for key, node in nodes.items()}
        keep_at = {key: node.marks.keep_at for key, node in nodes.items()}
        full = self._full.follow(lacking, full_at, now, self._output.full_seconds)
        keep = self._keep.follow(stranded, keep_at, now, self._output.full_seconds)
        if self._pause.active({node.uid for node in nodes.values()}, full_at.values(), now):
            full = frozenset()
        most = int(self._output.full_share * len(nodes) + _ROUNDING)
        # Those that have the taint keep it, so that a limit does not make it wander.
        first = sorted(full, key=lambda key: (full_at[key] is None, key))
        return frozenset(first[:most]), keep

    async def _apply(self, key: str, node: Node, *, full: bool, keep: bool) -> Mapping[str, Any]:
        """Write the marks of a node, unless it has changed since it was read."""
        if not self._lease.held:
            raise answer.Conflict("the Lease has expired")
        body = mark.patch(node.version, node.marks, full=full, keep=keep, now=self._clock())
        self._sent.add(key)
        try:
            changed = await self._api.send("PATCH", _path(key), body, kind=_MERGE)
        except answer.Forbidden as trouble:
            trouble.reason += _RIGHTS
            raise
        log.debug("full.marked", extra={"node": key, "full": full, "keep": keep})
        return changed

    def _done(self, key: str, thing: Mapping[str, Any]) -> None:
        self._nodes.put(thing)
        self._sent.discard(key)

    def _gone(self, key: str) -> None:
        self._nodes.drop(key)
        self._sent.discard(key)

    async def _clear(self, key: str, limit: asyncio.Semaphore) -> None:
        """Remove a node's marks, whatever it is like now."""
        async with limit:
            node = None if key in self._sent else self._nodes.get(key)
            for _ in range(_RACES):
                if node is None:
                    node = await self._current(key)
                if node is None:
                    return
                body = mark.patch(node.version, node.marks, full=False, keep=False, now=self._clock())
                if body is None:
                    return
                try:
                    await self._api.send("PATCH", _path(key), body, kind=_MERGE)
                except answer.Missing:
                    return
                except answer.Conflict:
                    node = None
                else:
                    return
            raise answer.Conflict(f"{key} changes all the time")

    async def _current(self, key: str) -> Node | None:
        """Return a node as it is now: the sink has the right to list nodes, but not to get one."""
        listed = await self._api.send("GET", "/api/v1/nodes", query={"fieldSelector": f"metadata.name={key}"})
        for thing in listed.get("items") or ():
            if key_of(thing) == key:
                self._nodes.put(thing)
        return self._nodes.get(key) if listed.get("items") else None


class Pause:
    """Decides when the taints pause: no node was added for long while nodes had one."""

    def __init__(self, seconds: float) -> None:
        """Create one that lasts `seconds`, and begins after as long."""
        self._seconds = seconds
        self._known: frozenset[str] | None = None
        self._added_at = self._until = 0.0

    def active(self, uids: set[str], full_at: Iterable[float | None], now: float) -> bool:
        """Tell whether no node may have the taint.

        Args:
            uids: All nodes.
            full_at: Times of the taints; None: a node has none.
            now: Seconds since the epoch.
        """
        if self._known is None or uids - self._known:
            self._added_at = now
        self._known = frozenset(uids)
        if now < self._until:
            return True
        first = min((at for at in full_at if at is not None), default=None)
        if first is None or now - max(first, self._added_at) < self._seconds:
            return False
        self._until = now + self._seconds
        log.warning(
            "full.paused",
            extra={"seconds": self._seconds, "remedy": "see why the autoscaler adds no node: its log, and its limit"},
        )
        return True


def _path(key: str) -> str:
    return f"/api/v1/nodes/{key}"
