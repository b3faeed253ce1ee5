"""Writes control files, and restores them: each `apply` states all that is wanted, and what is not wanted is restored.

So `apply({})` restores everything, at the end and at the start after a crash. No value is ever raised above what it was
before.
"""

import errno
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from spazio.governing import control
from spazio.governing.journal import Entry, Journal

log = logging.getLogger(__name__)

_GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)
_STEADY = 0.02  # a quota or an amount of memory that moves by less stays


class _Write(NamedTuple):
    key: str
    text: str
    current: str
    restores: bool

    @property
    def order(self) -> tuple[int, int]:
        name = Path(self.key).name
        lowers = control.amount(name, self.text) < control.amount(name, self.current)
        return control.order(name, self.key.count("/"), lowers=lowers)


class Limiter:
    """Keeps control files as wanted.

    Args:
        root: Mount of the cgroup trees.
        journal: Keeps their former contents.
    """

    def __init__(self, root: Path, journal: Journal) -> None:
        self._root, self._journal = root, journal
        self._logged: set[str] = set()  # failures, which name no pod and no amount: both change without end

    @property
    def held(self) -> int:
        """Number of control files that are to be restored."""
        return len(self._journal.entries)

    def apply(self, wanted: Mapping[Path, str | None]) -> list[str]:
        """Make control files contain what is wanted, and restore all others that were changed.

        Args:
            wanted: Content by file; it counts where it grants less than the file's former content. None: the content
                is only kept, to be restored later.

        Returns:
            What could not be written and why, each once; empty: all was.

        Raises:
            OSError: The journal cannot be written; nothing has been changed then.
        """
        writes = [
            *self._limits({str(path.relative_to(self._root)): text for path, text in wanted.items()}),
            *self._restorations({str(path.relative_to(self._root)) for path in wanted}),
        ]
        self._journal.save()
        failures: set[str] = set()
        for write in sorted(writes, key=lambda each: each.order):
            failures |= self._make(write)
        self._journal.save()
        return sorted(failures)

    def _limits(self, wanted: Mapping[str, str | None]) -> list[_Write]:
        writes: list[_Write] = []
        for key, text in wanted.items():
            current = self._read(key)
            if current is None:
                self._journal.entries.pop(key, None)
                continue
            entry = self._journal.entries.get(key)
            if entry is None or not entry.is_ours(current):
                entry = Entry(current, current, current)
            if text is None:
                self._journal.entries[key] = Entry(entry.old, None, None)
                continue
            new = _least(Path(key).name, entry.old, text, current)
            if new != entry.old or key in self._journal.entries:
                self._journal.entries[key] = Entry(entry.old, new, current)
            if new != current or entry.ours is None:  # the end of the idle mark resets a weight
                writes.append(_Write(key, new, current, restores=False))
        return writes

    def _restorations(self, wanted: set[str]) -> list[_Write]:
        writes: list[_Write] = []
        for key, entry in list(self._journal.entries.items()):
            if key in wanted:
                continue
            current = self._read(key)
            if current is None or not entry.is_ours(current):
                if current is not None:
                    log.warning("limit.changed_by_others", extra={"file": key, "found": current, "ours": entry.ours})
                del self._journal.entries[key]
            elif current == entry.old and entry.ours is not None:
                del self._journal.entries[key]
            else:
                writes.append(_Write(key, entry.old, current, restores=True))
        return writes

    def _make(self, write: _Write) -> set[str]:
        """Write one file; returns why it could not be written."""
        file = self._root / write.key
        try:
            file.write_text(write.text)
        except OSError as error:
            if error.errno in _GONE:
                self._journal.entries.pop(write.key, None)
                return set()
            failure = f"{file.name}: {error.strerror}"
            if failure not in self._logged:
                self._logged.add(failure)
                reason = f"{file}: {write.text!r}: {error.strerror}"
                log.error("limit.write_failed", extra={"reason": reason})  # noqa: TRY400 # no trace is needed
            return {failure}
        if write.restores:
            self._journal.entries.pop(write.key, None)
        elif (written := self._read(write.key)) not in (None, write.text):  # the kernel has rounded it
            self._journal.entries[write.key] = self._journal.entries[write.key]._replace(ours=written)
        return set()

    def _read(self, key: str) -> str | None:
        """Return the content of a file; None: its cgroup is gone."""
        try:
            return (self._root / key).read_text().strip()
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise


def _least(name: str, old: str, wanted: str, current: str) -> str:
    """Return the content that grants less, or the current one where it is as good."""
    less = wanted if control.amount(name, wanted) < control.amount(name, old) else old
    if name not in (control.MAXIMUM, control.QUOTA, control.HIGH) or less == old:
        return less
    present, new = control.amount(name, current), control.amount(name, less)
    return current if abs(present - new) <= _STEADY * new else less
