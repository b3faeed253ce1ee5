"""One service as a process: logging, signals, metrics and health around one coroutine.

The first SIGINT or SIGTERM cancels the work, which then drains, writes checkpoints and acknowledges; the process ends
after `_GRACE_SECONDS` in any case. SIGHUP makes the process read its settings again.
"""

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bus import connection, stream, watchdog
from bus.access import private_file
from bus.accounting import exchange
from bus.connection import Connection
from bus.health import Health
from schemas import role
from schemas.live import Live
from schemas.settings import Settings, SettingsError, unknown_environment
from schemas.subject import Names
from spazio.service import addresses, logs, reload
from spazio.service.liveness.loop_guard import LoopGuard
from spazio.service.monitor import Monitor, unusable
from spazio.terminal import clean

if TYPE_CHECKING:
    from spazio.service.web.otlp import Push

log = logging.getLogger(__name__)

_GRACE_SECONDS = 4.0
_AGAIN_SECONDS = 2.0
_ANSWER_SECONDS = 1.0
# Messages have no reference cycles. With the default threshold of 700 the collector searches for some several times a
# batch, which takes a tenth of the time of a service that has many of them at once.
_OBJECTS_BEFORE_COLLECTION = 50_000


@dataclass(frozen=True, slots=True)
class Context:
    """Resources of a service: `settings` are those of its start, `live` the current ones."""

    client: Connection
    settings: Settings
    health: Health
    live: Live


Work = Callable[[Context], Awaitable[None]]


