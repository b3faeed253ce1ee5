"""`spazio top`: a live table of nodes, and under it one of workload classes over the whole cluster."""

import asyncio
import contextlib
import json
import time
from typing import Any

from rich.console import Console
from rich.live import Live

from schemas.messages.estimate import Availability
from schemas.settings import Settings
from sinks import cluster
from spazio import INTERRUPTED, count, terminal
from spazio.terminal import clean, latest, partitions, table
from spazio.terminal.browser import keys, view

_ONCE_SECONDS = 10.0
_FIRST_SECONDS = 3.0  # for the first report, on a pipeline that has just started
_REFRESH_SECONDS = 0.5
_PAUSE_SECONDS = 0.1  # between reads: rows of many nodes come by the millisecond


def run(settings: Settings, *, once: bool, json_output: bool, classes: bool = False, parts: bool = False) -> int:
    """Show the table until Ctrl-C, or once; return the exit status."""
    try:
        if parts:
            shown = partitions.once(settings, json_output=json_output) if once else partitions.follow(settings)
            return asyncio.run(shown)
        return asyncio.run(_once(settings, json_output, classes) if once else _follow(settings))
    except latest.Unreachable as error:
        clean.complain(error)
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED if once else 0


async def _once(settings: Settings, json_output: bool, classes: bool) -> int:
    async with latest.follow(settings) as nodes:
        rows = await nodes.read_all(_ONCE_SECONDS) or await nodes.read(_FIRST_SECONDS)
        unread = max(0, nodes.unread)
    now = time.time()
    if json_output:
        print(json.dumps(classes_document(rows) if classes else nodes_document(rows, now)))
    else:
        console = terminal.console()
        console.print(table.page(rows, now, console.width, unread=unread))
    if unread:
        clean.complain(f"{len(rows)} of {count.of(len(rows) + unread, 'node')} read in {_ONCE_SECONDS:.0f} s")
    return int(unread > 0)


async def _follow(settings: Settings) -> int:
    console = terminal.console()
    async with latest.follow(settings) as nodes:
        if not console.is_terminal:
            await _print(nodes, console)
        shown = view.View(own=settings.sample.node_name)
        async with keys.pressed() as pressed:
            with Live(console=console, auto_refresh=False, screen=True) as display:
                reading = asyncio.create_task(_read(nodes, shown))
                try:
                    await _show(nodes, shown, pressed, display)
                finally:
                    reading.cancel()
                    await asyncio.wait({reading})
    return 0


async def _print(nodes: latest.Nodes, console: Console) -> None:
    """Print the table once an interval, as into a file, until Ctrl-C."""
    now = asyncio.get_running_loop().time
    rows = await nodes.read_all(_ONCE_SECONDS) or await nodes.read(_FIRST_SECONDS)
    while True:
        if (silent := nodes.silent_seconds) is not None:
            console.print(view.disconnected(silent))
        console.print(table.page(rows, time.time(), console.width))
        due = now() + partitions.PRINTED_SECONDS
        while now() < due:
            rows = await nodes.read(due - now())
            await asyncio.sleep(_PAUSE_SECONDS)


async def _read(nodes: latest.Nodes, shown: view.View) -> None:
    while True:
        shown.take(await nodes.read(_REFRESH_SECONDS))
        await asyncio.sleep(_PAUSE_SECONDS)


async def _show(nodes: latest.Nodes, shown: view.View, pressed: asyncio.Queue[str], display: Live) -> None:
    """Draw the view after each key, and every half second, until the user leaves."""
    console = display.console
    while not shown.ended:
        page = shown.page(time.time(), console.width, console.height, silent_seconds=nodes.silent_seconds)
        display.update(page, refresh=True)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REFRESH_SECONDS):
                shown.press(await pressed.get())
        while not pressed.empty():
            shown.press(pressed.get_nowait())


def nodes_document(rows: list[Availability], now: float) -> list[dict[str, Any]]:
    """Return what `--json` prints: the newest availability of each node."""
    return [{**row.model_dump(), "age_seconds": table.age(row, now)} for row in rows]


def classes_document(rows: list[Availability]) -> list[dict[str, Any]]:
    """Return what `--classes --json` prints: the totals of each workload class over the cluster."""
    return [
        {"class": workload, **dict(zip(cluster.Total._fields[1:], rest, strict=True))}
        for workload, *rest in cluster.totals(rows)
    ]
