"""Ends a process whose event loop stands still, from a thread of its own.

`up` and Kubernetes ask `/healthz` and restart what does not answer; compose and systemd only see that a process has
ended. A service that ends by itself is restarted by all of them.
"""

import asyncio
import faulthandler
import logging
import os
import sys
import threading
import time
from collections.abc import Callable

from schemas.sections.bus import Http
from spazio.service.liveness.patience import Patience

log = logging.getLogger(__name__)

_REPORT_SECONDS = 2.0


def end(reason: str = "the event loop stands still") -> None:
    """End this process with status 1, after the stacks of all threads; a blocked standard error does not delay it."""
    reporting = threading.Thread(target=_tell, args=(reason,), daemon=True)
    reporting.start()
    reporting.join(_REPORT_SECONDS)
    os._exit(1)


def _tell(reason: str) -> None:
    log.critical("service.stuck", extra={"reason": f"{reason}; the stacks of all threads follow"})
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)


class LoopGuard:
    """Watches the event loop until it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, settings: Http, end: Callable[[], None] = end) -> None:
        """Start watching.

        Args:
            loop: The event loop.
            settings: How long it may stand still.
            end: Called once if it stands still for longer.
        """
        self._loop, self._end = loop, end
        self._patience = Patience(settings.hung_seconds, settings.busy_seconds)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop guard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._closed.set()

    def _watch(self) -> None:
        period = self._patience.check_seconds
        seen, used = time.monotonic(), time.process_time()
        while not self._closed.wait(period):
            turned = threading.Event()
            try:
                self._loop.call_soon_threadsafe(turned.set)
            except RuntimeError:  # the loop is closed
                return
            answers = turned.wait(period)
            now, cpu = time.monotonic(), time.process_time()
            if self._patience.lost(now - seen, cpu - used, answers=answers) and not self._closed.is_set():
                self._end()
                return
            seen, used = now, cpu
