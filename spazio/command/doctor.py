"""`spazio doctor`: what this machine offers, what each gap costs, and how to fix it.

Each check runs in its own thread, and all share one deadline, so that a hanging mount or name server becomes a finding.
Checks change nothing.
"""

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bus import connection, errors, server, stream
from bus.access import greeting
from bus.connection import MINIMUM_SERVER
from bus.folding import worker_pool
from producers import clock as grid
from schemas.sections.measurement import CONTAINER_SOURCES
from schemas.settings import Settings
from spazio import count
from spazio.service import addresses, host
from spazio.service.composition import machine
from spazio.service.host import Finding
from spazio.terminal import clean, contradiction, letters, readiness, retention

_SECONDS = 3.0
_PROBE_SECONDS = 0.8  # for connecting, for the greeting and for all streams, within the 3 s of all checks
_MARKS = {True: ("ok", "green"), None: ("lacks", "yellow"), False: ("broken", "bold red")}

Checks = Mapping[str, Callable[[], Finding]]


def run(settings: Settings, *, json_output: bool, strict: bool = False) -> int:
    """Check, print, and return the exit status: 1 if something is broken, or, if `strict`, lacks."""
    findings = examine(checks(settings), _SECONDS)
    if json_output:
        print(json.dumps([_public(finding) for finding in findings], indent=2))
    else:
        Console().print(report(findings))
    return int(any(finding.ok is False or (strict and finding.ok is None) for finding in findings))


def _public(finding: Finding) -> dict[str, str | bool | None]:
    """Return a finding under the names that `--json` promises."""
    detail, remedy = finding.detail, finding.remedy
    return {
        "name": finding.name,
        "ok": finding.ok,
        "found": detail,
        "cost": finding.cost,
        "mend": remedy,
        "checked": finding.checked,
    }


def checks(settings: Settings) -> Checks:
    """Return every check by the name of its finding."""
    sample = settings.sample
    return {
        "machine": partial(host.machine, sample),
        "pressure": partial(host.stalls, sample.proc),
        "cgroups": partial(host.cgroups, sample.cgroup, sample.proc),
        **{f"containers {name}": partial(host.containers, name, settings) for name in CONTAINER_SOURCES},
        "permissions": partial(host.permissions, sample.proc),
        "clock": partial(host.clock, grid.System()),
        "packages": host.packages,
        "data folder": partial(host.data_folder, settings),
        "history": partial(host.history, settings),
        "nats program": partial(nats_program, settings),
        "nats server": partial(nats_server, settings),
        "streams": partial(streams, settings),
        "names": partial(names, settings),
        retention.NAME: partial(retention.check, settings, _PROBE_SECONDS),
        "pipeline": partial(pipeline, settings),
        letters.NAME: partial(letters.check, settings, _PROBE_SECONDS),
        readiness.NAME: partial(readiness.check, settings, _PROBE_SECONDS),
        "nodes": partial(contradiction.check, settings, _PROBE_SECONDS),
    }


