"""`spazio backup` and `spazio restore` on the command line."""

from pathlib import Path
from typing import Annotated

import typer

from schemas.settings import Settings
from spazio.option import with_settings


@with_settings("data", "nats", "history_dir", "log")
def backup(
    settings: Settings,
    target: Annotated[
        Path, typer.Argument(readable=False, help="New file, or a folder, in which a file named by the time is made.")
    ],
) -> int:
    """Save streams, buckets, checkpoints, history and credentials in one file, while everything runs."""
    from spazio.backup import save

    return save.run(settings, target)


@with_settings("data", "nats", "history", "log")
def restore(
    settings: Settings,
    source: Annotated[
        Path, typer.Argument(readable=False, help="Backup, or a folder of backups, of which the newest is restored.")
    ],
    force: Annotated[bool, typer.Option("--force", help="Replace what is there; files are moved aside.")] = False,
) -> int:
    """Put a backup into an empty data folder or server, so that everything goes on from there."""
    from spazio.backup import restore as command

    return command.run(settings, source, force=force)
