"""Tells whether files have changed: certificates, keys and rules are replaced while services run."""

from collections.abc import Iterable
from pathlib import Path

Stamp = tuple[int, int, int]


def stamps(files: Iterable[Path | None]) -> list[Stamp]:
    """Return what differs of files that were written or replaced; None has no stamp."""
    return [_stamp(file) for file in files if file is not None]


def _stamp(file: Path) -> Stamp:
    try:
        status = file.stat()  # of what a link points to: Kubernetes replaces links
    except OSError:  # it is being replaced
        return 0, 0, 0
    return status.st_mtime_ns, status.st_ino, status.st_size