def examine(wanted: Checks, seconds: float) -> list[Finding]:
    """Run all checks concurrently and return their findings in order; a late one counts as broken."""
    findings: dict[str, Finding] = {}

    def run_check(name: str, check: Callable[[], Finding]) -> None:
        try:
            findings[name] = check()
        except Exception as error:  # noqa: BLE001 - an error in one check must not stop the others
            findings[name] = Finding(name, False, f"the check failed: {error!r}", "unknown", "report this")

    threads = [
        threading.Thread(target=run_check, args=item, name=f"doctor {item[0]}", daemon=True) for item in wanted.items()
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"no answer within {seconds:g} s"
    remedy = "look for a mount, a name server or a program that hangs"
    return [findings.get(name) or Finding(name, False, late, "whatever needs it hangs too", remedy) for name in wanted]


def report(findings: list[Finding]) -> Table:
    """Return the findings as a table for people."""
    table = Table.grid(padding=(0, 2))
    for finding in _folded(findings):
        mark, style = _MARKS[finding.ok]
        text = Text(clean.lines(finding.detail))
        if finding.ok is not True:
            text.append(clean.lines(f"\ncost:   {finding.cost}\nremedy: {finding.remedy}"), style="dim")
        table.add_row(Text(mark, style=style), Text(clean.text(finding.name)), text)
    return table


def _folded(findings: list[Finding]) -> Iterator[Finding]:
    """Yield findings; checks that the same thing prevents are one, where the first of them stands."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        if not finding.checked:
            groups.setdefault((finding.detail, finding.remedy), []).append(finding)
    for finding in findings:
        group = [finding] if finding.checked else groups[finding.detail, finding.remedy]
        if len(group) == 1:
            yield finding
        elif group[0] is finding:
            names = ", ".join(each.name for each in group)
            yield replace(finding, name="checks", detail=f"{finding.detail}: {names}", cost="unknown what these lack")


def nats_program(settings: Settings) -> Finding:
    """Look for a nats-server that `spazio up` can start."""
    try:
        program = server.find()
    except server.Unusable as error:
        ok = None if settings.nats.url else False  # with --nats no server has to be started
        return Finding("nats program", ok, "no usable one", "`spazio up` cannot start a server", str(error))
    return Finding("nats program", True, f"{program.path}, version {'.'.join(map(str, program.version))}")


def nats_server(settings: Settings) -> Finding:
    """Ask the server for its version."""
    cost, remedy = "no telemetry flows", "start one with `spazio up`, or name a running one with --nats"
    try:
        address, version = greeting.read(settings.nats_url, _PROBE_SECONDS)
    except ValueError as error:
        return Finding("nats server", False, str(error), cost, "name another with --nats")
    except OSError as error:
        address = ":".join(map(str, greeting.place(settings.nats_url)))
        return Finding("nats server", None, f"none answers at {address}: {error.strerror or error}", cost, remedy)
    if _too_old(version):
        wanted = ".".join(map(str, MINIMUM_SERVER))
        return Finding(
            "nats server", False, f"{address} runs {version}", cost, f"install nats-server {wanted} or newer"
        )
    return Finding("nats server", True, f"{address} runs {version}")


def streams(settings: Settings) -> Finding:
    """Look for every stream and bucket on the server."""
    cost, unknown = "nothing is stored", "unknown whether there are streams and buckets"
    try:
        if _too_old(greeting.read(settings.nats_url, _PROBE_SECONDS)[1]):
            return host.unchecked("streams", unknown, "the server is too old")
    except (OSError, ValueError):
        return host.unchecked("streams", unknown)
    try:
        missing = asyncio.run(_missing(settings))
    except connection.Unacceptable as error:
        return Finding("streams", False, str(error), cost, "do what that says")
    except (errors.BusError, TimeoutError, OSError) as error:
        remedy = "start it with JetStream (-js), and let this user publish to $JS.API.>"
        return Finding("streams", False, f"the server does not answer: {str(error) or repr(error)}", cost, remedy)
    if missing:
        remedy = "start `spazio up`, or any service: each creates missing streams"
        return Finding("streams", None, f"no {', '.join(missing)}", cost, remedy)
    return Finding("streams", True, "all streams and buckets exist")


async def _missing(settings: Settings) -> list[str]:
    async with asyncio.timeout(_PROBE_SECONDS), connection.probe(settings, "spazio-doctor") as client:
        return await stream.missing(client, settings)


def names(settings: Settings) -> Finding:
    """Ask the processors for nodes that they refuse, because there are more names than may have state."""
    unknown = "unknown whether processors refuse nodes"
    try:
        refused = asyncio.run(_refused(settings))
    except connection.Unacceptable:
        return host.unconnected("names", unknown)
    except (errors.BusError, TimeoutError, OSError, ValueError, LookupError):
        return host.unchecked("names", unknown)
    if refused:
        cost, remedy = "the refused nodes are not estimated", "stop who invents names, or raise process nodes_max"
        return Finding("names", False, "; ".join(refused), cost, remedy)
    return Finding("names", True, "no processor refuses a node")


async def _refused(settings: Settings) -> list[str]:
    async with asyncio.timeout(_PROBE_SECONDS), connection.probe(settings, "spazio-doctor") as client:
        processors = await worker_pool.replicas(client, settings.prefix)
    parts = sorted(
        (name, part) for replica in processors for name, part in replica.parts.items() if part.get("refused")
    )
    return [
        f"part {name} refuses nodes beyond {part['limit']}, {count.of(part['refused'], 'message')} so far, the last of "
        f"{part['newest']!r}"
        for name, part in parts
    ]


def _too_old(version: str) -> bool:
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return match is None or (int(match[1]), int(match[2])) < MINIMUM_SERVER


def pipeline(settings: Settings) -> Finding:
    """Look for a running `spazio up` on this data folder."""
    content = addresses.read(settings)
    pids = content.get("pids")
    alive = {name for name, pid in pids.items() if addresses.is_alive(pid)} if isinstance(pids, dict) else set()
    if "up" not in alive:
        left = "; addresses.json is left from one that was killed" if pids else ""
        cost, remedy = "nothing is measured, unless services run separately", "start `spazio up`"
        return Finding("pipeline", None, f"no `spazio up` runs on {settings.data.dir}{left}", cost, remedy)
    if ended := set(machine.NAMES) - alive:
        cost = "its part of the work waits"
        return Finding(
            "pipeline", False, f"not running: {', '.join(sorted(ended))}", cost, "read the output of `spazio up`"
        )
    again = _times("restarted", content.get("restarts")) + _times("of these because they hung", content.get("hung"))
    return Finding("pipeline", True, f"`spazio up` runs: {', '.join(sorted(alive))}{again}")


def _times(what: str, counts: object) -> str:
    """Return how often something happened to services, as the end of a sentence; empty: never."""
    listed = ", ".join(f"{name} {times}" for name, times in counts.items()) if isinstance(counts, dict) else ""
    return f"; {what}: {listed}" if listed else ""
