"""One service as a process: logging, signals, metrics and health around one coroutine.

The first SIGINT or SIGTERM cancels the work, which then drains, checkpoints and acknowledges; nothing here keeps
the process alive longer than `_GRACE_SECONDS`.
"""

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from bus import connection, stream
from bus.connection import Connection
from bus.health import Health
from schemas.settings import Settings, SettingsError, unknown_environment
from spazio import logs
from spazio.monitor import Monitor

log = logging.getLogger(__name__)

_GRACE_SECONDS = 4.0
_ANSWER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Context:
    """What a service works with."""

    client: Connection
    settings: Settings
    health: Health


Work = Callable[[Context], Awaitable[None]]


def run(name: str, settings: Settings, work: Work, *, streams: bool = True) -> int:
    """Run a service until it is told to end.

    Args:
        name: What the service is called in logs and addresses.
        settings: All settings.
        work: The service; runs until cancelled.
        streams: Make streams and buckets first. The agent does not: it may only publish.

    Returns:
        Exit status: 0 after a signal, 1 after a failure, 2 when settings or surroundings do not allow a start.
    """
    logs.configure(settings.log, name)
    for warning in unknown_environment():
        log.warning("setting.unknown", extra={"reason": warning})
    try:
        return asyncio.run(_serve(name, settings, work, streams))
    except (SettingsError, stream.NoRoom, connection.ServerTooOld) as error:
        return _fail(str(error))
    except Exception:
        log.exception("service.failed")
        return 1


def _fail(message: str) -> int:
    sys.stderr.write(f"spazio: {message}\n")
    return 2


async def _serve(name: str, settings: Settings, work: Work, streams: bool) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stop.set)
    health, clients = Health(), list[Connection]()
    monitor = _listen(settings, health, lambda: _alive(loop, clients))
    note = settings.data.dir / "run" / f"{name}.json"
    working = asyncio.create_task(_work(name, settings, work, streams, health, clients))
    stopping = asyncio.create_task(stop.wait())
    try:
        _announce(note, monitor.address)
        log.info("service.started", extra={"http": monitor.address, "pid": os.getpid()})
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            log.info("service.stopping")
            working.cancel()
            await asyncio.wait({working}, timeout=_GRACE_SECONDS)
        if not working.done():
            log.error("service.overdue")
            os._exit(1)
        if not working.cancelled():
            working.result()
        return 0
    finally:
        stopping.cancel()
        monitor.close()
        with contextlib.suppress(OSError):
            note.unlink()
        log.info("service.stopped")


def _listen(settings: Settings, health: Health, connected: Callable[[], bool]) -> Monitor:
    host, port = settings.http.host, settings.http.port
    try:
        return Monitor(host, port, health, connected)
    except OSError as error:
        raise SettingsError(
            [f"http port: cannot listen on {host}:{port}: {error.strerror}; choose another with --http-port, 0 for any"]
        ) from error


def _alive(loop: asyncio.AbstractEventLoop, clients: list[Connection]) -> bool:
    """Ask the server, from another thread; the client's own word would also hold when its reader has died."""
    if not clients:
        return False
    answer = asyncio.run_coroutine_threadsafe(connection.alive(clients[0], _ANSWER_SECONDS), loop)
    try:
        return answer.result(_ANSWER_SECONDS + 1)
    except (TimeoutError, RuntimeError):
        return False


async def _work(
    name: str, settings: Settings, work: Work, streams: bool, health: Health, clients: list[Connection]
) -> None:
    async with connection.connect(settings, f"{settings.prefix}-{name}") as client:
        clients.append(client)
        if streams:
            await stream.ensure(client, settings)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(connection.unless_closed(client))
            await work(Context(client, settings, health))
            watching.cancel()


def _announce(note: Path, address: str) -> None:
    """Say where this service listens; `spazio up` collects it. A folder that cannot be written is no reason to end."""
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        hidden = note.with_name(f".{note.name}.{os.getpid()}")
        hidden.write_text(json.dumps({"pid": os.getpid(), "http": address}))
        hidden.replace(note)
    except OSError as error:
        log.warning("service.unannounced", extra={"reason": str(error)})
