"""Terminal output of commands: screens and tables, and the data that they show."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH = 1000  # where no terminal limits it: the longest name of a node has 253 characters


def console() -> "Console":
    """Return the console of standard output; what is no terminal is as wide as COLUMNS, as `watch` sets it, or wide."""
    from rich.console import Console

    made = Console()
    return made if made.is_terminal or os.environ.get("COLUMNS") else Console(width=_WIDTH)
