"""The thread in which a process folds, so that its event loop keeps leases, answers and reads meanwhile.

There is one thread for all tasks: folds compute, so that more threads would only take turns. A task waits for its turn
behind the folds that were handed in before.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Worker:
    """Runs functions one after another in a thread."""

    def __init__(self, stuck_seconds: float = 600.0, stuck: Callable[[], None] = lambda: None) -> None:
        """Prepare the thread; it starts with the first function.

        Args:
            stuck_seconds: Longest time that one function may take.
            stuck: Called if one takes longer; a thread cannot be ended, only its process.
        """
        self._stuck_seconds, self._stuck = stuck_seconds, stuck
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fold")
        self._waiting, self._busy, self._since = 0, 0.0, 0.0

    def busy_seconds(self) -> float:
        """Return for how long there has been a function that ran or waited."""
        return self._busy + (time.monotonic() - self._since if self._waiting else 0.0)

    def _count(self, change: int) -> None:
        now = time.monotonic()
        if self._waiting:
            self._busy += now - self._since
        self._waiting, self._since = self._waiting + change, now

    async def run(
        self, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Run a function in the thread and return its result.

        A caller that is cancelled waits until the function has ended, since it may change what the caller cleans up.
        """
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = []
        turn = _Turn()

        def begin() -> Result:
            if not turn.take():
                raise _Dropped
            loop.call_soon_threadsafe(watch)
            return function(*args, **kwargs)

        def watch() -> None:
            if not future.done():
                timers.append(loop.call_later(self._stuck_seconds, self._stuck))

        self._count(1)
        future = loop.run_in_executor(self._pool, begin)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(_read)
            while not turn.take() and not future.done():  # it runs
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            raise
        finally:
            self._count(-1)
            for timer in timers:
                timer.cancel()


class _Dropped(Exception):
    """The caller was cancelled before its function began."""


class _Turn:
    """Belongs to who takes it first: the thread, which then runs the function, or the caller, which then drops it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def take(self) -> bool:
        return self._lock.acquire(blocking=False)


def _read(future: asyncio.Future[Any]) -> None:
    """Read the exception of a function whose caller is gone, so that it is not reported as forgotten."""
    if not future.cancelled():
        future.exception()
