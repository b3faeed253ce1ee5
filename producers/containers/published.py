"""Container events that were published before: those of an earlier process of the agent.

The stream keeps events for a limited time, so containers that started long ago have none. The last block of usage
says how many containers ran in each pod. If those of the pod that have events are fewer, the others started before
the stream's oldest event, and were announced. That cannot be so in a pod whose pause container has an event, since it
starts first, nor for a container in whose place another one of the pod, of the same name, has an event.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from producers.containers import lifetime
from producers.containers.sources.source import Event, Identity


class Happening(NamedTuple):
    """A container event, to be published once.

    Attributes:
        event: Its kind.
        identity: Identity of the container, as far as it is known.
        sources: Sources that reported this container in this life, in order of their first report.
        boottime_us: Time since boot; never before an earlier event of the same life.
    """

    event: Event
    identity: Identity
    sources: tuple[str, ...]
    boottime_us: int


@dataclass(frozen=True, slots=True)
class LastEvent:
    """The last published event of a container before this merge began."""

    happening: Happening
    rebooted: bool = False  # whether the node rebooted since

    @property
    def alive(self) -> bool:
        """Whether the container was alive after it."""
        return self.happening.event in ("created", "started")


@dataclass(frozen=True, slots=True)
class Memory:
    """Events that were published before.

    Attributes:
        events: The last event of each container, as far back as the stream keeps them.
        pods: Pods in the node's last block of usage, each with the number of its containers that ran, without the
            pause container; they may have started earlier.
        boottime_us: Time of that block.
    """

    events: Mapping[str, LastEvent] = field(default_factory=dict)
    pods: Mapping[str, int] = field(default_factory=dict)
    boottime_us: int = 0


class Before:
    """Stages of containers by earlier published events of this boot.

    Args:
        memory: The events.

    Attributes:
        events: The last event of each container since the node booted.
    """

    def __init__(self, memory: Memory) -> None:
        self.events: Mapping[str, LastEvent] = {id_: last for id_, last in memory.events.items() if not last.rebooted}
        self._silent = Counter(memory.pods)  # containers of a pod that ran and have no event
        self._young: set[str] = set()  # pods that started since the stream's oldest event
        self._names: defaultdict[str, set[str | None]] = defaultdict(set)
        for last in self.events.values():
            identity = last.happening.identity
            if identity.pod is None:
                continue
            self._names[identity.pod].add(identity.container_name)
            if identity.sandbox:
                self._young.add(identity.pod)
            elif _ran(last.happening, memory.boottime_us):
                self._silent[identity.pod] -= 1

    def stage(self, identity: Identity) -> int:
        """Return the stage of a container; 0: it was not announced, or it had ended."""
        last = self.events.get(identity.container)
        if last is not None:
            return lifetime.STAGES[last.happening.event] if last.alive else 0
        return lifetime.STARTED if self._is_older(identity) else 0

    def _is_older(self, identity: Identity) -> bool:
        """Tell whether a container without events started before the stream's oldest event."""
        pod = identity.pod
        if pod is None or pod not in self._silent or pod in self._young:
            return False
        if identity.sandbox:
            return True
        name = identity.container_name
        return self._silent[pod] > 0 and (name is None or name not in self._names[pod])


def _ran(last: Happening, at_us: int) -> bool:
    """Tell whether a container ran at a time, by its last event."""
    return last.event == "started" if last.boottime_us <= at_us else last.event not in ("created", "started")
