"""`spazio up`: everything on this machine, from one command until Ctrl-C."""

import asyncio
import logging
import os
import secrets
import shutil
import signal
import sys
from functools import partial
from pathlib import Path

from bus import server
from schemas import settings as all_settings
from schemas.live import Live
from schemas.sections.bus import Nats
from schemas.settings import Settings, SettingsError
from schemas.subject import PARTITIONS
from spazio.credentials import embedded
from spazio.service import addresses, child, data_folder, logs, monitor, reload
from spazio.service.child import Child, Recipe, Unstartable
from spazio.service.composition import machine
from spazio.service.composition.machine import Service
from spazio.service.composition.ports import Ports
from spazio.service.liveness import probe
from spazio.service.liveness.patience import Patience
from spazio.terminal import clean, screen

log = logging.getLogger(__name__)

# Producers end first, so that their last measurements are folded and written; the server ends last.
_ENDING = ((machine.PRODUCERS, 1.0), (("process",), 1.4), (machine.SINKS, 1.4), (("nats",), 0.8))
_START_SECONDS = 15.0
_CONSUMERS_SECONDS = 6.0  # for which producers wait; a machine is measured also where a sink cannot start
_SERVER_LOG_SECONDS = 2.0
_PARTITIONS_EACH = 2  # for each processor
_NODES_EACH = 1250  # simulated nodes of a partition, so that it has room for their pods (process.pods_max)


def run(settings: Settings) -> int:
    """Run everything until SIGINT or SIGTERM; return the exit status."""
    settings = _quiet(settings)
    logs.configure(settings.log, "up")
    for warning in all_settings.unknown_environment():
        log.warning("setting.ignored", extra={"reason": warning})
    try:
        data_folder.check(settings.data.dir)  # first: who starts twice has taken the port, too
        monitor.check(settings.http)  # now, and not by a service in the middle of the start
        with data_folder.own(settings.data.dir, settings.data.min_free_bytes) as owned:
            return asyncio.run(_Up(settings, owned).run())
    except (SettingsError, server.Unusable, Unstartable) as error:
        clean.complain(error)
        return 2
    except OSError as error:
        clean.complain(f"{error}; fix that, or choose another folder with --data-dir")
        return 1


