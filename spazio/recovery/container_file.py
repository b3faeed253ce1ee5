"""Recovers the containers of a node from a file, for an agent whose credential may publish and read nothing.

The file has the last event of every container that lives, as far as the stream has stored the events. It is replaced
atomically, soon after an event and once a minute. If it is damaged, of another node or too old, the agent announces
its containers again, as one that runs for the first time.
"""

import asyncio
import contextlib
import json
import logging
import time
from pathlib import Path
from typing import Any, Protocol

from bus.access import private_file
from producers.containers import follow
from producers.containers.merge import MOST
from producers.containers.published import LastEvent, Memory
from schemas import codec
from schemas.boot import cut
from schemas.messages.telemetry import ContainerEvent

log = logging.getLogger(__name__)

_LARGEST_BYTES = 32 << 20
_SOON_SECONDS = 0.05  # a burst of events costs one write
_AT_LEAST_SECONDS = 60.0
_PATIENCE_SECONDS = 60.0
_ALIVE = ("created", "started")


class Queue(Protocol):
    """Where events wait until the stream has stored them."""

    async def flush(self, timeout_seconds: float) -> bool:
        """Wait until all events are stored; False: the time ran out."""


class ContainerFile:
    """The file of one node's agent.

    Args:
        path: The file.
        node: Name of the node.
        boot: Id of the current boot of its kernel.
        max_age_seconds: Age up to which the file counts: as long as the stream would have kept the events.
    """

    def __init__(self, path: Path, *, node: str, boot: str, max_age_seconds: float) -> None:
        self._path, self._node, self._boot, self._max_age = path, node, boot, max_age_seconds
        self._events: dict[str, ContainerEvent] = {}
        self._changed = asyncio.Event()
        self._failing = False

    async def load(self) -> Memory:
        """Return the containers of an earlier run, and go on with them; empty if the file cannot be used."""
        try:
            events = await asyncio.to_thread(self._read)
        except FileNotFoundError:
            return Memory()
        except (OSError, ValueError, LookupError, TypeError) as error:
            log.warning("containers.file_ignored", extra={"file": str(self._path), "reason": str(error)})
            return Memory()
        # What was noted since this run began is newer.
        self._events = {event.container: event for event in events} | self._events
        own = cut(self._boot)
        return Memory(
            {event.container: LastEvent(follow.happening(event), rebooted=cut(event.boot) != own) for event in events}
        )

    def note(self, event: ContainerEvent) -> None:
        """Take an event that is about to be published."""
        if event.event in _ALIVE:
            self._events[event.container] = event
            if len(self._events) > MOST:
                self._events.pop(next(iter(self._events)))
        else:
            self._events.pop(event.container, None)
        self._changed.set()

    async def keep(self, queue: Queue) -> None:
        """Write the file whenever events are stored, until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_AT_LEAST_SECONDS):
                    await self._changed.wait()
            await asyncio.sleep(_SOON_SECONDS)
            self._changed.clear()
            events = list(self._events.values())
            if await queue.flush(_PATIENCE_SECONDS):
                await asyncio.to_thread(self._write, events)
            else:
                self._changed.set()

    async def finish(self, queue: Queue) -> None:
        """Write the file once more, if all events are stored."""
        if await queue.flush(0):
            self._write(list(self._events.values()))

    def _write(self, events: list[ContainerEvent]) -> None:
        """Replace the file; a folder that cannot be written is only logged."""
        content = {
            "v": 1,
            "node": self._node,
            "at_us": time.time_ns() // 1000,
            "events": [json.loads(codec.encode(event)) for event in events],
        }
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            private_file.replace(self._path, json.dumps(content))
            self._failing = False
        except OSError as error:
            if not self._failing:
                log.warning("containers.file_write_failed", extra={"file": str(self._path), "reason": str(error)})
            self._failing = True

    def _read(self) -> list[ContainerEvent]:
        """Return the events in the file.

        Raises:
            OSError: It cannot be read.
            ValueError: It cannot be used; also LookupError and TypeError.
        """
        if (size := self._path.stat().st_size) > _LARGEST_BYTES:
            raise ValueError(f"has {size} bytes, more than the {_LARGEST_BYTES} that an agent writes")
        content: dict[str, Any] = json.loads(self._path.read_bytes())
        if content["v"] != 1 or content["node"] != self._node:
            raise ValueError(f"is version {content['v']} of node {content['node']}")
        age_seconds = time.time() - content["at_us"] / 1e6
        if not -self._max_age <= age_seconds <= self._max_age:
            raise ValueError(f"is {age_seconds:.0f} s old, and events are kept for {self._max_age:.0f} s")
        return [codec.decode(ContainerEvent, json.dumps(each).encode()) for each in content["events"][:MOST]]
