"""The protocol of container sources.

A source follows one provider of container events: a directory tree or a socket. It reports events as observations,
and regularly lists all containers at one time, which corrects missed events. A source does not depend on other
sources; `merge` combines them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from schemas.workload import Kind

Event = Literal["created", "started", "exited", "deleted"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a container; None where the source does not know a field.

    Attributes:
        container: The runtime's full id.
        container_name: Name within its pod, or the runtime's.
        image: Image, as requested.
        sandbox: True for a pod's pause container.
        pod: UID of its pod.
        namespace: Namespace of its pod.
        name: Name of its pod.
        workload: Workload class.
        kind: Kind that its labels declare.
    """

    container: str
    container_name: str | None = None
    image: str | None = None
    sandbox: bool | None = None
    pod: str | None = None
    namespace: str | None = None
    name: str | None = None
    workload: str | None = None
    kind: Kind | None = None

    def joined(self, other: "Identity") -> "Identity":
        """Return this identity, completed with fields of the other one."""
        missing = {
            field: getattr(other, field)
            for field in self.__dataclass_fields__
            if getattr(self, field) is None and getattr(other, field) is not None
        }
        return replace(self, **missing) if missing else self


@dataclass(frozen=True, slots=True)
class Observation:
    """One event of a container, as a source observed it.

    Attributes:
        source: Name of the source.
        event: The event.
        identity: The container.
        boottime_us: Time as CLOCK_BOOTTIME; the runtime's time of the event if it has one, else the time of reading.
    """

    source: str
    event: Event
    identity: Identity
    boottime_us: int


class Sink(Protocol):
    """Receiver of the sources; methods are called in the event loop's thread and return at once."""

    def observe(self, observation: Observation) -> None:
        """Process one observation."""

    def present(self, source: str, listed: Mapping[str, tuple[Identity, bool]], boottime_us: int) -> None:
        """Process a complete listing: every container of the source at that time, and whether it runs.

        A container that this source reported as alive and no longer lists has exited and is deleted. A source that
        does not know whether a container runs reports True.
        """


class Source(Protocol):
    """A provider of container events."""

    @property
    def name(self) -> str:
        """Name in settings, events, logs and counters."""

    async def run(self, sink: Sink) -> None:
        """Follow until cancelled; list everything at the start, and again as often as settings say.

        Raises:
            OSError: Its data is gone or not readable; the follower restarts it after a pause.
            ValueError: Its data is malformed; likewise.
        """
