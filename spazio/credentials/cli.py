"""`spazio credentials`: its options."""

from pathlib import Path
from typing import Annotated

import typer

from schemas.settings import Settings
from spazio.option import with_settings


@with_settings("log")
def credentials(
    settings: Settings,
    out: Annotated[Path, typer.Option(readable=False, help="Folder to write into; it keeps what is there.")] = Path(
        "credentials"
    ),
    nodes: Annotated[
        str | None, typer.Option(metavar="FILE|N", help="File with a node name a line; or a number of simulated nodes.")
    ] = None,
    region: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Make a credential for a leaf server of the nodes in --nodes, and no others."
        ),
    ] = "",
    revoke: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Role, node or region whose credentials end; may be repeated."),
    ] = None,
    rotate: Annotated[bool, typer.Option("--rotate", help="New keys for everybody; the old ones stay valid.")] = False,
    retire: Annotated[bool, typer.Option("--retire", help="End the keys that rotations have replaced.")] = False,
) -> int:
    """Write credentials of the bus: for the server, each role and node, and as Kubernetes objects."""
    from spazio.credentials import command

    return command.run(settings.prefix, out, nodes, revoke or (), region=region, rotate=rotate, retire=retire)
