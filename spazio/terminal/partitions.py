"""`spazio top --partitions`: which replica holds which part of the work, and how far behind it is."""

import asyncio
import json
import time
from typing import Any, NamedTuple

from rich import box
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bus import errors, stream
from bus.api import request
from bus.client import Client
from bus.folding import task, worker_pool
from schemas.settings import Settings
from schemas.subject import Names
from spazio import count, terminal
from spazio.service import processing
from spazio.terminal import clean, latest

_REFRESH_SECONDS = 1.0
PRINTED_SECONDS = 3.0  # between two tables without a terminal, as those of `top -b`
_ASKED_SECONDS = 2.0
_WORDS = {
    processing.AGGREGATE: "global model",
    processing.FEDERATION: "reject directions",
    processing.FORECAST: "forecasts",
}


class Row(NamedTuple):
    """One part.

    Attributes:
        owner: The replica's id in the NATS services API; None: no replica holds the part.
        idle: No replica holds it, since it has no message; a replica waits for the first.
    """

    part: str
    owner: str | None = None
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    nodes: int | None = None
    sequence: int | None = None
    lag: int | None = None
    since_us: int | None = None
    idle: bool = False


async def once(settings: Settings, *, json_output: bool) -> int:
    """Print all parts once; return the exit status, 1: nobody folds the messages of one of the parts.

    Raises:
        Unreachable: No pipeline answers.
    """
    async with latest.dial(settings) as client:
        rows = await _rows(client, settings)
    if json_output:
        print(json.dumps([row._asdict() for row in rows]))
    else:
        terminal.console().print(_table(rows))
    return 0 if all(row.owner or row.idle for row in rows) else 1


async def follow(settings: Settings) -> int:
    """Show all parts until Ctrl-C."""
    async with latest.dial(settings) as client:
        console = terminal.console()
        while not console.is_terminal:
            console.print(_table(await _rows(client, settings)))
            await asyncio.sleep(PRINTED_SECONDS)
        with Live(console=console, auto_refresh=False, screen=True) as display:
            while True:
                display.update(_table(await _rows(client, settings)), refresh=True)
                await asyncio.sleep(_REFRESH_SECONDS)


async def _rows(client: Client, settings: Settings) -> list[Row]:
    names = Names(settings.prefix)
    try:
        shards = (await stream.describe(client, names.telemetry)).partitions
    except errors.NotFound:
        raise latest.Unreachable(f"{settings.nats_shown} has no stream {names.telemetry}: start `spazio up`") from None
    replicas = await worker_pool.replicas(client, settings.prefix)
    done = {part.split("-")[0] for replica in replicas for part in replica.parts}
    # Tasks that no replica does may be switched off there; settings here may differ.
    optional = {processing.PREDICTION, processing.FEDERATION, processing.FORECAST} - done
    names_of_parts = [name for name in processing.part_names(settings, shards) if name.split("-")[0] not in optional]
    rows = {name: Row(name) for name in names_of_parts}
    for replica in replicas:
        for part, report in replica.parts.items():
            rows[part] = _row(part, replica, report)
    for row in [row for row in rows.values() if row.owner is None]:
        rows[row.part] = row._replace(idle=await _is_idle(client, names, row.part))
    return list(rows.values())


async def _is_idle(client: Client, names: Names, part: str) -> bool:
    """Tell whether a part has no message, and a replica waits for the first, with which the server gives it out."""
    of_partition = part.isdigit() or part.startswith(f"{processing.PREDICTION}-")
    source = names.telemetry if of_partition else names.estimates
    consumer = task.consumer_name(part)
    try:
        state = await request(client, f"CONSUMER.INFO.{source}.{consumer}", {}, _ASKED_SECONDS)
    except errors.REQUEST_FAILED:
        return False
    return bool(state["num_pending"] == 0 and state["num_waiting"] > 0)


def words(part: str) -> str:
    """Return what a part is of, as tables show it.

    >>> words("4"), words("outlook-4"), words("aggregate")
    ('partition 4', 'predictions 4', 'global model')
    """
    kind, _, number = part.partition("-")
    if part.isdigit():
        return f"partition {part}"
    if kind == processing.PREDICTION and number:
        return f"predictions {number}"
    return _WORDS.get(part, part)


def _row(part: str, replica: worker_pool.Replica, report: dict[str, Any]) -> Row:
    counts: dict[str, Any] = {name: report.get(name) for name in ("nodes", "sequence", "lag", "since_us")}
    return Row(part, replica.identity, replica.host, int(replica.pid), replica.version, **counts)


def _table(rows: list[Row]) -> Table:
    owners = len({row.owner for row in rows if row.owner})
    title = f"spazio: {count.of(len(rows), 'part')}, {count.of(owners, 'replica')}"
    made = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("part", "host", "process", "version", "nodes", "lag", "sequence", "held"):
        made.add_column(heading, justify="left" if heading in ("part", "host") else "right")
    for row in rows:
        if row.owner is None:
            host = Text("no messages", style="dim") if row.idle else Text("nobody", style="bold red")
            made.add_row(_text(words(row.part)), host)
            continue
        held = "" if row.since_us is None else f"{max(0.0, time.time() - row.since_us / 1e6):.0f} s"
        lag = Text("" if row.lag is None else clean.text(row.lag), style="yellow" if row.lag else "")
        nodes = "" if row.nodes is None else f"{row.nodes}"
        cells = map(_text, (words(row.part), row.host, row.pid, row.version, nodes))
        made.add_row(*cells, lag, _text(row.sequence), held)
    return made


def _text(value: object) -> Text:
    """Return what a replica reports, without its control characters and markup."""
    return Text(clean.text(value))
