"""One direction of a connection: bytes in order, late or held up if a test wants so, lost when it is cut."""

import asyncio
from collections import deque
from collections.abc import Callable


class Pipe:
    """Carries bytes to a receiver."""

    def __init__(self, receive: Callable[[bytes], None], delay_seconds: Callable[[], float]) -> None:
        self._receive, self._delay_seconds = receive, delay_seconds
        self._held: deque[tuple[float, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.stalled = self.cut = False

    def send(self, data: bytes) -> None:
        """Put bytes in; without a delay they arrive at once."""
        if self.cut:
            return
        delay = self._delay_seconds()
        if not delay and not self._held and not self.stalled:
            self._receive(data)
            return
        self._held.append((asyncio.get_running_loop().time() + delay, data))
        self._plan()

    def resume(self) -> None:
        """Let flow what was held up."""
        self.stalled = False
        self._plan()

    def close(self) -> None:
        """Lose what has not arrived."""
        self.cut = True
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _plan(self) -> None:
        if self._timer is None and self._held and not self.stalled:
            self._timer = asyncio.get_running_loop().call_at(self._held[0][0], self._flow)

    def _flow(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        while self._held and not self.stalled and self._held[0][0] <= now:
            self._receive(self._held.popleft()[1])
        self._plan()