def _partitioned(settings: Settings) -> Nats:
    """Return how to make streams: for a server of its own, and unless partitions are given, with few of them.

    Each partition is folded by itself, so one processor works less for a hundred nodes in two partitions than in eight.
    """
    own = settings.nats
    if own.url or "partitions" in own.model_fields_set:
        return own
    wanted = max(_PARTITIONS_EACH * settings.process.replicas, settings.simulated.nodes // _NODES_EACH)
    return own.model_copy(update={"partitions": min(PARTITIONS, wanted)})


def _quiet(settings: Settings) -> Settings:
    """Return settings for several services that share a terminal."""
    if settings.log.level is not None:
        return settings
    return settings.model_copy(update={"log": settings.log.model_copy(update={"level": "warning"})})


class _Up:
    """The supervisor's state."""

    def __init__(self, settings: Settings, owned: data_folder.Owned) -> None:
        self._settings, self._owned = settings, owned
        self._live, self._unwritten = Live(settings), False
        self._live.subscribe(lambda now: logs.configure(now.log, "up"))
        self._file = settings.data.dir / "run" / reload.FILE
        self._notifying: set[asyncio.Task[None]] = set()
        self._folder = settings.data.dir
        self._url, self._access = settings.nats.url, embedded.other(settings)
        self._nats = _partitioned(settings)
        self._children: dict[str, Child] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._closing = False
        notes = (("extender", addresses.SCHEDULER), ("dashboard", addresses.DASHBOARD))
        self._notes = {name: self._folder / "run" / file for name, file in notes}
        self._ports = Ports(settings)

    async def run(self) -> int:
        stop = asyncio.Event()
        for sign in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(sign, stop.set)
        hangup = reload.Hangup()
        reload.write(self._settings, self._folder / "run")
        stopping = asyncio.create_task(stop.wait())
        starting = asyncio.create_task(self._start())
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGHUP, lambda: stop.set() if hangup.closed() else self._reload()
        )
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not stopping.done():
                await starting
                await asyncio.wait({*self._tasks.values(), stopping}, return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks.values():
                if task.done():
                    task.result()
            return 0
        finally:
            starting.cancel()
            stopping.cancel()
            await self._close()

    async def _start(self) -> None:
        if not self._url:
            await self._start_server()
        # Producers come last, so that the start of the others is not measured as load of this machine.
        await self._add_services({"process", *machine.SINKS}, _CONSUMERS_SECONDS)
        if self._has_ended():
            return  # `run` says which one cannot go on
        screen.show(addresses.read(self._settings), addresses.located(self._settings))
        await self._add_services(set(machine.PRODUCERS), _START_SECONDS)
        if not self._has_ended():
            await screen.learn(addresses.located(self._settings))

    def _has_ended(self) -> bool:
        return any(task.done() for task in self._tasks.values())

    async def _add_services(self, names: set[str], seconds: float) -> None:
        """Start services, and wait until they are ready, for `seconds` at most."""
        for service in machine.SERVICES:
            if service.name not in names or (service.simulates and not self._settings.simulated.nodes):
                continue
            for replica in range(1, 1 + (self._settings.process.replicas if service.name == "process" else 1)):
                self._add_service(service, replica)
        await self._until_ready(seconds)

    def _add_service(self, service: Service, replica: int) -> None:
        name = addresses.child(service.name, replica)
        note = self._note(name)
        note.unlink(missing_ok=True)
        command = [sys.executable, "-m", "spazio", *service.arguments]
        own = self._notes.get(service.name)
        ready = partial(child.noted, [note, own] if own else [note])
        self._add(Recipe(name, command, ready, partial(self._environ, service.name, replica), nice=service.nice))

    def _note(self, name: str) -> Path:
        """Return the file in which a child writes its address."""
        return self._folder / "run" / f"{name}.json"

    async def _start_server(self) -> None:
        program, port, start = server.find(), server.free_port(self._settings.nats.port), secrets.token_hex(4)
        self._access = embedded.prepare(self._settings)
        log_file, output = self._folder / "nats" / server.LOG, self._folder / "nats" / server.OUTPUT
        command = server.command(program, server.write_config(self._settings, port, self._access.accounts, start))
        self._url = f"nats://127.0.0.1:{port}"
        logged = log_file.stat().st_size if log_file.exists() else 0
        output.unlink(missing_ok=True)
        ready, answers = (lambda _: child.listening(port, start)), (lambda _: probe.nats(port))
        self._add(Recipe("nats", command, ready, log_file=output, answers=answers, folder=self._owned))
        self._tasks["nats log"] = asyncio.create_task(self._restart_server(log_file, logged), name="nats log")
        try:
            async with asyncio.timeout(_START_SECONDS):
                await self._children["nats"].ready.wait()
        except TimeoutError:
            raise server.Unusable(f"nats-server did not start: {server.tail(self._folder, logged)}") from None
        log.info("server.started", extra={"url": self._url, "version": ".".join(map(str, program.version))})

    async def _restart_server(self, log_file: Path, position: int) -> None:
        """Restart the server after a failed write, once the disk has space again; it does not recover by itself."""
        failed = False
        while True:
            await asyncio.sleep(_SERVER_LOG_SECONDS)
            try:
                with log_file.open("rb") as file:
                    position = position if os.fstat(file.fileno()).st_size >= position else 0  # a new file
                    file.seek(position)
                    lines = file.read()
                free = shutil.disk_usage(self._folder).free
            except OSError as error:
                level = logging.DEBUG if isinstance(error, FileNotFoundError) else logging.WARNING  # not yet begun
                log.log(level, "server.log_unreadable", extra={"reason": str(error)})
                continue
            position, failed = position + len(lines), failed or server.WRITE_FAILED in lines
            if failed and free >= self._settings.data.min_free_bytes:
                failed = False
                log.warning("server.restarted", extra={"reason": "a write failed, and the disk has space again"})
                await self._children["nats"].end(_START_SECONDS)

    async def _until_ready(self, seconds: float) -> None:
        """Wait until every service listens, for `seconds` at most, or one of them cannot start."""
        ready = [asyncio.ensure_future(each.ready.wait()) for each in self._children.values()]
        all_ready = asyncio.ensure_future(asyncio.wait(ready, timeout=seconds))
        await asyncio.wait({all_ready, *self._tasks.values()}, return_when=asyncio.FIRST_COMPLETED)
        for waiting in (all_ready, *ready):
            waiting.cancel()
        late = [each.name for each in self._children.values() if not each.ready.is_set()]
        if late:
            log.warning("child.delayed", extra={"children": ",".join(late)})

    def _add(self, recipe: Recipe) -> None:
        patience = partial(Patience, self._settings.http.hung_seconds, self._settings.http.busy_seconds)
        made = self._children[recipe.name] = Child(recipe, self._publish, patience)
        self._tasks[recipe.name] = asyncio.create_task(made.run(), name=recipe.name)

    def _environ(self, name: str, replica: int) -> dict[str, str]:
        self._write_settings()  # the file may have been damaged since
        self._ports.choose(name)
        offset = machine.port_offset(name, replica)
        last = child.read(self._note(addresses.child(name, replica))) or ""
        http = self._settings.http
        if offset or not http.port:
            http = monitor.beside(http, offset, last)
        credential = self._access.of(name, self._settings)
        nats = self._nats.model_copy(update={"url": self._url, "credentials": credential})
        process = self._settings.process.model_copy(update={"replica": replica})
        update = {"nats": nats, "http": http, "process": process, **self._ports.sections}
        return child.environment(reload.fixed(self._settings.model_copy(update=update), self._file))

    def _reload(self) -> None:
        """Apply the settings that may change, and have every service apply them."""
        change = reload.again(self._live, _quiet)
        if change is None or not (change.applied or self._unwritten):
            return
        self._unwritten = not self._write_settings()  # then the next signal tries again
        if self._unwritten:
            return
        for each in self._children.values():
            if each.name != "nats":
                notifying = asyncio.create_task(_notify(each), name=f"notify {each.name}")
                self._notifying.add(notifying)
                notifying.add_done_callback(self._notifying.discard)

    def _write_settings(self) -> bool:
        """Write the file of settings that children read; tell whether that succeeded."""
        try:
            reload.write(self._live.current, self._folder / "run")
        except OSError as error:
            log.error("settings.write_failed", extra={"reason": str(error)})  # noqa: TRY400 # the reason is enough
            return False
        return True

    def _publish(self) -> None:
        """Write addresses.json."""
        if self._closing:
            return
        content = {
            "nats": self._url,
            "credentials": str(self._access.reader or ""),
            "http": self._children["metrics"].http if "metrics" in self._children else "",
            "dashboard": self._noted("dashboard"),
            "extender": self._noted("extender"),
            "history": str(self._settings.history_dir / "history.duckdb"),
            "data": str(self._folder),
            "pids": {"up": os.getpid(), **{each.name: each.pid for each in self._children.values() if each.pid}},
            "services": {each.name: each.http for each in self._children.values() if each.http},
            "restarts": {each.name: each.restarts for each in self._children.values() if each.restarts},
            "hung": {each.name: each.hung for each in self._children.values() if each.hung},
        }
        try:
            addresses.write(self._folder, content)
        except OSError as error:
            log.warning("addresses.write_failed", extra={"reason": str(error)})

    def _noted(self, service: str) -> str:
        """Return the address that a service has written into a note of its own; empty: it has not yet."""
        running = self._children.get(service)
        return (child.read(self._notes[service], running.pid) or "") if running else ""

    async def _close(self) -> None:
        self._closing = True
        for helping in (*self._notifying, self._tasks.pop("nats log", None)):
            if helping is not None:
                helping.cancel()
        log.info("up.stopping")
        for names, seconds in _ENDING:
            here = [name for name in self._children if name.partition("-")[0] in names]
            for name in here:
                self._tasks[name].cancel()
            await asyncio.gather(*(self._children[name].end(seconds) for name in here))
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        (self._folder / addresses.FILE).unlink(missing_ok=True)
        log.info("up.stopped")


async def _notify(service: Child) -> None:
    """Have a service read its settings again, once it is ready."""
    await service.ready.wait()
    reload.signal_reload(service.pid)
