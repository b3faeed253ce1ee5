"""How files of the kernel are read ten times a second.

Opening costs three times as much as reading, so a descriptor is kept and read again from its start, which makes the
kernel write the file afresh. After a sleep all caches are cold, so each layer of Python per file costs more than the
read itself: as long as nothing is odd, all files of a tick are read in one list comprehension.

The kernel hands out a file of many records a page at a time and stops before the record that no longer fits, so a
read may be short without being the end. No record of the files read here is as long as 1024 bytes, hence what is
shorter than a page less that is whole.
"""

import os
import resource
from collections.abc import Sequence
from pathlib import Path

Content = bytes | OSError  # what a file holds, or why that is not known

_MANY = 1 << 20
_PAGE = 4096  # of most kernels; larger ones hand out more at a time
_SURELY_WHOLE = _PAGE - 1024


def allow_descriptors() -> int:
    """Raise the number of files that this process may keep open as far as it may; return the number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # the kernel's own bound may be lower
            return soft
    return hard if hard != resource.RLIM_INFINITY else _MANY


class KernelFile:
    """A file of the kernel, read again and again through one kept descriptor; one that went stale is opened again."""

    __slots__ = ("_path", "_size", "descriptor")

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._size = _PAGE
        self.descriptor = -1

    def read(self) -> bytes:
        """Return the whole file as it is now, however long it is.

        Raises:
            OSError: It cannot be opened or read.
        """
        try:
            content = os.pread(self.descriptor, self._size, 0)
        except OSError:  # nothing open yet, or gone: opening it says which
            content = b""
        if not content:
            self.close()
            self.descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            content = os.pread(self.descriptor, self._size, 0)
        return content if len(content) < _SURELY_WHOLE else self._rest(content)

    def _rest(self, content: bytes) -> bytes:
        parts, offset = [content], len(content)
        while part := os.pread(self.descriptor, self._size, offset):
            parts.append(part)
            offset += len(part)
        while self._size <= offset:
            self._size *= 2
        return b"".join(parts)

    def close(self) -> None:
        """Give the descriptor back; the next read opens the file again."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        self.close()


class Files:
    """The files that are read together at each tick.

    Args:
        paths: What to read; contents come in this order.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files = [KernelFile(path) for path in paths]
        self._plain: list[int] = []  # descriptors of files that one short read gives whole
        self._odd: dict[int, Content] = {}  # what all others gave when last sorted, by their place; ascending
        self._sorted = False

    def read(self) -> Sequence[Content]:
        """Return what each file holds now; what cannot be read, or is empty, stays so until `retry`."""
        if not self._sorted:
            return self._sort()
        try:
            plain = [os.pread(descriptor, _PAGE, 0) for descriptor in self._plain]
        except OSError:
            return self._sort()
        if not all(plain) or max(map(len, plain), default=0) >= _SURELY_WHOLE:
            return self._sort()
        if not self._odd:
            return plain
        contents: list[Content] = [*plain]
        for place, last in self._odd.items():
            contents.insert(place, last if _is_lost(last) else _attempt(self._files[place]))
        return contents

    def retry(self) -> None:
        """Have the next read try again what could not be read; to be called once a second, since opening is dear."""
        self._sorted = self._sorted and not self._odd

    def _sort(self) -> list[Content]:
        """Read file by file, and tell the plain ones by how that went."""
        contents = [_attempt(file) for file in self._files]
        self._odd = {
            place: content
            for place, content in enumerate(contents)
            if isinstance(content, OSError) or not 0 < len(content) < _SURELY_WHOLE
        }
        self._plain = [file.descriptor for place, file in enumerate(self._files) if place not in self._odd]
        self._sorted = True
        return contents


def _attempt(file: KernelFile) -> Content:
    try:
        return file.read()
    except OSError as error:
        return error.with_traceback(None)


def _is_lost(content: Content) -> bool:
    return isinstance(content, OSError) or not content
