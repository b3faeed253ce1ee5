"""Processes for runs that take minutes: one to a CPU, and they end with the process that waits for them."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager


@contextmanager
def workers(processes: int | None = None) -> Iterator[ProcessPoolExecutor]:
    """Hold a pool of processes for the length of a block; an exception that ends the block ends their runs.

    Args:
        processes: How many; default: as many as there are CPUs.
    """
    with ProcessPoolExecutor(processes, initializer=_begin) as pool:
        # polars has calls go on after Ctrl-C that wait for a lock, as this process does for its workers.
        signal.siginterrupt(signal.SIGINT, True)
        try:
            yield pool
        except BaseException:
            for worker in multiprocessing.active_children():
                worker.terminate()  # else the pool waits for the runs that have begun
            raise


def _begin() -> None:
    """Leave Ctrl-C, which a terminal sends to workers as well, to the process that a worker works for; end with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
