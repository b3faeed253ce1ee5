"""`spazio export` on the command line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from schemas.settings import Settings
from spazio import INTERRUPTED, count
from spazio.option import with_settings
from spazio.terminal import clean

Format = Literal["parquet", "csv", "json", "html"]
_FORMATS: dict[str, Format] = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".html": "html"}


@with_settings("data", "history_dir")
def export(
    settings: Settings,
    out: Annotated[
        Path, typer.Argument(readable=False, help="Folder for one file a table; with --query, and for html, the file.")
    ],
    table: Annotated[
        list[str] | None, typer.Option(help="Table or view; may be given several times. Without it, all tables.")
    ] = None,
    query: Annotated[str | None, typer.Option(help="SQL whose rows are written instead of tables.")] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="Default: by the file's name, and parquet for a folder. json has one object a line; html is the "
            "flight recorder, one page with the series of all nodes that opens without a network.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--from", help="First time: 2026-11-23T10:00Z, or 15m before the newest row, as html has it."),
    ] = None,
    until: Annotated[str | None, typer.Option("--to", help="Time before which rows end, written as --from.")] = None,
    node: Annotated[list[str] | None, typer.Option(help="Node; may be given several times. Without it, all.")] = None,
) -> int:
    """Write tables of the history, the rows of a query, or a flight recorder, into files."""
    import duckdb

    from sinks.dashboard.history import Unanswerable
    from spazio.export import fault
    from spazio.export.selection import Unselectable

    chosen = form or _FORMATS.get(out.suffix)
    if clash := _fault(out, chosen, query, tables=bool(table), limited=bool(node or since or until)):
        clean.complain(clash)
        return 2
    try:
        lines = _written(settings.history_dir, out, chosen, query, table or (), node or (), since, until)
    except (Unselectable, Unanswerable, OSError, duckdb.Error) as error:
        shown = fault.reason(error, settings.history_dir)
        clean.complain(fault.without_statement(shown) if query is None else shown, out)
        return 1
    except KeyboardInterrupt:
        clean.complain(f"interrupted; {out} has no part of a file")
        return INTERRUPTED
    clean.tell("\n".join(lines))
    return 0


def _written(
    directory: Path,
    out: Path,
    form: Format | None,
    query: str | None,
    names: Sequence[str],
    nodes: Sequence[str],
    since: str | None,
    until: str | None,
) -> list[str]:
    """Write files, warn of what has no rows, and return what to print."""
    from spazio.export import recording, selection, tables

    if form == "html":
        period, number = recording.write(directory, out, nodes, since, until)
        return [f"{out}: {count.of(number, 'node')} {selection.spoken(period)}; open it in a browser"]
    if query is not None:
        return [f"{out}: {count.of(tables.write_query(directory, out, form or 'parquet', query), 'row')}"]
    exported = tables.write(directory, out, form or "parquet", names, nodes, since, until)
    for sentence in exported.missing:
        clean.complain(f"warning: {sentence}")
    return [
        *(f"{path}: {count.of(rows, 'row')}" for path, rows in exported.written.items()),
        selection.spoken(exported.within),
    ]


def _fault(out: Path, form: Format | None, query: str | None, *, tables: bool, limited: bool) -> str | None:
    """Return what options do not go together; None: they do."""
    if form == "html":
        return "the flight recorder chooses what it shows; leave out --table and --query" if tables or query else None
    if query is not None:
        if tables or limited:
            return "--query has its own conditions; leave out --table, --node, --from and --to"
        endings = ", ".join(_FORMATS)
        return None if form else f"{out} ends with none of {endings}; name the file so, or give --format parquet"
    if out.suffix in _FORMATS:
        return f'{out} is named like a file; tables go into a folder, and --query "FROM samples" into a file'
    return None
