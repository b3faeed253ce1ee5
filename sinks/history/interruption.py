"""Ends what a connection executes, at a limit of time or at Ctrl-C.

DuckDB forgets an interrupt that comes while it executes nothing: before a statement, or between two of its steps. It is
therefore repeated until the statement has ended. One call of a function on one value cannot be interrupted:
`repeat('a', 1000000000)` runs to its end.

DuckDB does not look for signals while it reads rows, and a `KeyboardInterrupt` between two of its calls could close the
connection under a statement, or leave half a file behind. So a thread notices Ctrl-C, by the socket to which the
interpreter writes the number of each signal, and `KeyboardInterrupt` is raised once the statement has ended.
"""

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator

import duckdb

_AGAIN_SECONDS = 0.05


@contextlib.contextmanager
def interruptible(connection: duckdb.DuckDBPyConnection, seconds: float | None = None) -> Iterator[None]:
    """Let a time limit, and in a command's main thread Ctrl-C, interrupt what the connection executes in this block.

    Args:
        connection: Is not closed before the block ends.
        seconds: Time from now, more than 0; None: no limit.

    Raises:
        duckdb.InterruptException: The time has passed; DuckDB raises it within the block.
        KeyboardInterrupt: Ctrl-C came; raised at the end of the block, in place of what DuckDB raised.
    """
    commanded = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if seconds is None and not commanded:
        yield
        return
    ended, ending = socket.socketpair()
    repeating = threading.Thread(target=_repeat, args=(connection, ended, seconds), name="interruption", daemon=True)
    with ended, _deferred() if commanded else contextlib.nullcontext() as stopped:
        try:
            repeating.start()
            with _written(ending) if commanded else contextlib.nullcontext():
                if stopped is not None and stopped.is_set():  # before signals were written
                    ending.send(bytes([signal.SIGINT]))
                yield
        finally:
            ending.close()
            repeating.join()


def _repeat(connection: duckdb.DuckDBPyConnection, ended: socket.socket, seconds: float | None) -> None:
    """Wait for the time or for Ctrl-C, then interrupt until the other side has closed its socket."""
    ended.settimeout(seconds)
    while True:
        try:
            number = ended.recv(1)
        except TimeoutError:
            number = bytes([signal.SIGINT])
        if not number:
            return
        if number[0] == signal.SIGINT:
            connection.interrupt()
            ended.settimeout(_AGAIN_SECONDS)


@contextlib.contextmanager
def _deferred() -> Iterator[threading.Event]:
    """Raise the `KeyboardInterrupt` of a Ctrl-C at the end of this block; within it, it sets the event."""
    stopped = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: stopped.set())
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if stopped.is_set():
            raise KeyboardInterrupt


@contextlib.contextmanager
def _written(ending: socket.socket) -> Iterator[None]:
    """Write the number of each signal to a socket."""
    ending.setblocking(False)
    before = signal.set_wakeup_fd(ending.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
