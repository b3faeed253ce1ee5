"""inotify(7): the kernel reports changes in watched directories, without polling.

The module calls the C library, so that the agent needs no package for it. It reports an overflow of the kernel's
queue as an event like any other, since the reader must then scan everything.
"""

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import NamedTuple, Self

from producers.containers.sources import turn

MODIFY = 0x0000_0002
CLOSE_WRITE = 0x0000_0008
MOVED_FROM = 0x0000_0040
MOVED_TO = 0x0000_0080
CREATE = 0x0000_0100
DELETE = 0x0000_0200
OVERFLOW = 0x0000_4000
IGNORED = 0x0000_8000  # the watch is gone: it, or the watched file, was removed
ONLYDIR = 0x0100_0000
ISDIR = 0x4000_0000

_HEADER = struct.Struct("iIII")
_READ_BYTES = 64 << 10
_LIMITS = {
    errno.ENOSPC: "no watch left; raise the sysctl fs.inotify.max_user_watches",
    errno.EMFILE: "no inotify instance left; raise the sysctl fs.inotify.max_user_instances",
}


class Event(NamedTuple):
    """One event: its watch (-1: all, the queue was full), its kind as a mask, and the name within the directory."""

    watch: int
    mask: int
    name: str


class Inotify:
    """A queue of events that does not block; a context manager that closes it.

    Raises:
        OSError: The user has too many of them; the message names the limit to raise.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC, path=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the file descriptor, readable when there are events."""
        return self._descriptor

    def add(self, path: str, mask: int) -> int:
        """Watch a path; a second watch of the same file is the same one, with the newer mask.

        Raises:
            OSError: It does not exist, is not readable, or there are too many watches.
        """
        return self._call("inotify_add_watch", self._descriptor, os.fsencode(path), mask, path=path)

    def remove(self, watch: int) -> None:
        """Remove a watch; ignored if the kernel already removed it together with its file."""
        self._libc.inotify_rm_watch(self._descriptor, watch)

    def read(self) -> list[Event]:
        """Return the pending events, oldest first."""
        try:
            return list(parse(os.read(self._descriptor, _READ_BYTES)))
        except BlockingIOError:
            return []

    def _call(self, function: str, *arguments: int | bytes, path: str | None) -> int:
        result: int = getattr(self._libc, function)(*arguments)
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, _LIMITS.get(number, os.strerror(number)), path)
        return result


def parse(data: bytes) -> Iterator[Event]:
    """Yield the events of one read.

    >>> list(parse(struct.pack("iIII4s", 1, CREATE, 0, 4, b"a")))
    [Event(watch=1, mask=256, name='a')]
    """
    offset = 0
    while offset < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, offset)
        offset += _HEADER.size
        yield Event(watch, mask, os.fsdecode(data[offset : offset + length].rstrip(b"\0")))
        offset += length


async def attend(
    queue: Inotify, take: Callable[[list[Event]], None], rescan: Callable[[], None], look_seconds: float
) -> None:
    """Call `take` with events as soon as they come, and `rescan` now and at every common turn, until cancelled.

    Raises:
        Exception: An exception of one of the two.
    """
    loop = asyncio.get_running_loop()
    failed: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        try:
            take(queue.read())
        except Exception as error:  # noqa: BLE001 - passed to the caller
            loop.remove_reader(queue)
            failed.set_exception(error)

    loop.add_reader(queue, read)
    try:
        while True:
            rescan()
            await asyncio.wait({failed}, timeout=turn.pause(loop.time(), look_seconds))
            if failed.done():
                failed.result()
    finally:
        loop.remove_reader(queue)
        if failed.done():
            failed.exception()
