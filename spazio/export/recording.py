"""Writes the flight recorder: a period of the history as one HTML file."""

from collections.abc import Sequence
from pathlib import Path

from sinks.dashboard import recorder
from sinks.history import interruption, view
from sinks.period import Period
from spazio.export import file, selection
from spazio.service.composition.dashboard import Folder

_SINCE = "15m"
_SECONDS = 300.0  # of one query


def write(
    directory: Path, path: Path, nodes: Sequence[str], since: str | None, until: str | None
) -> tuple[Period, int]:
    """Write the file and return its period and the number of its nodes.

    Args:
        directory: Folder of the history.
        path: File, which is replaced once the new one is complete.
        nodes: Nodes; none: all.
        since: Begin, see `selection.parse`; None: 15 minutes before the newest row.
        until: End.

    Raises:
        Unselectable: A text is no time.
        Unanswerable: No node was measured in this time.
        FileNotFoundError: There is no history.
        OSError: The file cannot be written.
    """
    with view.connect(directory) as connection, interruption.interruptible(connection):
        period = selection.parse(since or _SINCE, until, selection.newest(directory, connection))
    content = recorder.read(Folder(directory), period, nodes, seconds=_SECONDS)
    path.parent.mkdir(parents=True, exist_ok=True)
    with file.replacing(path) as hidden:
        hidden.write_bytes(recorder.page(content))
    return period, len(content["nodes"])
