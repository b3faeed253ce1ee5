"""What a container source is, and what it may say.

A source follows one thing that knows of containers: a directory tree, a socket. It says what it sees happen as
observations, and now and then lists everything that it sees at one moment, so that whatever its events missed is
mended. It knows nothing of other sources; `merge` makes one account of all of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from schemas.workload import Kind

Event = Literal["created", "started", "exited", "deleted"]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a container is; None where the source does not know.

    Attributes:
        container: The runtime's full id.
        container_name: Name within its pod, or the runtime's.
        image: As it was asked for.
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
        """Return this identity with what only the other knows."""
        missing = {
            field: getattr(other, field)
            for field in self.__dataclass_fields__
            if getattr(self, field) is None and getattr(other, field) is not None
        }
        return replace(self, **missing) if missing else self


@dataclass(frozen=True, slots=True)
class Observation:
    """One thing that a source saw happen to a container.

    Attributes:
        source: Name of the source.
        event: What happened.
        identity: To whom.
        boottime_us: When, as CLOCK_BOOTTIME; the source's own time of the event if it tells one, else of its reading.
    """

    source: str
    event: Event
    identity: Identity
    boottime_us: int


class Sink(Protocol):
    """Takes what sources say; both are called from the event loop's thread and return at once."""

    def observe(self, observation: Observation) -> None:
        """Take one observation."""

    def present(self, source: str, listed: Mapping[str, tuple[Identity, bool]], boottime_us: int) -> None:
        """Take a whole listing: every container that the source sees at that time, and whether it is running.

        A container that this source has reported alive and does not list any more has exited and is deleted. A
        source that cannot tell whether a container runs says True.
        """


class Source(Protocol):
    """One way to learn of containers."""

    @property
    def name(self) -> str:
        """Name in settings, events, logs and counters."""

    async def run(self, sink: Sink) -> None:
        """Follow until cancelled; list everything at the start, and again as often as settings say.

        Raises:
            OSError: What it follows is gone or closed to us; it is run again after a pause. ValueError: What came is
                not what it should be; likewise.
        """
