"""What the footers of files tell: which files are damaged, and which were merged early.

A damaged file, which DuckDB cannot read, makes every query over its table fail, so it is set aside. One that was merged
while its hour still filled has a mark, so that it takes its last form although the sink was started again meanwhile.
"""

import errno
import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
from prometheus_client import Counter

from sinks.history import layout

log = logging.getLogger(__name__)

_MEMORY = "512MB"
_CHUNK_BYTES = 1 << 20
_TOGETHER = 256  # files
# What an error says that is not the file's, although opening or reading it failed.
_NO_DAMAGE = tuple(
    os.strerror(number) for number in (errno.EMFILE, errno.ENFILE, errno.EACCES, errno.EIO, errno.EAGAIN, errno.ENOMEM)
)
_NAMED = re.compile(r"'(.+\.parquet)'")

DAMAGED = Counter("spazio_history_damaged_files_total", "files set aside because DuckDB cannot read them")

# Path, inode, size and time of change: a file that was read once is read again only after it has changed.
Stamp = tuple[str, int, int, int]
EARLY = "early"  # key in a footer


class Footers(NamedTuple):
    """What footers tell.

    Attributes:
        readable: Files that have a footer.
        read: Those of them that were read now.
        early: Those of these which were merged early.
    """

    readable: frozenset[Stamp]
    read: frozenset[Path]
    early: frozenset[Path]


def inspect(directory: Path, readable: frozenset[Stamp]) -> Footers:
    """Set aside files without a readable footer, which most of an interrupted or lost write leaves.

    Args:
        directory: Folder of the history.
        readable: Files that an earlier call has read.

    Raises:
        OSError: A file cannot be read or renamed; the other files have been inspected.
    """
    stamps: set[Stamp] = set()
    early: set[Path] = set()
    failures: list[OSError] = []
    new: list[tuple[Path, Stamp]] = []
    for path, _ in layout.files(directory):
        try:
            status = path.stat()
        except OSError as error:
            failures.append(error)
            continue
        stamp = (str(path), status.st_ino, status.st_size, status.st_mtime_ns)
        if stamp in readable:
            stamps.add(stamp)
        else:
            new.append((path, stamp))
    for begin in range(0, len(new), _TOGETHER):
        some = new[begin : begin + _TOGETHER]
        marked = _early([path for path, _ in some])
        if marked is None:
            some = _sound(some, failures)
            marked = _early([path for path, _ in some])
        if marked is not None:  # otherwise another call tries again
            stamps.update(stamp for _, stamp in some)
            early |= marked
    layout.raise_first(failures)
    return Footers(frozenset(stamps), frozenset(path for path, stamp in new if stamp in stamps), frozenset(early))


def _sound(files: Sequence[tuple[Path, Stamp]], failures: list[OSError]) -> list[tuple[Path, Stamp]]:
    """Set aside files without a readable footer, and return the others without those that fail."""
    sound: list[tuple[Path, Stamp]] = []
    for path, stamp in files:
        try:
            if not set_aside(path, "SELECT 0 FROM read_parquet(?) LIMIT 0"):
                sound.append((path, stamp))
        except OSError as error:
            failures.append(error)
    return sound


def _early(paths: Sequence[Path]) -> set[Path] | None:
    """Return which of these files were merged early; None: one has no readable footer.

    Thousands of files are not opened one by one.
    """
    if not paths:
        return set()
    try:
        with duckdb.connect(config={"memory_limit": _MEMORY}) as connection:
            names = [layout.literal(path) for path in paths]
            connection.execute("SELECT count(*) FROM parquet_file_metadata(?)", [names]).fetchall()
            marked = "SELECT file_name FROM parquet_kv_metadata(?) WHERE key = ?"
            return {Path(name) for (name,) in connection.execute(marked, [names, EARLY.encode()]).fetchall()}
    except duckdb.Error:
        return None


def culprit(directory: Path, error: duckdb.Error) -> Path | None:
    """Return the file without a readable footer by which a query has failed; None: it has failed for another reason.

    Args:
        directory: Folder of the history.
        error: Error of the query. Where the footer cannot be decoded, it names no file.
    """
    files: list[Path] = []
    if isinstance(error, duckdb.InvalidInputException) and (match := _NAMED.search(str(error))):
        files = [path for path in (Path(match[1]),) if path.is_relative_to(directory.absolute())]
    elif type(error) is duckdb.Error:
        files = [path for path, _ in layout.files(directory)]
    for begin in range(0, len(files), _TOGETHER):
        some = files[begin : begin + _TOGETHER]
        if _early(some) is None:
            return next((path for path in some if path.is_file() and _early([path]) is None), None)
    return None


def _try(path: Path, query: str) -> None:
    """Execute a query over a file.

    Raises:
        OSError: The machine is at fault: its memory, or the files or threads that a process may have.
        duckdb.Error: The file cannot be read.
    """
    try:
        connection = duckdb.connect(config={"memory_limit": _MEMORY})
    except duckdb.Error as error:
        raise OSError(f"{path}: {error}") from error
    with connection:
        try:
            connection.execute(query, [layout.literal(path)]).fetchall()
        except duckdb.Error as error:
            if isinstance(error, duckdb.OutOfMemoryException) or any(cause in str(error) for cause in _NO_DAMAGE):
                raise OSError(f"{path}: {error}") from error
            raise


def set_aside(path: Path, query: str = "SELECT bit_xor(hash(file)) FROM read_parquet(?) AS file") -> bool:
    """Rename a file out of the views if a query over it fails; returns whether it did.

    Args:
        path: File of rows.
        query: Query with the file's pattern as its parameter. The default reads every value.

    Raises:
        OSError: The disk or the memory is at fault, not the file's content.
    """
    with path.open("rb") as file:
        while file.read(_CHUNK_BYTES):  # a failing disk raises here
            pass
    try:
        _try(path, query)
    except duckdb.Error as error:
        path.rename(path.with_name(path.name + layout.DAMAGED))
        layout.sync(path.parent)
        DAMAGED.inc()
        reason = str(error).partition("\n")[0]
        log.error("history.file_set_aside", extra={"file": str(path), "reason": reason})  # noqa: TRY400 # says it all
        return True
    return False
