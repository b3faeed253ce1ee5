"""`spazio export` on the command line."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from schemas.settings import Settings
from spazio.option import with_settings
from spazio.terminal import clean


@with_settings("data", "history_dir")
def export(
    settings: Settings,
    out: Annotated[Path, typer.Argument(help="Folder for one file a table; with --query the file.")],
    table: Annotated[
        list[str] | None, typer.Option(help="Table or view; may be given several times. Without it, all tables.")
    ] = None,
    query: Annotated[str | None, typer.Option(help="SQL whose rows are written instead of tables.")] = None,
    form: Annotated[
        Literal["parquet", "csv", "json"] | None,
        typer.Option("--format", help="Default: by the file's name, else parquet. json has one object a line."),
    ] = None,
    since: Annotated[
        str | None, typer.Option("--from", help="First time: 2026-11-23T10:00Z, or 15m before the newest row.")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", help="Time before which rows end, written as --from.")] = None,
    node: Annotated[list[str] | None, typer.Option(help="Node; may be given several times. Without it, all.")] = None,
) -> int:
    """Write tables of the history, or the rows of a query, into Parquet, CSV or JSON files."""
    import duckdb

    from spazio.export import file, selection, tables

    if query is not None and (table or node or since or until):
        clean.complain("--query has its own conditions; leave out --table, --node, --from and --to")
        return 2
    suffix = out.suffix.removeprefix(".")
    named: file.Form | None = next((each for each in file.FORMS if each == suffix), None)
    try:
        if query is not None:
            count = tables.write_query(settings.history_dir, out, form or named or "parquet", query)
            print(clean.text(f"{out}: {count} rows"))
            return 0
        within, written = tables.write(
            settings.history_dir, out, form or "parquet", table or (), node or (), since, until
        )
    except (selection.Unselectable, OSError, duckdb.Error) as error:
        clean.complain(error)
        return 1
    for path, count in written.items():
        print(clean.text(f"{path}: {count} rows"))
    print(
        f"from {selection.text(within.from_us)} to {selection.text(within.to_us)}"
        if written
        else "no rows in this range"
    )
    return 0
