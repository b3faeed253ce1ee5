"""An exclusive lock on the folder of a history: two writers would store every row twice."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bus.access import file_lock
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
            file_lock.take(file)
        except file_lock.Held as error:
            holder = error.holder or "another process"
            raise Held(
                [
                    f"history dir: {holder} writes history into {directory} already; "
                    "stop it, or choose another folder with --history-dir"
                ]
            ) from error
        with suppress(OSError):  # on a full disk the lock holds without a name
            file_lock.sign(file, f"process {os.getpid()} on host {socket.gethostname()}")
        yield
