"""How fast to write: as fast as what waits needs, up to a limit, and slower while the API server is overloaded.

A small cluster is written at an unnoticeable rate, and a large one soon enough. If the API server refuses for its load
or does not answer, the rate halves, and it recovers by a tenth of the wanted rate each second: additive increase and
multiplicative decrease, by which many clients share a server.
"""

import asyncio

from prometheus_client import Gauge

_LEAST_PER_SECOND = 20.0
_RECOVERY_PER_SECOND = 0.1
_LEAST_SHARE = 1 / 64

RATE = Gauge("spazio_kube_write_rate", "writes to the API server per second, at most")


class Pace:
    """A rate limit, evenly spaced and shared by all parts."""

    def __init__(self, most_per_second: float, within_seconds: float) -> None:
        """Create a pace.

        Args:
            most_per_second: The limit.
            within_seconds: Time in which everything that waits should be written.
        """
        self._most, self._within = most_per_second, within_seconds
        self._needed: dict[str, float] = {}
        self._share, self._recovered, self._next = 1.0, 0.0, 0.0

    @property
    def per_second(self) -> float:
        """Writes per second at this moment."""
        return min(max(sum(self._needed.values()), _LEAST_PER_SECOND), self._most) * self._share

    def plan(self, what: str, waiting: int, within_seconds: float | None = None) -> None:
        """Store how many writes of a part wait at the start of a round.

        Args:
            what: The part.
            waiting: Its writes.
            within_seconds: Time in which they should be written; None: that of all parts.
        """
        self._needed[what] = waiting / (within_seconds or self._within)

    async def turn(self) -> None:
        """Wait for a turn."""
        now = asyncio.get_running_loop().time()
        self._share = min(1.0, self._share + _RECOVERY_PER_SECOND * (now - self._recovered))
        self._recovered = now
        RATE.set(self.per_second)
        self._next = max(self._next + 1 / self.per_second, now)
        await asyncio.sleep(self._next - now)

    def overloaded(self, pause_seconds: float | None) -> None:
        """Slow down: the API server is overloaded or does not answer.

        Args:
            pause_seconds: Pause that it asks for; None: it does not.
        """
        self._recovered = asyncio.get_running_loop().time()
        self._share = max(self._share / 2, _LEAST_SHARE)
        self._next = max(self._next, self._recovered + (pause_seconds or 0.0))
        RATE.set(self.per_second)
