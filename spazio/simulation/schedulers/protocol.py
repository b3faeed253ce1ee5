"""What a scheduler is to the simulation."""

from collections.abc import Sequence
from typing import Protocol

from schemas.messages.facts import PodFacts
from spazio.simulation.cluster import Shown
from spazio.simulation.telemetry import Telemetry


class Scheduler(Protocol):
    """Chooses nodes for pods, from what it would know in a real cluster."""

    async def place(self, pod: int, nodes: Sequence[str], now: float) -> int | None:
        """Return the index of a pod's node among those that are alive; None: it has to wait."""

    def hear(self, facts: PodFacts) -> None:
        """Take what the API says of a pod."""

    def observe(self, now: float, ticks: Sequence[Shown], messages: Sequence[Telemetry]) -> None:
        """Take the telemetry of one second that has ended."""

    def leave(self, node: str) -> None:
        """Take what the API says of a node that died."""
