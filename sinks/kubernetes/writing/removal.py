"""Removes what a part has written to nodes, when the sink ends: also from a node whose last write has no answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from kube import answer
from kube.api import Api
from sinks.kubernetes.node import Node
from sinks.kubernetes.objects import Objects, key_of

log = logging.getLogger(__name__)

_RACES = 5
_AT_ONCE = 32

Remove = Callable[[str, Node], Awaitable[object] | None]


class Removal:
    """The writes of one part to nodes that have no answer yet, and the removal of what it wrote."""

    def __init__(self, api: Api, nodes: Objects[Node]) -> None:
        """Create one without writes; `nodes` receives answers."""
        self._api, self._nodes = api, nodes
        self._sent: set[str] = set()

    def sent(self, key: str) -> None:
        """Store that a write to a node is under way."""
        self._sent.add(key)

    def done(self, key: str, thing: Mapping[str, Any]) -> None:
        """Store the answer to a write."""
        self._nodes.put(thing)
        self._sent.discard(key)

    def gone(self, key: str) -> None:
        """Store that a node does not exist."""
        self._nodes.drop(key)
        self._sent.discard(key)

    async def run(self, keys: Iterable[str], remove: Remove, event: str) -> None:
        """Remove what was written, from the nodes as they are now, and log a failure.

        Args:
            keys: Nodes that have something of ours; those whose write has no answer are added.
            remove: Sends the write about a node at its version; None: it has nothing of ours.
            event: Name of a failure in the log.
        """
        limit = asyncio.Semaphore(_AT_ONCE)
        results = await asyncio.gather(
            *(self._remove_node(key, remove, limit) for key in {*keys, *self._sent}), return_exceptions=True
        )
        failed = [result for result in results if isinstance(result, BaseException)]
        if failed:
            remedy = "the next start of the sink removes what is left"
            log.warning(event, extra={"nodes": len(failed), "reason": str(failed[0]), "remedy": remedy})

    async def _remove_node(self, key: str, remove: Remove, limit: asyncio.Semaphore) -> None:
        async with limit:
            node = None if key in self._sent else self._nodes.get(key)
            for _ in range(_RACES):
                if node is None:
                    node = await self._current(key)
                if node is None or (removing := remove(key, node)) is None:
                    return
                try:
                    await removing
                except answer.Missing:
                    return
                except answer.Conflict as conflict:
                    if conflict.managers:
                        raise
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
