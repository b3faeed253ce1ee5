"""The data folder belongs to one process at a time."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bus.access import file_lock
from schemas.settings import SettingsError


def check(folder: Path) -> None:
    """See that no other process has the data folder; nothing is made.

    Raises:
        SettingsError: One has.
    """
    with suppress(OSError), (folder / "lock").open("r+") as lock:
        _lock(lock, folder)


@contextmanager
def own(folder: Path, min_free_bytes: int) -> Iterator[None]:
    """Lock the data folder for this process.

    Raises:
        SettingsError: It cannot be written, is full, or is in use.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (folder / "lock").open("a+")
    except OSError as error:
        raise SettingsError(
            [f"data dir: {folder} cannot be written: {error.strerror}; choose another with --data-dir"]
        ) from error
    with lock:
        _lock(lock, folder)
        free = shutil.disk_usage(folder).free
        if free < min_free_bytes:
            raise SettingsError(
                [
                    f"data dir: {folder} has {free >> 20} MB free, {min_free_bytes >> 20} are needed; "
                    "free some, or choose another with --data-dir"
                ]
            )
        try:
            file_lock.sign(lock, str(os.getpid()))
        except OSError as error:
            raise SettingsError([f"data dir: {folder} cannot be written: {error.strerror}"]) from error
        yield


def _lock(lock: IO[str], folder: Path) -> None:
    try:
        file_lock.take(lock)
    except file_lock.Held as error:
        holder = error.holder or "unknown"
        raise SettingsError(
            [f"data dir: {folder} is in use by process {holder}; stop it, or choose another with --data-dir"]
        ) from error
    except OSError as error:
        raise SettingsError([f"data dir: {folder} cannot be locked: {error.strerror}"]) from error
