"""Time that passes only while nothing else happens: a minute of timeouts takes as long as the work in it."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")
_THREAD_SECONDS = 0.01


class _Selector(selectors.DefaultSelector):
    """Waits for files and threads for real, and for timers not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or self.threads:
            return super().select(_THREAD_SECONDS if self.threads else timeout)
        self.now += timeout
        return []


class Loop(asyncio.SelectorEventLoop):
    """An event loop with a clock of its own, which begins at 0."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        self._virtual.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: object) -> None:
        self._virtual.threads -= 1


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine in a new loop."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        return runner.run(work)
