"""Why a query over the history failed, in words for a person who did not write its files."""

from pathlib import Path

import duckdb

from sinks.history import layout
from sinks.history.upkeep import damage


def reason(error: Exception, directory: Path) -> Exception | str:
    """Return an error; where a file of the history is damaged, which one, and what to do.

    Args:
        error: Error of a query.
        directory: Folder of the history.
    """
    file = damage.culprit(directory, error) if isinstance(error, duckdb.Error) else None
    if file is None:
        return error
    return (
        f"{file} is damaged, and no query over its table works: start `spazio up` or `spazio sink history`, which sets "
        f"it aside, or rename it to {file.name}{layout.DAMAGED}"
    )


def without_statement(error: Exception | str) -> Exception | str:
    """Return an error without the excerpt of a statement that the user did not write."""
    return str(error).partition("\n\nLINE ")[0] if isinstance(error, duckdb.Error) else error
