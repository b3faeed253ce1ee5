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

from nats.aio.client import Client

from bus import connection, stream
from bus.health import Health
from schemas.settings import Settings, SettingsError, unknown_environment
from spazio import logs
from spazio.monitor import Monitor

log = logging.getLogger(__name__)

_GRACE_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Context:
    """What a service works with."""

    client: Client
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
    except OSError as error:
        log.exception("service.failed")
        return _fail(f"{name}: {error}")
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
    health, clients = Health(), list[Client]()
    try:
        monitor = Monitor(
            settings.http.host, settings.http.port, health, lambda: bool(clients) and clients[0].is_connected
        )
    except OSError as error:
        address = f"{settings.http.host}:{settings.http.port}"
        raise SettingsError(
            [f"http port: cannot listen on {address}: {error.strerror}; choose another with --http-port, 0 for any"]
        ) from error
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


async def _work(
    name: str, settings: Settings, work: Work, streams: bool, health: Health, clients: list[Client]
) -> None:
    async with connection.connect(settings, f"{settings.prefix}-{name}") as client:
        clients.append(client)
        if streams:
            await stream.ensure(client, settings)
        await work(Context(client, settings, health))


def _announce(note: Path, address: str) -> None:
    """Say where this service listens; `spazio up` collects it. A folder that cannot be written is no reason to end."""
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        hidden = note.with_name(f".{note.name}.{os.getpid()}")
        hidden.write_text(json.dumps({"pid": os.getpid(), "http": address}))
        hidden.replace(note)
    except OSError as error:
        log.warning("service.unannounced", extra={"reason": str(error)})
