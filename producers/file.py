"""Read files of the kernel ten times a second.

Opening costs three times as much as reading, so descriptors stay open and are read again from the start, for which
the kernel generates new content. After a sleep all caches are cold, so each layer of Python per file costs more than
the read itself: while no file needs special treatment, one list comprehension reads all files of a tick.

The kernel returns a file of many records a page at a time and stops before a record that no longer fits, so a short
read need not be the end of the file. Records of the files read here are shorter than 1024 bytes. Therefore content
that is more than 1024 bytes shorter than a page is complete.
"""

import os
import resource
from collections.abc import Sequence
from pathlib import Path

Content = bytes | OSError  # content of a file, or why it could not be read

_MANY = 1 << 20
_PAGE = 4096  # page size of most kernels; larger pages return more at a time
_SURELY_WHOLE = _PAGE - 1024


def allow_descriptors() -> int:
    """Raise this process's limit of open files to its maximum; return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # the kernel's own limit may be lower
            return soft
    return hard if hard != resource.RLIM_INFINITY else _MANY


class KernelFile:
    """A file of the kernel that is read repeatedly through one descriptor, and reopened when that becomes stale."""

    __slots__ = ("_path", "_size", "descriptor")

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._size = _PAGE
        self.descriptor = -1

    def read(self) -> bytes:
        """Return the current content of the whole file, of any length.

        Raises:
            OSError: It cannot be opened or read.
        """
        try:
            content = os.pread(self.descriptor, self._size, 0)
        except OSError:  # not open yet, or gone: opening it tells which
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
        """Close the descriptor; the next read opens the file again."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def __del__(self) -> None:
        self.close()


class Files:
    """The files that are read together at each tick.

    Args:
        paths: Files to read; contents are in this order.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files = [KernelFile(path) for path in paths]
        self._plain: list[int] = []  # descriptors of files that one short read returns completely
        self._odd: dict[int, Content] = {}  # last sorted content of all other files, by index in ascending order
        self._sorted = False

    def read(self) -> Sequence[Content]:
        """Return the current content of each file; one that is unreadable or empty stays so until `retry`."""
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
        for index, last in self._odd.items():
            contents.insert(index, last if _is_lost(last) else _attempt(self._files[index]))
        return contents

    def retry(self) -> None:
        """Let the next read retry unreadable files; call it once a second, since opening is expensive."""
        self._sorted = self._sorted and not self._odd

    def _sort(self) -> list[Content]:
        """Read file by file, and find out which files one short read returns completely."""
        contents = [_attempt(file) for file in self._files]
        self._odd = {
            index: content
            for index, content in enumerate(contents)
            if isinstance(content, OSError) or not 0 < len(content) < _SURELY_WHOLE
        }
        self._plain = [file.descriptor for index, file in enumerate(self._files) if index not in self._odd]
        self._sorted = True
        return contents


def _attempt(file: KernelFile) -> Content:
    try:
        return file.read()
    except OSError as error:
        return error.with_traceback(None)


def _is_lost(content: Content) -> bool:
    return isinstance(content, OSError) or not content
