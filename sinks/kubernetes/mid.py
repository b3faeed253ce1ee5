"""Mid-tier resources on nodes: resources that production pods will not use, for pods that request them by name.

The sink applies capacity and allocatable of two extended resources, in whole millicores and bytes, to the status of
each node; the default names are Koordinator's. If predictions are too old, the amounts become 0, so that no more pods
are placed on them, and the resources stay on the node: without them, the node would look as if the sink did not manage
it. An annotation of a node may choose another formula than the settings, and limit shares of it (`node.Strategy`). If
lending is off or the node has not opted in, the sink removes them, and it removes all when it stops. If another
manager writes them, Koordinator's or a person, the sink does not overwrite them.

Only the holder of the Lease writes. What a killed process left is taken over by the next holder. Each write names the
version of its node, so that one that was sent before the end cannot arrive after what the end has removed.
"""

import functools
from collections.abc import AsyncIterator, Awaitable, Mapping
from typing import Any

from kube import answer, apply
from sinks.kubernetes.node import SIDES, Node
from sinks.kubernetes.writing import change
from sinks.kubernetes.writing.access import Access
from sinks.kubernetes.writing.change import Rule
from sinks.kubernetes.writing.removal import Removal
from sinks.kubernetes.writing.waits import Waits
from sinks.kubernetes.writing.writer import Write, Writer

_KUBELET = "kubelet"  # it sets extended resources to 0 when a machine restarts
_ROUNDING = 1e-6  # 1.001 cores have, as floats, a little less than 1001 millicores
_HANDS_OFF = (
    "; {} writes them too: give ours other names with SPAZIO_OUTPUT_MID_CPU and _MEMORY, or switch ours off "
    "with SPAZIO_OUTPUT_MID=false"
)

Amounts = tuple[int, int]


class Mid:
    """Keeps the Mid-tier resources of all nodes."""

    def __init__(self, access: Access) -> None:
        """Create the part; it writes nothing before `refresh`."""
        self._api, self._nodes, self._latest = access.api, access.nodes, access.latest
        self._output, self._lease, self._clock = access.output, access.lease, access.clock
        self._removal = Removal(access.api, access.nodes)
        self._began = access.clock()  # stands in for the time of a missing prediction
        self._names = (access.output.mid_cpu, access.output.mid_memory)
        self._waits = Waits()

    @property
    def needed(self) -> bool:
        """Whether nodes may lend, or have what must be removed."""
        return self._output.mid or any(node.ours for _, node in self._nodes)

    async def refresh(self, writer: Writer) -> bool:
        """Write due changes; returns False while the state is not loaded completely, or another process may write.

        Args:
            writer: Sends the writes.
        """
        if not self._nodes.whole or not self._latest.current.is_set():
            return False
        if not self.needed:
            writer.rest()
            return True
        if not await self._lease.acquire():
            writer.rest()
            return False

        def done(key: str, thing: Mapping[str, Any]) -> None:
            self._removal.done(key, thing)
            self._waits.written(key, self._clock())

        await writer.write([write async for write in self._due(self._clock())], done=done, gone=self._removal.gone)
        return True

    async def end(self) -> None:
        """Remove the resources from all nodes, if this process holds the Lease."""
        if self._lease.held:
            lending = [key for key, node in self._nodes if node.ours]
            await self._removal.run(lending, self._remove, "mid.removal_failed")

    async def _due(self, now: float) -> AsyncIterator[Write]:
        rule = Rule(self._output.diff, self._output.force_seconds)
        async for key, node, waited in self._waits.oldest_first(dict(self._nodes), now):
            lent = self._lent(key, node, now)
            if not node.lends:
                due = node.ours
            else:
                due = lent is not None and change.due(node.amounts, self._leaves(lent), waited, rule)
            if due:
                yield Write(key, functools.partial(self._apply, key))

    def _lent(self, key: str, node: Node, now: float) -> Amounts | None:
        """Return the millicores and bytes that a node should have; None: leave the node as it is."""
        prediction = self._latest.prediction(key, node.created_us)
        if not node.lends or (prediction is None and not node.ours):
            return None
        at = self._began if prediction is None else prediction.at_us / 1e6
        # A prediction far in the future is from a wrong clock, and would otherwise be valid for as long.
        if abs(now - at) > self._output.stale_seconds:
            return 0, 0
        if prediction is None:
            return None
        lent = node.strategy.lent(prediction)
        return (0, 0) if lent is None else (int(lent.cpu * 1000 + _ROUNDING), int(lent.memory))

    def _leaves(self, lent: Amounts) -> dict[str, float]:
        return {f"{side}.{name}": amount for side in SIDES for name, amount in zip(self._names, lent, strict=True)}

    async def _apply(self, key: str) -> dict[str, Any]:
        """Write the amounts of this moment, because thousands of writes take minutes."""
        node = self._nodes.get(key)
        if node is None:
            raise answer.Missing(f"node {key} is deleted")
        if not self._lease.held:
            raise answer.Conflict("the Lease has expired")
        self._removal.sent(key)
        lent = self._lent(key, node, self._clock())
        try:
            return await self._send(key, node, lent, force=False)
        except answer.Conflict as conflict:
            if set(conflict.managers) == {_KUBELET}:
                return await self._send(key, node, lent, force=True)
            if conflict.managers:
                conflict.reason += _HANDS_OFF.format(", ".join(conflict.managers))
            raise

    def _remove(self, key: str, node: Node) -> Awaitable[object] | None:
        return self._send(key, node, None, force=False) if node.ours else None

    async def _send(self, key: str, node: Node, lent: Amounts | None, *, force: bool) -> dict[str, Any]:
        """Apply the amounts to a node, unless it has changed since it was read; None: remove them."""
        metadata = {"name": key, "resourceVersion": node.version}
        thing: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        if lent is not None:
            thing["status"] = {side: dict(zip(self._names, map(str, lent), strict=True)) for side in SIDES}
        return await apply.apply(self._api, f"/api/v1/nodes/{key}/status", thing, force=force)
