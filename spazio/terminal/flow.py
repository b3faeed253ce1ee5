"""`spazio doctor --flow`: the accounts of the last hour, stream by stream and reader by reader.

It begins with the agents: how many blocks a stream has of each node, of those that the numbers of its first and last
block promise. A stream counts every message by its sequences. Each service that reads a stream says what it has
received and what became of that. The accounts add up if every sequence that a reader of a whole stream has
passed was received or is known to have expired, if everything received has an outcome, and if processors read
telemetry that was stored.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from bus import errors, stream
from bus.accounting import exchange, ledger, source
from bus.accounting.exchange import Report
from bus.accounting.ledger import Statement
from bus.client import Client
from bus.reading import setback
from bus.stream import Stream
from schemas import channel, role
from schemas.settings import Settings
from schemas.subject import Names, is_subject
from spazio import count, terminal
from spazio.terminal import clean, latest, sources

_WAIT_SECONDS = 2.0  # a processor answers between two batches
_HOUR_SECONDS = 3600
_NO_STREAM = set("./\\")  # what a subject may have and the name of a stream may not
_TAKEN = ("taken", "folded", "stored", "written", "superseded")


@dataclass(frozen=True, slots=True)
class Flow:
    """A stream over the last hour.

    Attributes:
        name: Name of the stream.
        first: Lowest sequence that it has; 0: it is empty.
        last: Highest sequence that it has given.
        stored: Messages that it has stored within the hour.
    """

    name: str
    first: int
    last: int
    stored: int


@dataclass(frozen=True, slots=True)
class Line:
    """One account, and where it does not add up."""

    service: str
    host: str
    pid: int
    statement: Statement
    behind: int
    unread: int
    faults: tuple[str, ...]


async def show(settings: Settings, *, json_output: bool) -> int:
    """Print the accounts and return the exit status; 1: it does not add up, or what should read does not answer.

    Raises:
        Unreachable: No pipeline answers.
    """
    async with latest.dial(settings) as client:
        flows, lines = await _snapshot(client, settings)
        published = await source.read(client, Names(settings.prefix), settings.nats.request_timeout_seconds)
    faults = [f"{_owner(line)}: {line.statement.account}: {fault}" for line in lines for fault in line.faults]
    faults += _absent(lines, flows, Names(settings.prefix).telemetry)
    if json_output:
        readers = [asdict(line) | {"statement": line.statement._asdict()} for line in lines]
        shown = {"agents": sources.content(published), "streams": [asdict(flow) for flow in flows], "readers": readers}
        print(json.dumps(shown | {"faults": faults}))
    else:
        console = terminal.console()
        console.print(sources.table(published))
        console.print(_streams(flows))
        console.print(_readers(lines))
        for fault in faults:
            console.print(Text(clean.text(fault), style="bold red"))
        stored = any(line.statement.account == "history" for line in lines)
        sum_up = "the accounts add up" + ("" if stored else "; no history sink answers")
        console.print("" if faults else Text(sum_up, style="green"))
    return 1 if faults else 0


async def _snapshot(client: Client, settings: Settings) -> tuple[list[Flow], list[Line]]:
    names, timeout = Names(settings.prefix), settings.nats.request_timeout_seconds
    # Asked first: what arrives meanwhile makes a reader no fault.
    reports = await exchange.ask(client, names.of(role.FLOW), wait_seconds=_WAIT_SECONDS)
    wanted = {names.store(store.name) for store in channel.stores() if not store.bucket}
    named = {statement.stream for report in reports for statement in report.statements}
    wanted |= {name for name in named if is_subject(name) and not _NO_STREAM & set(name)}
    since_us = int((time.time() - _HOUR_SECONDS) * 1e6)
    states = []
    for name in sorted(wanted):
        with contextlib.suppress(errors.NotFound):
            states.append(await stream.describe(client, name))
    if not states:
        raise latest.Unreachable(f"{settings.nats_shown} has no stream {names.telemetry}: start `spazio up`")
    begins = [await setback.last_until(client, state.name, since_us, timeout) for state in states]
    flows = [
        Flow(state.name, state.first, state.last, state.last - begin)
        for state, begin in zip(states, begins, strict=True)
    ]
    return flows, lines(reports, {state.name: state for state in states})


def lines(reports: Sequence[Report], states: dict[str, Stream]) -> list[Line]:
    """Return every account, held against its stream.

    Args:
        reports: Answers of the services.
        states: State of each stream, taken later than the answers.
    """
    made = []
    for report in reports:
        for statement in report.statements:
            faults = ledger.faults(statement)
            behind = unread = 0
            state = states.get(statement.stream)
            if state is not None and statement.whole and statement.end:
                behind = state.last - statement.end
                unread = max(0, state.first - statement.end - 1)
                if behind < 0:
                    faults.append(
                        f"has read {count.of(-behind, 'message')} more than the stream has: it came back with less"
                    )
            made.append(Line(*report[:3], statement, max(0, behind), unread, tuple(faults)))
    return made


def _absent(lines: Sequence[Line], flows: Sequence[Flow], telemetry: str) -> list[str]:
    """Return as a fault that no service answers, or no processor although telemetry was stored within the hour."""
    if not lines:
        return ["no service answers: start `spazio up`, or let this user publish to the subject of the ledgers"]
    processors = any((line.statement.account, line.statement.stream) == ("process", telemetry) for line in lines)
    if processors or not any(flow.stored for flow in flows if flow.name == telemetry):
        return []
    return [f"no `spazio process` answers that folds {telemetry}"]


def _owner(line: Line) -> str:
    return f"{line.service} {line.host}:{line.pid}"


def _streams(flows: Sequence[Flow]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("stream", "stored in the last hour", "kept"):
        table.add_column(heading, justify="left" if heading == "stream" else "right")
    for flow in flows:
        kept = flow.last - flow.first + 1 if flow.first else 0
        table.add_row(Text(clean.text(flow.name)), f"{flow.stored:,}", f"{kept:,}")
    return table


def _readers(lines: Sequence[Line]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("service", "account", "stream", "received", "became", "lost", "behind"):
        right = heading in ("received", "behind")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading in ("account", "stream"))
    for line in lines:
        statement = line.statement
        taken = {name: statement.outcomes.get(name, 0) for name in _TAKEN} | {"waiting": statement.waiting}
        lost = {name: count for name, count in statement.outcomes.items() if name not in _TAKEN}
        if line.unread:
            lost["expired unread"] = line.unread
        table.add_row(
            Text(clean.text(_owner(line))),
            Text(clean.text(statement.account)),
            Text(clean.text(statement.stream)),
            f"{statement.received:,}",
            Text(clean.text(_listed(taken))),
            Text(clean.text(_listed(lost)), style="yellow"),
            f"{line.behind:,}" if statement.whole else "",
        )
    return table


def _listed(counts: dict[str, Any]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def run(settings: Settings, *, json_output: bool) -> int:
    """Print the accounts and return the exit status; as `show`."""
    try:
        return asyncio.run(show(settings, json_output=json_output))
    except latest.Unreachable as error:
        clean.complain(error)
        return error.status
