"""Damaged files: one that DuckDB cannot read makes every query over its table fail, so it is set aside."""

import logging
from collections.abc import Sequence
from pathlib import Path

import duckdb
from prometheus_client import Counter

from sinks.history import layout

log = logging.getLogger(__name__)

_MEMORY = "512MB"
_CHUNK_BYTES = 1 << 20
_TOGETHER = 256  # files

DAMAGED = Counter("spazio_history_damaged_files_total", "files set aside because DuckDB cannot read them")

# Path, inode, size and time of change: a file that was read once is read again only after it has changed.
Stamp = tuple[str, int, int, int]


def inspect(directory: Path, readable: frozenset[Stamp]) -> frozenset[Stamp]:
    """Set aside files without a readable footer, which most of an interrupted or lost write leaves.

    Args:
        directory: Folder of the history.
        readable: Files that an earlier call has read.

    Returns:
        Files that are readable now.

    Raises:
        OSError: A file cannot be read or renamed; the other files have been inspected.
    """
    stamps: set[Stamp] = set()
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
        whole = _readable([path for path, _ in some])
        for path, stamp in some:
            try:
                if whole or not set_aside(path, "SELECT 0 FROM read_parquet(?) LIMIT 0"):
                    stamps.add(stamp)
            except OSError as error:
                failures.append(error)
    layout.raise_first(failures)
    return frozenset(stamps)


def _readable(paths: Sequence[Path]) -> bool:
    """Tell whether all these files have a readable footer; thousands of files are not opened one by one."""
    try:
        with duckdb.connect(config={"memory_limit": _MEMORY}) as connection:
            names = [layout.literal(path) for path in paths]
            connection.execute("SELECT count(*) FROM parquet_file_metadata(?)", [names]).fetchall()
    except duckdb.Error:
        return False
    return True


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
        with duckdb.connect(config={"memory_limit": _MEMORY}) as connection:
            connection.execute(query, [layout.literal(path)]).fetchall()
    except duckdb.OutOfMemoryException as error:
        raise OSError(f"{path}: {error}") from error
    except duckdb.Error as error:
        path.rename(path.with_name(path.name + layout.DAMAGED))
        layout.sync(path.parent)
        DAMAGED.inc()
        reason = str(error).partition("\n")[0]
        log.error("history.file_set_aside", extra={"file": str(path), "reason": reason})  # noqa: TRY400 # says it all
        return True
    return False
