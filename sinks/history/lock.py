"""An exclusive lock on the folder of a history: two writers would store every row twice."""

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.settings import SettingsError

FILE = ".lock"


class Held(SettingsError):
    """Another process writes history into the folder."""


@contextmanager
def exclusive(directory: Path) -> Iterator[None]:
    """Hold the folder for this process alone. The kernel releases the lock when the process ends, however it ends.

    Raises:
        Held: Another process writes history into the folder.
        OSError: The folder is not writable.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / FILE).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise Held(
                [
                    f"history dir: {holder} writes history into {directory} already; "
                    "stop it, or choose another folder with --history-dir"
                ]
            ) from error
        file.truncate(0)
        file.write(f"process {os.getpid()} on host {socket.gethostname()}")
        file.flush()
        yield
