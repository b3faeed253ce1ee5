"""`spazio export` on the command line."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from schemas.settings import Settings
from sinks.period import Period
from spazio.option import with_settings
from spazio.terminal import clean

Format = Literal["parquet", "csv", "json", "html"]
_FORMATS: dict[str, Format] = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".html": "html"}


@with_settings("data", "history_dir")
def export(
    settings: Settings,
    out: Annotated[Path, typer.Argument(help="Folder for one file a table; with --query, and for html, the file.")],
    table: Annotated[
        list[str] | None, typer.Option(help="Table or view; may be given several times. Without it, all tables.")
    ] = None,
    query: Annotated[str | None, typer.Option(help="SQL whose rows are written instead of tables.")] = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="Default: by the file's name, else parquet. json has one object a line; html is the flight recorder, "
            "one page with the series of all nodes that opens without a network.",
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
    from spazio.export import recording, selection, tables

    chosen, directory = form or _FORMATS.get(out.suffix), settings.history_dir
    if fault := _fault(out, chosen, query, tables=bool(table), limited=bool(node or since or until)):
        clean.complain(fault)
        return 2
    try:
        if chosen == "html":
            period, count = recording.write(directory, out, node or (), since, until)
            lines = [f"{out}: {count} node{'' if count == 1 else 's'} {_spoken(period)}; open it in a browser"]
        elif query is not None:
            lines = [f"{out}: {tables.write_query(directory, out, chosen or 'parquet', query)} rows"]
        else:
            period, written = tables.write(directory, out, chosen or "parquet", table or (), node or (), since, until)
            lines = [f"{path}: {count} rows" for path, count in written.items()]
            lines.append(_spoken(period) if lines else f"there are no rows {_spoken(period)}")
    except (selection.Unselectable, Unanswerable, OSError, duckdb.Error) as error:
        clean.complain(error)
        return 1
    except KeyboardInterrupt:
        clean.complain(f"interrupted; {out} has no part of a file")
        return 130  # of a shell: 128 and the number of SIGINT
    print(clean.lines("\n".join(lines)))
    return 0


def _fault(out: Path, form: Format | None, query: str | None, *, tables: bool, limited: bool) -> str | None:
    """Return what options do not go together; None: they do."""
    if form == "html":
        return "the flight recorder chooses what it shows; leave out --table and --query" if tables or query else None
    if query is not None:
        limit = "--query has its own conditions; leave out --table, --node, --from and --to"
        return limit if tables or limited else None
    if out.suffix in _FORMATS:
        return f'{out} is named like a file; tables go into a folder, and --query "FROM samples" into a file'
    return None


def _spoken(period: Period) -> str:
    from spazio.export import selection

    return f"from {selection.text(period.from_us)} to {selection.text(period.to_us)}"