def rest_collector() -> None:
    """Let Python look for cycles seldom, as every service does; also for benchmarks of what services do."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BEFORE_COLLECTION)


def run(name: str, settings: Settings, work: Work, *, streams: bool = True) -> int:
    """Run a service until a signal arrives.

    Args:
        name: Name of the service in logs and addresses.
        settings: All settings.
        work: The service; runs until cancelled.
        streams: Create streams and buckets first. The agent does not, since it may only publish.

    Returns:
        Exit status: 0 after a signal, 1 after a failure, 2 if settings or the environment prevent a start.
    """
    rest_collector()
    logs.configure(settings.log, name)
    settings = addresses.admitted(settings, name)
    for warning in unknown_environment():
        log.warning("setting.ignored", extra={"reason": warning})
    try:
        return asyncio.run(_serve(name, settings, work, streams))
    except (SettingsError, stream.NoRoom, connection.Unacceptable) as error:
        return _fail(str(error))
    except (connection.Closed, watchdog.Hopeless) as lost:
        log.error("connection.lost", extra={"reason": str(lost)})  # noqa: TRY400 # the reason is enough
        return 1
    except ExceptionGroup as group:
        if isinstance(fault := first(group), SettingsError):
            return _fail(str(fault))
        if isinstance(fault, stream.Repartitioned):
            log.error("stream.partitions_changed", extra={"reason": str(fault)})  # noqa: TRY400 # the reason is enough
        else:
            log.exception("service.failed")
        return 1
    except Exception:
        log.exception("service.failed")
        return 1
    finally:
        gc.unfreeze()  # for the last collection at exit: libraries report on standard error what is left after it


def first(group: ExceptionGroup[Exception]) -> Exception:
    """Return the first error, however deep; the other tasks of the group ended because of it."""
    error = group.exceptions[0]
    return first(error) if isinstance(error, ExceptionGroup) else error


def _fail(message: str) -> int:
    clean.complain(message)
    return 2


async def _serve(name: str, settings: Settings, work: Work, streams: bool) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sign in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(sign, stop.set)
    live, hangup = Live(settings), reload.Hangup()
    live.subscribe(lambda now: logs.configure(now.log, name))
    loop.add_signal_handler(
        signal.SIGHUP,
        lambda: stop.set() if hangup.closed() else reload.again(live, lambda now: addresses.admitted(now, name)),
    )
    health, connected = Health(), loop.create_future()
    monitor = _listen(settings, health, lambda: _alive(loop, connected))
    push = _push(name, settings, health, loop, monitor.address)
    guard = LoopGuard(loop, settings.http)
    note = settings.data.dir / "run" / f"{addresses.child(name, settings.process.replica)}.json"
    working = asyncio.create_task(_work(name, live, work, streams, health, connected))
    guarding = asyncio.create_task(_guard(settings, health, connected))
    stopping = asyncio.create_task(stop.wait())
    try:
        announce(note, monitor.address)
        log.info("service.started", extra={"http": monitor.address, "pid": os.getpid()})
        await asyncio.wait({working, guarding, stopping}, return_when=asyncio.FIRST_COMPLETED)
        # After the work has ended, the connection is lost because the work closed it.
        lost = guarding.exception() if guarding.done() and not working.done() else None
        if not working.done():
            log.info("service.stopping")
            for seconds in (0.75 * _GRACE_SECONDS, 0.25 * _GRACE_SECONDS):
                if not working.done():  # the client swallows a cancellation while it sends
                    working.cancel()
                    await asyncio.wait({working}, timeout=seconds)
        if not working.done():
            log.error("service.stop_failed")
            os._exit(1)
        if not working.cancelled():
            working.result()
        if lost is not None:
            raise lost
        return 0
    finally:
        guard.close()
        if push is not None:
            push.close()
        stopping.cancel()
        if not guarding.cancel():
            guarding.exception()
        monitor.close()
        with contextlib.suppress(OSError):
            note.unlink()
        log.info("service.stopped")


def _listen(settings: Settings, health: Health, connected: Callable[[], bool]) -> Monitor:
    host, port = settings.http.host, settings.http.port
    access = None
    if settings.http.config_file is not None:
        from spazio.service.web.access import Access

        access = Access(settings.http.config_file)
    try:
        return Monitor(host, port, health, connected, access, partial(addresses.targets, settings))
    except OSError as error:
        raise unusable(settings.http, error) from error


def _push(
    name: str, settings: Settings, health: Health, loop: asyncio.AbstractEventLoop, address: str
) -> "Push | None":
    if not settings.otlp.endpoint:
        return None
    from spazio.service.web.otlp import Push

    instance = address.partition("://")[2]
    service = {"service.namespace": settings.prefix, "service.name": name, "service.instance.id": instance}
    return Push(settings.otlp, service, health, loop.call_soon_threadsafe)


def _alive(loop: asyncio.AbstractEventLoop, connected: asyncio.Future[Connection]) -> bool:
    """Ping the server from another thread; the client reports to be connected even if its reader has died."""
    if not connected.done():
        return False
    answer = asyncio.run_coroutine_threadsafe(connection.alive(connected.result(), _ANSWER_SECONDS), loop)
    try:
        return answer.result(_ANSWER_SECONDS + 1)
    except (TimeoutError, RuntimeError):
        return False


async def _work(
    name: str, live: Live, work: Work, streams: bool, health: Health, connected: asyncio.Future[Connection]
) -> None:
    settings = live.current
    async with connection.connect(settings, f"{settings.prefix}-{name}") as client:
        connected.set_result(client)
        if not streams:
            await work(Context(client, settings, health, live))
            return
        reconnects = client.stats["reconnects"]
        await stream.ensure(client, settings)
        await exchange.serve(client, Names(settings.prefix).of(role.FLOW), name)
        keeping = asyncio.create_task(stream.keep(client, settings, health, ensured=reconnects))
        try:
            await work(Context(client, settings, health, live))
        finally:
            keeping.cancel()


async def _guard(settings: Settings, health: Health, connected: asyncio.Future[Connection]) -> None:
    """Watch the connection once it exists, in a task of its own, so that hanging work cannot keep the process alive."""
    await watchdog.watch(await asyncio.shield(connected), health, settings.nats)


def announce(note: Path, address: str, *, again: bool = False) -> None:
    """Write the address of this service for `spazio up`; later again if the folder cannot be written."""
    try:
        note.parent.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # the data folder, as `up` makes it
        note.parent.mkdir(exist_ok=True)
        private_file.replace(note, json.dumps({"pid": os.getpid(), "http": address}))
    except OSError as error:
        log.log(logging.DEBUG if again else logging.WARNING, "service.unannounced", extra={"reason": str(error)})
        asyncio.get_running_loop().call_later(_AGAIN_SECONDS, partial(announce, note, address, again=True))
