"""`spazio doctor`: what this machine offers, what each gap costs, and how to mend it.

Every check runs in a thread of its own and all share one deadline, so that a mount or a name server that hangs is a
finding and not a hang. Nothing is changed.
"""

import asyncio
import contextlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bus import connection, errors, server, stream
from bus.connection import MINIMUM_SERVER
from producers import clock as grid
from schemas.sections.measurement import CONTAINER_SOURCES
from schemas.settings import Settings
from spazio.command import up
from spazio.service import addresses, host
from spazio.service.host import Finding

_SECONDS = 3.0
_PROBE_SECONDS = 0.8  # connecting, the greeting and all streams have so long each, within the 3 s of all
_LONGEST_GREETING = 1 << 16
_MARKS = {True: ("ok", "green"), None: ("lacks", "yellow"), False: ("broken", "bold red")}

Checks = Mapping[str, Callable[[], Finding]]


def run(settings: Settings, *, json_output: bool) -> int:
    """Check, print, and return the exit status: 1 if something is broken."""
    findings = examine(checks(settings), _SECONDS)
    if json_output:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        Console().print(report(findings))
    return int(any(finding.ok is False for finding in findings))


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
        "pipeline": partial(pipeline, settings),
    }


def examine(wanted: Checks, seconds: float) -> list[Finding]:
    """Run all checks at once and return their findings in order; one that takes longer is broken."""
    findings: dict[str, Finding] = {}

    def one(name: str, check: Callable[[], Finding]) -> None:
        try:
            findings[name] = check()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with one check, the others are made
            findings[name] = Finding(name, False, f"the check failed: {error!r}", "it is not known", "report this")

    threads = [
        threading.Thread(target=one, args=item, name=f"doctor {item[0]}", daemon=True) for item in wanted.items()
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = f"no answer within {seconds:g} s"
    mend = "look for a mount, a name server or a program that hangs"
    return [findings.get(name) or Finding(name, False, late, "what needs it hangs too", mend) for name in wanted]


def report(findings: list[Finding]) -> Table:
    """Return the findings as a table for people."""
    table = Table.grid(padding=(0, 2))
    for finding in findings:
        mark, style = _MARKS[finding.ok]
        text = Text(finding.found)
        if finding.ok is not True:
            text.append(f"\ncosts: {finding.cost}\nmend:  {finding.mend}", style="dim")
        table.add_row(Text(mark, style=style), Text(finding.name), text)
    return table


def nats_program(settings: Settings) -> Finding:
    """Look for a nats-server that `spazio up` can start."""
    try:
        program = server.find()
    except server.Unusable as error:
        ok = None if settings.nats.url else False  # with a server of one's own none need be started
        return Finding("nats program", ok, "none that can be used", "`spazio up` cannot start a server", str(error))
    return Finding("nats program", True, f"{program.path}, version {'.'.join(map(str, program.version))}")


def nats_server(settings: Settings) -> Finding:
    """Ask the server for its version."""
    cost, mend = "no telemetry flows", "start one with `spazio up`, or name a running one with --nats"
    try:
        place, version = _greeting(settings.nats_url)
    except ValueError as error:
        return Finding("nats server", False, str(error), cost, "name another with --nats")
    except OSError as error:
        place = ":".join(map(str, _place(settings.nats_url)))
        return Finding("nats server", None, f"none answers at {place}: {error.strerror or error}", cost, mend)
    if _too_old(version):
        wanted = ".".join(map(str, MINIMUM_SERVER))
        return Finding("nats server", False, f"{place} runs {version}", cost, f"install nats-server {wanted} or newer")
    return Finding("nats server", True, f"{place} runs {version}")


def streams(settings: Settings) -> Finding:
    """Look for every stream and bucket on the server."""
    cost, mend = "nothing is kept", "start `spazio up`, or any service: each makes what is missing"
    try:
        if _too_old(_greeting(settings.nats_url)[1]):
            return Finding("streams", None, "not looked for: the server is too old", cost, "see nats server")
    except (OSError, ValueError):
        return Finding("streams", None, "not looked for: there is no server", cost, mend)
    try:
        missing = asyncio.run(_missing(settings))
    except (errors.BusError, TimeoutError, OSError) as error:
        mend = "start it with JetStream (-js), and let this user publish to $JS.API.>"
        return Finding("streams", False, f"the server does not tell: {str(error) or repr(error)}", cost, mend)
    if missing:
        return Finding("streams", None, f"no {', '.join(missing)}", cost, mend)
    return Finding("streams", True, "all streams and buckets are there")


async def _missing(settings: Settings) -> list[str]:
    async with asyncio.timeout(_PROBE_SECONDS), connection.probe(settings, "spazio-doctor") as client:
        return await stream.missing(client, settings)


def _greeting(url: str) -> tuple[str, str]:
    """Return the host and port (without any password) and the version of the NATS server there.

    Raises:
        OSError: Nobody listens.
        ValueError: Whoever listens is no NATS server.
    """
    name, port = _place(url)
    with socket.create_connection((name, port), timeout=_PROBE_SECONDS) as link, link.makefile("rb") as lines:
        try:
            verb, _, body = lines.readline(_LONGEST_GREETING).partition(b" ")
        except TimeoutError:
            verb = body = b""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        if verb == b"INFO":
            return f"{name}:{port}", str(json.loads(body)["version"])
    raise ValueError(f"what listens at {name}:{port} is no NATS server")


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    return parts.hostname or "127.0.0.1", parts.port or 4222


def _too_old(version: str) -> bool:
    match = re.match(r"v?(\d+)\.(\d+)", version)
    return match is None or (int(match[1]), int(match[2])) < MINIMUM_SERVER


def pipeline(settings: Settings) -> Finding:
    """Look for a running `spazio up` on this data folder."""
    pids = addresses.read(settings).get("pids")
    alive = {name for name, pid in pids.items() if _is_alive(pid)} if isinstance(pids, dict) else set()
    if "up" not in alive:
        left = "; addresses.json is of one that was killed" if pids else ""
        cost, mend = "nothing is measured, unless services run by themselves", "start `spazio up`"
        return Finding("pipeline", None, f"no `spazio up` runs on {settings.data.dir}{left}", cost, mend)
    if ended := up.SERVICES.keys() - alive:
        cost = "its part of the work waits"
        return Finding("pipeline", False, f"not running: {', '.join(sorted(ended))}", cost, "see what `spazio up` says")
    return Finding("pipeline", True, f"`spazio up` runs: {', '.join(sorted(alive))}")


def _is_alive(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True
