"""Mid-tier resources on nodes: what production pods will not use, for pods that ask for it by name.

Capacity and allocatable of two extended resources, in whole millicores and bytes, are applied to the status of each
node, under the names that Koordinator gives them unless told otherwise. When nothing new is predicted for too long
they go to 0, so that nothing more is placed on them, and stay there: a node that lacks a resource altogether looks
to the scheduler like one that never had it, and to people like one that nobody looks after. Switched off, they are
taken away. Where somebody else writes them, Koordinator's manager or a person, they are left to them.
"""

import functools
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from kube import answer, apply
from kube.api import Api
from schemas.sections.placement import Output
from sinks.kubernetes import change
from sinks.kubernetes.change import Rule
from sinks.kubernetes.latest import Said
from sinks.kubernetes.node import SIDES, Node
from sinks.kubernetes.objects import Objects
from sinks.kubernetes.waits import Waits
from sinks.kubernetes.writer import Write, Writer

_KUBELET = "kubelet"  # it sets extended resources to 0 when a machine has started anew
_ROUNDING = 1e-6  # 1.001 cores have, as floats, a little less than 1001 millicores
_HANDS_OFF = (
    "; {} writes them too: give ours other names with SPAZIO_OUTPUT_MID_CPU and _MEMORY, or switch ours off "
    "with SPAZIO_OUTPUT_MID=false"
)

Amounts = tuple[int, int]


class Mid:
    """Keeps the Mid-tier resources of all nodes."""

    def __init__(self, api: Api, nodes: Objects[Node], said: Said, output: Output, clock: Callable[[], float]) -> None:
        """Describe what to keep.

        Args:
            api: Where to write.
            nodes: What is there.
            said: What is predicted.
            output: Settings.
            clock: Seconds since the epoch.
        """
        self._api, self._nodes, self._said, self._output, self._clock = api, nodes, said, output, clock
        self._began = clock()  # what it has not heard of may have been said then
        self._names = (output.mid_cpu, output.mid_memory)
        self._waits = Waits()

    async def look(self, writer: Writer) -> bool:
        """Write what is due; False: not yet, since not everything is known that is there.

        Args:
            writer: Carries it out.
        """
        if not self._nodes.whole or not self._said.current.is_set():
            return False

        def done(key: str, thing: Mapping[str, Any]) -> None:
            self._nodes.put(thing)
            self._waits.written(key, self._clock())

        await writer.write([write async for write in self._due(self._clock())], done=done, gone=self._nodes.drop)
        return True

    async def _due(self, now: float) -> AsyncIterator[Write]:
        rule = Rule(self._output.diff, self._output.force_seconds)
        async for key, node, waited in self._waits.oldest_first(dict(self._nodes), now):
            lent = self._lent(key, node, now)
            if not self._output.mid:
                due = node.ours
            else:
                due = lent is not None and change.due(node.amounts, self._leaves(lent), waited, rule)
            if due:
                yield Write(key, functools.partial(self._apply, key, node))

    def _lent(self, key: str, node: Node, now: float) -> Amounts | None:
        """Return the millicores and bytes that a node should have; None: nothing is to be said of it."""
        prediction = self._said.predictions.get(key)
        if not self._output.mid or (prediction is None and not node.ours):
            return None
        at = self._began if prediction is None else prediction.at_us / 1e6
        # As far in the future it is of a wrong clock, and would be believed for as long.
        if abs(now - at) > self._output.stale_seconds:
            return 0, 0
        if prediction is None:
            return None
        lent = prediction.mid.get(prediction.formula)
        return (0, 0) if lent is None else (int(lent.cpu * 1000 + _ROUNDING), int(lent.memory))

    def _leaves(self, lent: Amounts) -> dict[str, float]:
        return {f"{side}.{name}": amount for side in SIDES for name, amount in zip(self._names, lent, strict=True)}

    async def _apply(self, key: str, node: Node) -> dict[str, Any]:
        """Write what a node should have at this moment: thousands of writes take minutes."""
        lent = self._lent(key, node, self._clock())
        thing: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": key}}
        if lent is not None:
            amounts = dict(zip(self._names, map(str, lent), strict=True))
            thing["status"] = dict.fromkeys(SIDES, amounts)
        path = f"/api/v1/nodes/{key}/status"
        try:
            return await apply.apply(self._api, path, thing, force=False)
        except answer.Conflict as conflict:
            if set(conflict.managers) == {_KUBELET}:
                return await apply.apply(self._api, path, thing, force=True)
            if conflict.managers:
                conflict.reason += _HANDS_OFF.format(", ".join(conflict.managers))
            raise
