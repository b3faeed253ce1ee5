"""A lock on an open file; the kernel releases it when the process ends, however it ends."""

import fcntl
import os
from typing import IO, Any


class Held(OSError):
    """Another process has the lock."""

    def __init__(self, holder: str) -> None:
        """Say who; `holder` is what it wrote into the file, empty: nothing."""
        super().__init__(f"locked by {holder or 'another process'}")
        self.holder = holder


def take(file: IO[Any] | int, *, wait: bool = False, shared: bool = False) -> None:
    """Lock a file for this process alone, until it is closed.

    Args:
        file: The open file, or its descriptor, also that of a folder.
        wait: Whether to wait until it is free.
        shared: Whether other processes may share it too; what was locked for this process alone is then shared.

    Raises:
        Held: Another process has it, and `wait` is not set.
        OSError: The file system has no locks.
    """
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError as error:
        raise Held(_holder(file)) from error


def sign(file: IO[str], holder: str) -> None:
    """Write into a locked file who has it.

    Raises:
        OSError: The disk is full.
    """
    descriptor = file.fileno()  # a buffer that a full disk does not take would fail again when the file is closed
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, holder.encode(), 0)


def _holder(file: IO[Any] | int) -> str:
    if isinstance(file, int) or not file.readable():
        return ""
    file.seek(0)
    content = file.read(1000)
    return (content if isinstance(content, str) else content.decode(errors="replace")).strip()
