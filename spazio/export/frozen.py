"""The files of a history as they are now, beside the history: a sink that runs merges and removes them at any time."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from sinks.history import layout, view

_ATTEMPTS = 5


class _Merged(OSError):
    """A file has rows before and behind a cursor that was read before it was merged."""


def made(directory: Path, target: Path) -> Path:
    """Return a folder with the committed files of a history, each row once; links where the file system has them.

    Args:
        directory: Folder of a history. Another folder is returned as it is.
        target: Folder to make.

    Raises:
        OSError: The files cannot be linked or copied, or are replaced again and again.
    """
    if not (directory / view.FILE).is_file():
        return directory
    for attempt in range(1, _ATTEMPTS + 1):
        shutil.rmtree(target, ignore_errors=True)
        try:
            for path in _files(directory):
                _link(path, target / path.relative_to(directory))
            break
        except (FileNotFoundError, _Merged):  # merged since the files were listed, or since the cursors were read
            if attempt == _ATTEMPTS:
                raise
    return target


def original(file: str, directory: Path, target: Path) -> str:
    """Return the file of a history that a file which `made` has made stands for; another file is returned as it is."""
    path = Path(file)
    return str(directory / path.relative_to(target)) if path.is_relative_to(target) else file


def _files(directory: Path) -> Iterator[Path]:
    """Yield the files that hold the committed rows, and those without rows that give tables their columns."""
    committed = layout.committed(directory)
    for folder in sorted({path.parent for path, _ in layout.files(directory)}):
        for files in layout.by_stream(folder).values():
            final = [each for each in files if each[1].first <= committed.get(each[1].created, each[1].first)]
            for path, name in final:
                if name.last > committed.get(name.created, name.last):
                    raise _Merged(f"{path} was merged while it was copied; run the command again")
            yield from layout.uncontained(final)
    yield from directory.glob(str(layout.stand_in(Path(), "*")))


def _link(path: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, target)
    except FileNotFoundError:
        raise
    except OSError:  # another file system, or one without links
        shutil.copyfile(path, target)
