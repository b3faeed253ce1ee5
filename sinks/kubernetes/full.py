"""Autoscaler truth: taints nodes without room while pods wait, and annotates nodes whose pods would fit nowhere else.

An autoscaler simulates the scheduler by requests and taints. Where a node has no measured room, the simulation finds
room by requests and buys nothing. The taint makes both agree; it evicts nothing. What lacks room the extenders say
(`Shortage`); a summary that is too old says nothing, so marks go when the extenders are gone.

Only the holder of the Lease writes. The sink removes all marks when it stops. The next holder removes those of a dead
process, unless they are still due. If no node is added while nodes have the taint, the autoscaler cannot help, and
the taints pause: a node that is full for large pods may have room for small ones, which only come to it untainted.
"""

import functools
import logging
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import Gauge

from kube import answer
from sinks.kubernetes import mark
from sinks.kubernetes.node import Node
from sinks.kubernetes.steady import Steady
from sinks.kubernetes.writing.access import Access
from sinks.kubernetes.writing.removal import Removal
from sinks.kubernetes.writing.writer import Write, Writer

log = logging.getLogger(__name__)

_ROUNDING = 1e-9
_MERGE = "application/merge-patch+json"
_RIGHTS = "; for spazio's own: kubectl apply -f deploy/kubernetes/optional/rbac-full.yaml"

FULL = Gauge("spazio_kube_full_nodes", "nodes with the taint spazio.io/full")
KEPT = Gauge("spazio_kube_kept_nodes", "nodes with annotations against their removal")


class Full:
    """Keeps the marks of all nodes."""

    def __init__(self, access: Access) -> None:
        """Create the part; it writes nothing before `refresh`."""
        self._api, self._nodes, self._latest = access.api, access.nodes, access.latest
        self._output, self._lease, self._clock = access.output, access.lease, access.clock
        self._removal = Removal(access.api, access.nodes)
        self._full, self._keep, self._pause = Steady(), Steady(), Pause(access.output.full_hold_seconds)

    @property
    def needed(self) -> bool:
        """Whether nodes are to be marked, or marks to be removed."""
        return self._output.full or self._output.keep or any(node.marks.any for _, node in self._nodes)

    async def refresh(self, writer: Writer) -> bool:
        """Write due changes; returns False while the state is not loaded completely.

        Args:
            writer: Sends the writes.
        """
        if not self._nodes.whole or not self._latest.current.is_set():
            return False
        if self.needed and await self._lease.acquire():
            await writer.write(self._due(dict(self._nodes)), done=self._removal.done, gone=self._removal.gone)
        else:
            writer.rest()
        FULL.set(sum(node.marks.full_at is not None for _, node in self._nodes))
        KEPT.set(sum(node.marks.keep_at is not None for _, node in self._nodes))
        return True

    async def end(self) -> None:
        """Remove all marks, if this process holds the Lease."""
        if self._lease.held:
            marked = [key for key, node in self._nodes if node.marks.any]
            await self._removal.run(marked, self._remove, "full.removal_failed")

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
        self._removal.sent(key)
        try:
            changed = await self._api.send("PATCH", _path(key), body, kind=_MERGE)
        except answer.Forbidden as trouble:
            trouble.reason += _RIGHTS
            raise
        log.debug("full.marked", extra={"node": key, "full": full, "keep": keep})
        return changed

    def _remove(self, key: str, node: Node) -> Awaitable[object] | None:
        body = mark.patch(node.version, node.marks, full=False, keep=False, now=self._clock())
        return None if body is None else self._api.send("PATCH", _path(key), body, kind=_MERGE)


class Pause:
    """Decides when the taints pause: no node was added for long while nodes had one."""

    def __init__(self, seconds: float) -> None:
        """Create one that lasts `seconds`, and begins after as long."""
        self._seconds = seconds
        self._uids: frozenset[str] | None = None
        self._added_at = self._until = 0.0

    def active(self, uids: set[str], full_at: Iterable[float | None], now: float) -> bool:
        """Tell whether no node may have the taint.

        Args:
            uids: All nodes.
            full_at: Times of the taints; None: a node has none.
            now: Seconds since the epoch.
        """
        if self._uids is None or uids - self._uids:
            self._added_at = now
        self._uids = frozenset(uids)
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
