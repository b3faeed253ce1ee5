"""The right of one process to change nodes and autoscalers: one Lease for all that do, and its problems.

What a killed process leaves is taken over by the next holder: another process once the Lease has expired, or
the next start.
"""

import asyncio
from collections.abc import Callable

from bus.health import Health
from kube import answer
from sinks.kubernetes.writing.lease import Lease

_PART = "kubernetes lease"
_REMEDY = {
    answer.Forbidden: "; for spazio's own: kubectl apply -f deploy/kubernetes/rbac.yaml",
    answer.Missing: "; create its namespace, or name another Lease with SPAZIO_OUTPUT_FULL_LEASE",
}


class Holder:
    """Holds the Lease while a part needs it."""

    def __init__(self, lease: Lease, health: Health) -> None:
        """Create one that holds nothing yet; `health` receives problems."""
        self._lease, self._health = lease, health
        self._acquiring = asyncio.Lock()
        self._reported: type[answer.Trouble] | None = None

    @property
    def held(self) -> bool:
        """Whether this process may write at this moment."""
        return self._lease.held

    async def acquire(self) -> bool:
        """Acquire or renew the Lease when that is due; returns whether this process holds it."""
        async with self._acquiring:
            try:
                await self._lease.hold()
            except answer.Trouble as trouble:
                self._report(trouble)
            else:
                self._reported = None
                self._health.recover(_PART)
            return self.held

    def _report(self, trouble: answer.Trouble) -> None:
        """Report a problem; a server that comes back is away in several ways, and only the first is reported."""
        if self._reported is None or (trouble.lasting and self._reported is not type(trouble)):
            self._reported = type(trouble)
            self._health.degrade(_PART, trouble.reason + _REMEDY.get(type(trouble), ""))

    async def keep(self, needed: Callable[[], bool], pause_seconds: float) -> None:
        """Hold the Lease until cancelled.

        Args:
            needed: Tells whether a part writes.
            pause_seconds: Time between two looks.
        """
        while True:
            if needed():
                await self.acquire()
            await asyncio.sleep(pause_seconds)

    async def release(self) -> None:
        """Give the Lease up, so that the next process need not wait.

        Raises:
            Trouble: The API server does not answer or refuses; the Lease then expires.
        """
        async with self._acquiring:
            await self._lease.release()
