"""Ends what a connection executes, at a limit of time, at Ctrl-C or at SIGTERM.

DuckDB forgets an interrupt that comes while it executes nothing: before a statement, or between two of its steps. It is
therefore repeated until the statement has ended. One call of a function on one value cannot be interrupted:
`repeat('a', 1000000000)` runs to its end.

DuckDB does not look for signals while it reads rows, and a `KeyboardInterrupt` between two of its calls could close the
connection under a statement, or leave half a file behind. So a thread notices both signals, by the socket to which the
interpreter writes the number of each, and their handlers run once the statement has ended.
"""

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator

import duckdb

_AGAIN_SECONDS = 0.05
_ENDING = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def interruptible(connection: duckdb.DuckDBPyConnection, seconds: float | None = None) -> Iterator[None]:
    """Let a time limit, and in a command's main thread both signals, end what the connection executes in this block.

    Args:
        connection: Is not closed before the block ends.
        seconds: Time from now, more than 0; None: no limit.

    Raises:
        duckdb.InterruptException: The time has passed; DuckDB raises it within the block.
        KeyboardInterrupt: Ctrl-C came; raised at the end of the block, in place of what DuckDB raised. So is what the
            program's handler of SIGTERM raises.
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
                if stopped:  # before signals were written
                    ending.send(bytes(stopped))
                yield
        finally:
            ending.close()
            repeating.join()


def _repeat(connection: duckdb.DuckDBPyConnection, ended: socket.socket, seconds: float | None) -> None:
    """Wait for the time or for a signal, then interrupt until the other side has closed its socket."""
    ended.settimeout(seconds)
    while True:
        try:
            number = ended.recv(1)
        except TimeoutError:
            number = bytes(_ENDING[:1])
        if not number:
            return
        if number[0] in _ENDING:
            connection.interrupt()
            ended.settimeout(_AGAIN_SECONDS)


@contextlib.contextmanager
def _deferred() -> Iterator[list[int]]:
    """Let the handlers of Ctrl-C and SIGTERM run at the end of this block; within it, their numbers are listed."""
    came = list[int]()
    before = {number: handler for number in _ENDING if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


@contextlib.contextmanager
def _written(ending: socket.socket) -> Iterator[None]:
    """Write the number of each signal to a socket."""
    ending.setblocking(False)
    before = signal.set_wakeup_fd(ending.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
