"""`spazio top`: a live table of nodes."""

import asyncio
import contextlib
import json
import sys
import time

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from schemas.estimate import Availability
from schemas.settings import Settings
from spazio import live

# Length of a bar by the least width of the terminal; on a narrow one the number is all there is.
_BARS = ((130, 10), (110, 5), (0, 0))
_ONCE_SECONDS = 3.0
_REFRESH_SECONDS = 0.5


def run(settings: Settings, *, once: bool, json_output: bool) -> int:
    """Show the table until Ctrl-C, or once; returns the exit status."""
    try:
        return asyncio.run(_once(settings, json_output) if once else _follow(settings))
    except live.Unreachable as error:
        sys.stderr.write(f"spazio: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 0


async def _once(settings: Settings, json_output: bool) -> int:
    rows: list[Availability] = []
    async with live.follow(settings) as nodes:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ONCE_SECONDS):
                while not rows:
                    rows = await nodes.read(0.3)
    now = time.time()
    if json_output:
        print(json.dumps([{**row.model_dump(exclude_none=True), "age_seconds": _age(row, now)} for row in rows]))
    else:
        console = Console()
        console.print(table(rows, now, console.width))
    return 0


async def _follow(settings: Settings) -> int:
    async with live.follow(settings) as nodes:
        console = Console()
        with Live(console=console, auto_refresh=False, screen=console.is_terminal) as display:
            while True:
                rows = await nodes.read(_REFRESH_SECONDS)
                display.update(table(rows, time.time(), console.width), refresh=True)


def table(rows: list[Availability], now: float, width: int = 120) -> Table:
    """Return the table of nodes at a time in seconds since the epoch, for a terminal of so many columns."""
    bar = next(length for least, length in _BARS if width >= least)
    made = Table(
        title=f"spazio: {len(rows)} node{'' if len(rows) == 1 else 's'}",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for heading in ("node", "fits", "90 %", "binds", "cpu", "memory", "press.", "pods", "churn", "prior", "age"):
        made.add_column(heading, justify="left" if heading in ("node", "binds") else "right", no_wrap=True)
    for row in rows:
        pressure = max(row.usage.get("memory_pressure", 0.0), row.usage.get("io_pressure", 0.0))
        made.add_row(
            Text(row.node),
            Text(f"{row.available:.1f}", style="bold red" if row.available < 1 else "bold green"),
            f"{row.lower:.0f}-{row.upper:.0f}",
            Text(row.binding),
            _bar(row.usage.get("cpu"), bar),
            _bar(row.usage.get("memory"), bar),
            _bar(pressure, bar),
            f"{row.pods:.0f}",
            Text("yes", style="yellow") if row.churn else Text("no", style="dim"),
            f"{row.prior:.0%}",
            f"{_age(row, now):.1f} s",
        )
    if not rows:
        made.caption = "no node has reported in the last half minute"
    return made


def _age(row: Availability, now: float) -> float:
    return round(max(0.0, now - row.at_us / 1e6), 3)


def _bar(ratio: float | None, length: int) -> Text:
    if ratio is None:
        return Text("no data", style="dim")
    full = round(ratio * length)
    style = "red" if ratio >= 0.9 else "yellow" if ratio >= 0.7 else "green"
    return Text.assemble(("━" * full, style), ("━" * (length - full), "dim"), (f" {ratio:4.0%}", style))
