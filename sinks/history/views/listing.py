"""The files of a table as rows, for views that choose between tables by the hours that these have."""

from pathlib import Path

from sinks.history import layout

_NAME = "/date=([0-9-]+)/hour=([0-9]+)/([^/-]+)-([0-9]+)-([0-9]+)[.]parquet$"
_PARTS = "['date', 'hour', 'created', 'begins', 'ends']"


def pattern(directory: Path, table: str) -> str:
    """Return the pattern of a table's files as a literal of SQL."""
    return layout.quoted(f"{layout.literal(directory)}/{table}/*/*/*.parquet")


def files(directory: Path, table: str) -> str:
    """Return a query of a table's files: `date` and `hour` of the folder, and the parts of the name.

    The sequences are texts of equally many digits, since the numbers may be larger than those of SQL.
    """
    parts = f"SELECT regexp_extract(file, '{_NAME}', {_PARTS}) AS part FROM glob({pattern(directory, table)})"  # noqa: S608
    return (
        "SELECT TRY_CAST(part.date AS DATE) AS date, TRY_CAST(part.hour AS INTEGER) AS hour, "  # noqa: S608 # quoted path
        f"part.created AS created, part.begins AS begins, part.ends AS ends FROM ({parts}) WHERE part.date <> ''"
    )


def choice(directory: Path, source: str, rolled: str) -> str:
    """Return two tables for `WITH`: the hours that come from a roll-up, `closed`, and those that do not, `open`.

    Args:
        directory: Folder of the history.
        source: A table. Its hours are open where a file of it has no roll-up, and each roll-up is of rows that it has.
        rolled: Table of its roll-ups, named as the files that they are made of, or for ranges that contain these.
    """
    return f"""
made AS ({files(directory, rolled)}), stored AS ({files(directory, source)}),
open AS (
    {lacking("stored", "made")} EXCEPT {lacking("made", "stored")}
), closed AS (SELECT date, hour FROM made EXCEPT SELECT date, hour FROM open)"""  # noqa: S608 # quoted paths


def lacking(part: str, whole: str) -> str:
    """Return the query of the hours in which `part` has a file whose messages are in no file of `whole`.

    Args:
        part: Table of files, as of `files`.
        whole: Another one.
    """
    return f"""SELECT DISTINCT date, hour FROM {part} WHERE NOT EXISTS (
        FROM {whole} WHERE {whole}.date = {part}.date AND {whole}.hour = {part}.hour
            AND {whole}.created = {part}.created AND {whole}.begins <= {part}.begins AND {whole}.ends >= {part}.ends
    )"""  # noqa: S608 # names of our own


def hours(directory: Path, table: str) -> str:
    """Return a query of `date` and `hour` of the folders in which a table has files."""
    return f"SELECT DISTINCT date, hour FROM ({files(directory, table)})"  # noqa: S608 # quoted path


def newest_hours(recorded: str) -> str:
    """Return the query of the two newest hours that have begun, and of the two newest that have not, if there are any.

    A clock that is ahead makes hours of the future; in a replay that has run ahead of the clock, these are the newest.

    Args:
        recorded: Query of `date` and `hour`.
    """
    future = "epoch_us(date + to_hours(hour)) > epoch_us(now())"
    return (
        f"SELECT date, hour FROM ({recorded}) "  # noqa: S608 # names of our own, and quoted paths
        f"QUALIFY row_number() OVER (PARTITION BY {future} ORDER BY date DESC, hour DESC) <= 2"
    )


def recent(directory: Path) -> str:
    """Return the statement that creates `recent_hours`: `newest_hours` of those of which any table has a file.

    A query that joins it opens the files of these hours alone, at any time of asking.
    """
    return f"CREATE VIEW recent_hours AS {newest_hours(hours(directory, '*'))}"
