"""A supervised process: started, watched, restarted with back-off, ended within a time limit.

A child that ends is restarted, and so is one that runs but does not answer (`liveness`). The kernel ends each child
when its supervisor dies, so that `kill -9` leaves no orphan. A server that is stopped or stuck then keeps the data
folder locked until the next start ends it.
"""

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from schemas.settings import ENV
from spazio.service.data_folder import Owned
from spazio.service.liveness import probe
from spazio.service.liveness.patience import Patience

log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
_HEALTHY_SECONDS = 20.0
_UNUSABLE = 2


class Unstartable(RuntimeError):
    """A child cannot run with these settings."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a child is started.

    Attributes:
        name: Name in addresses and logs.
        command: Program and arguments.
        ready: Waits until the process with a given pid is ready; returns its HTTP address or an empty string.
        environ: Makes its whole environment at each start; None: that of this process.
        log_file: File for its output; None: the output of this process.
        answers: Tells whether the child at an HTTP address is healthy; default: by its `/healthz`.
        nice: How far it yields to the others when there is too little CPU time for all.
        folder: Data folder that it writes, and which stays locked while it runs; None: none.
    """

    name: str
    command: list[str]
    ready: Callable[[int], Awaitable[str]]
    environ: Callable[[], Mapping[str, str]] | None = None
    log_file: Path | None = None
    answers: Callable[[str], Awaitable[bool]] = probe.page
    nice: int = 0
    folder: Owned | None = None


def environment(own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of this process with these variables of ours and no others.

    Those of this process describe what runs already: its server, its history, its addresses.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith(ENV)} | dict(own)


class Child:
    """One supervised process.

    Attributes:
        pid: Of the process; 0: none runs.
        http: Address of its pages since it first was ready, also while it is down, so that this is noticed.
        restarts: How often it was restarted.
        hung: How often it was killed because it did not answer.
    """

    def __init__(
        self, recipe: Recipe, changed: Callable[[], None], patience: Callable[[], Patience] | None = None
    ) -> None:
        """Describe the child.

        Args:
            recipe: How it is started.
            changed: Called whenever its pid or address has changed.
            patience: Makes the measure of how long it may fail to answer; None: for as long as it runs.
        """
        self.name, self.pid, self.http = recipe.name, 0, ""
        self.restarts = self.hung = 0
        self.ready = asyncio.Event()
        self._has_run = False
        self._recipe, self._changed, self._patience = recipe, changed, patience
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Keep the child running until cancelled.

        Raises:
            Unstartable: It ended with status 2 before it was ever ready: settings or the environment must be fixed
                first. What has run with them once is tried again, since others depend on it, and so is what would
                start with other ones now.
        """
        pause, loop, refused = _FIRST_PAUSE, asyncio.get_running_loop(), False
        environ: Mapping[str, str] | None = None
        while True:
            began, before = loop.time(), environ
            try:
                environ = self._recipe.environ and self._recipe.environ()
                if refused and environ == before:
                    raise Unstartable(f"{self.name} cannot start; see its message above")
                self._process = await _start(self._recipe, environ)
            except (OSError, subprocess.SubprocessError) as error:
                if not self._has_run:
                    raise
                pause = min(pause * 2, _LONGEST_PAUSE)  # as where memory or processes are short
                extra = {"child": self.name, "reason": str(error), "again_in_seconds": pause}
                log.error("child.unstartable", extra=extra)  # noqa: TRY400 # the reason is enough
                await asyncio.sleep(pause)
                continue
            self.pid = self._process.pid
            if self._recipe.folder is not None:
                self._recipe.folder.lend(self.pid)
            watching = asyncio.create_task(self._watch(self.pid))
            try:
                status = await self._process.wait()
            finally:
                watching.cancel()
            self.pid = 0
            self.ready.clear()
            self._changed()
            refused = status == _UNUSABLE and not self._has_run
            if refused:
                continue
            pause = _FIRST_PAUSE if loop.time() - began > _HEALTHY_SECONDS else min(pause * 2, _LONGEST_PAUSE)
            reason = signal.Signals(-status).name if status < 0 else f"exit status {status}"
            log.warning("child.ended", extra={"child": self.name, "reason": reason, "restart_in_seconds": pause})
            await asyncio.sleep(pause)
            self.restarts += 1

    async def _watch(self, pid: int) -> None:
        self._changed()
        self.http = await self._recipe.ready(pid)
        self._has_run = True
        self.ready.set()
        self._changed()
        log.info("child.ready", extra={"child": self.name, "pid": pid})
        if self._patience is not None:
            await self._guard(pid, self._patience())

    async def _guard(self, pid: int, patience: Patience) -> None:
        """Kill the process once it is hung; one that is stopped or stuck takes no other signal."""
        loop = asyncio.get_running_loop()
        seen, used = loop.time(), probe.cpu_seconds(pid)
        while True:
            await asyncio.sleep(patience.check_seconds)
            try:
                async with asyncio.timeout(patience.check_seconds):
                    answers = await self._recipe.answers(self.http)
            except TimeoutError:
                answers = False
            now, cpu = loop.time(), probe.cpu_seconds(pid)
            if patience.lost(now - seen, cpu - used, answers=answers):
                self.hung += 1
                log.error("child.hung", extra={"child": self.name, "pid": pid, "times": self.hung})
                if self._process is not None and self._process.pid == pid:
                    with contextlib.suppress(ProcessLookupError):
                        self._process.kill()
                return
            seen, used = now, cpu

    async def end(self, seconds: float) -> None:
        """Terminate the process, and kill it if it takes longer than `seconds`."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(seconds):
                await process.wait()
        except TimeoutError:
            log.warning("child.killed", extra={"child": self.name, "after_seconds": seconds})
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def noted(notes: Sequence[Path], pid: int) -> str:
    """Wait until a service with this pid has written its notes, and return the HTTP address in the first."""
    while any(read(note, pid) is None for note in notes):  # noqa: ASYNC110 # files have no events
        await asyncio.sleep(0.05)
    return read(notes[0], pid) or ""


def read(note: Path, pid: int = 0) -> str | None:
    """Return the address in the note of a service with this pid (0: any); None: it has not written one."""
    with contextlib.suppress(OSError, ValueError):
        content = json.loads(note.read_text())
        if pid in (0, content.get("pid")):
            return str(content["http"])
    return None


async def listening(port: int, name: str) -> str:
    """Wait until the NATS server whose name has this part listens on a loopback port, and no other that took it."""
    while not await probe.nats(port, name):  # noqa: ASYNC110 # sockets of other processes have no events
        await asyncio.sleep(0.05)
    return ""


def end_with(parent: int, sign: signal.Signals) -> None:
    """Let the kernel send this process a signal when its parent dies; called between fork and exec."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, sign)
    if os.getppid() != parent:  # the parent died between fork and prctl
        os._exit(1)


async def _start(recipe: Recipe, environ: Mapping[str, str] | None) -> asyncio.subprocess.Process:
    parent = os.getpid()

    def prepare() -> None:
        os.nice(recipe.nice)
        # A session is a group of its own for the scheduler, within which alone `nice` counts.
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(str(recipe.nice))
        end_with(parent, signal.SIGTERM)

    with contextlib.ExitStack() as stack:
        output = stack.enter_context(recipe.log_file.open("ab")) if recipe.log_file else None
        return await asyncio.create_subprocess_exec(
            *recipe.command,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C reaches it only through the supervisor
            preexec_fn=prepare,
            pass_fds=() if recipe.folder is None else (recipe.folder.descriptor,),
        )
