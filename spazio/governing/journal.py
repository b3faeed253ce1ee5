"""The values that control files had before the governor changed them, on disk.

Each change is noted before it is made, so a governor that is killed leaves a file from which the next start restores
everything. The file need not reach the disk: a crash of the kernel takes the cgroups with it, and a journal of another
boot is void. Only what the governor wrote is restored: a value that somebody else has set since is left alone.
"""

import json
import logging
import os
from pathlib import Path
from typing import NamedTuple, Self

from bus.access import file_lock, private_file
from spazio.governing import control

log = logging.getLogger(__name__)


class Entry(NamedTuple):
    """One control file.

    Attributes:
        old: Its content before.
        ours: What the governor writes; None: the kernel changes it with another file, so it is restored in any case.
        before: What the governor had written before that, which it still is if the write was not made.
    """

    old: str
    ours: str | None
    before: str | None

    def is_ours(self, current: str) -> bool:
        """Return whether the current content is the governor's."""
        return self.ours is None or current in (self.ours, self.before)


class Busy(RuntimeError):
    """Another governor has the journal."""


class Journal:
    """Entries by path below the mount of the cgroup trees.

    Attributes:
        entries: What is to be restored.
    """

    def __init__(self, file: Path, boot: str) -> None:
        """Open the journal for this process alone, with what an earlier one has left.

        Args:
            file: Where it is; its folder is made if it is missing.
            boot: Identifier of this boot of the kernel.

        Raises:
            Busy: Another process has it.
            OSError: It cannot be opened.
        """
        self._file, self._boot = file, boot
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(file.with_name(f"{file.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            file_lock.take(self._lock)
        except file_lock.Held as error:
            os.close(self._lock)
            raise Busy(f"{file}: another governor runs on this node; two would fight over limits") from error
        self.entries = _load(file, boot)
        self._saved = dict(self.entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def save(self) -> None:
        """Write the entries, if they have changed.

        Raises:
            OSError: It cannot be written.
        """
        if self.entries == self._saved:
            return
        if self.entries:
            private_file.replace(self._file, json.dumps({"boot": self._boot, "entries": self.entries}))
        else:
            self._file.unlink(missing_ok=True)
        self._saved = dict(self.entries)


def _load(file: Path, boot: str) -> dict[str, Entry]:
    try:
        content = json.loads(file.read_text())
        entries = {str(path): Entry(*map(_text, values)) for path, values in content["entries"].items()}  # type: ignore[arg-type] # checked below
        before = content["boot"]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        log.error("journal.unreadable", extra={"file": str(file), "reason": repr(error)})  # noqa: TRY400 # no trace is needed
        return {}
    controls = {path: entry for path, entry in entries.items() if _is_control(path) and isinstance(entry.old, str)}
    return controls if before == boot else {}


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{value!r} is no content of a file")
    return value


def _is_control(path: str) -> bool:
    parts = Path(path).parts
    return ".." not in parts and not Path(path).is_absolute() and parts[-1] in control.NAMES
