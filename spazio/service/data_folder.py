"""The data folder belongs to one process at a time, and to the nats-server that it starts there.

The server inherits the lock, so the folder stays locked for as long as one writes its streams. One that is stopped or
stuck when `up` is killed outlives it; who starts next ends it first.
"""

import logging
import os
import select
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bus.access import file_lock
from schemas.settings import SettingsError

log = logging.getLogger(__name__)

_TERMINATE_SECONDS, _KILL_SECONDS = 5.0, 5.0


class Owned:
    """A data folder that this process has locked.

    Attributes:
        descriptor: Of the lock; the folder stays locked while a process has inherited it.
    """

    def __init__(self, lock: IO[str]) -> None:
        """Take the locked file."""
        self.descriptor = lock.fileno()

    def lend(self, pid: int) -> None:
        """Note the server that has inherited the descriptor, by which the next start can end it if it is left."""
        note = f"{os.getpid()}\n{pid} {_stat(pid)[1]}\n".encode()
        try:
            os.pwrite(self.descriptor, note, 0)  # at once, and in place, since the disk may be full
            os.ftruncate(self.descriptor, len(note))
        except OSError as error:
            log.warning("data_folder.unsigned", extra={"reason": str(error)})


def check(folder: Path) -> None:
    """See that no other process has the data folder, and end a server that is left; nothing is made.

    Raises:
        SettingsError: One has.
    """
    with suppress(OSError), (folder / "lock").open("r+") as lock:
        _lock(lock, folder)


@contextmanager
def own(folder: Path, min_free_bytes: int) -> Iterator[Owned]:
    """Lock the data folder for this process; a server that its last owner left is ended.

    Raises:
        SettingsError: It cannot be written, is full, or is in use.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.fdopen(os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666), "r+")
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
        yield Owned(lock)


def _lock(lock: IO[str], folder: Path) -> None:
    try:
        try:
            file_lock.take(lock)
        except file_lock.Held as error:
            if not _end_left(lock.fileno(), error.holder):
                raise
            file_lock.take(lock)
    except file_lock.Held as error:
        holder = error.holder.partition("\n")[0] or "unknown"
        raise SettingsError(
            [f"data dir: {folder} is in use by process {holder}; stop it, or choose another with --data-dir"]
        ) from error
    except _Stuck as error:
        raise SettingsError(
            [f"data dir: {folder} is in use by a nats-server that does not end, process {error}; end it"]
        ) from error
    except OSError as error:
        raise SettingsError([f"data dir: {folder} cannot be locked: {error.strerror}"]) from error


class _Stuck(Exception):
    """The process with this id does not end."""


def _end_left(lock: int, signature: str) -> bool:
    """End the server whose owner is gone; False: there is none.

    Args:
        lock: Descriptor of the lock, which another process has.
        signature: What its owner wrote into it.

    Raises:
        _Stuck: It does not end.
    """
    fields = signature.split()
    if len(fields) != 3 or not all(each.isdigit() for each in fields):
        return False  # the owner has no server yet, or is of an earlier version
    owner, pid = int(fields[0]), int(fields[1])
    try:
        server = os.pidfd_open(pid)  # the process that is examined now is the one that is ended
    except OSError:
        return False
    try:
        if _stat(pid)[1] != fields[2] or not _has_open(pid, lock) or _lives(owner, lock):
            return False
        _end(server, pid)
    except OSError:  # a process of another user
        return False
    finally:
        os.close(server)
    return True


def _end(server: int, pid: int) -> None:
    log.warning("server.left", extra={"pid": pid, "reason": "its owner was killed; it is ended"})
    for sign, seconds in ((signal.SIGTERM, _TERMINATE_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(server, sign)
            signal.pidfd_send_signal(server, signal.SIGCONT)  # one that is stopped takes no other
        if select.select([server], [], [], seconds)[0]:
            return
    raise _Stuck(pid)


def _lives(owner: int, lock: int) -> bool:
    """Tell whether the process that wrote the lock is there; its id may be that of another user's process since."""
    try:
        return _has_open(owner, lock)
    except PermissionError:
        return False


def _has_open(pid: int, file: int) -> bool:
    """Tell whether a process has an open file.

    Raises:
        OSError: It is of another user.
    """
    if _stat(pid)[0] in ("", "Z", "X"):
        return False
    own = os.fstat(file)
    with suppress(FileNotFoundError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                if os.path.samestat(each.stat(), own):
                    return True
    return False


def _stat(pid: int) -> tuple[str, str]:
    """Return the state of a process and when it started, in clock ticks; empty: it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return "", ""
    return fields[0], fields[19]
