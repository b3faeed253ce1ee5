"""A real `spazio up` for tests: started as a user starts it, reached as a user reaches it."""

import asyncio
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import nats
import nats.js.errors

from schemas.subject import token
from tests.support.server.program import stopped

Value = TypeVar("Value")


def until(probe: Callable[[], Value], seconds: float, what: str) -> Value:
    """Wait until a probe gives something true, at most so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = probe()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


class Up:
    """A running pipeline."""

    def __init__(self, folder: Path, process: subprocess.Popen[str], log: Path) -> None:
        self.folder, self.process, self.log = folder, process, log

    @property
    def addresses(self) -> dict[str, Any]:
        try:
            content: dict[str, Any] = json.loads((self.folder / "addresses.json").read_text())
        except (OSError, ValueError):
            return {}
        return content

    def pid(self, name: str) -> int:
        return int(self.addresses.get("pids", {}).get(name, 0))

    def page(self, service: str, path: str) -> tuple[int, str]:
        url = self.addresses.get("services", {}).get(service, "http://127.0.0.1:9") + path
        try:
            try:
                answer = urllib.request.urlopen(url, timeout=5)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):  # it is not there, or ended while it answered
            return 0, ""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return spazio(*arguments, "--data-dir", str(self.folder))

    def sql(self, statement: str) -> list[dict[str, Any]]:
        answer = self.run("sql", statement, "--json")
        assert answer.returncode == 0, answer.stderr
        rows: list[dict[str, Any]] = json.loads(answer.stdout)
        return rows

    def top(self) -> list[dict[str, Any]]:
        answer = self.run("top", "--once", "--json")
        assert answer.returncode == 0, answer.stderr
        rows: list[dict[str, Any]] = json.loads(answer.stdout)
        return rows

    def is_fresh(self) -> bool:
        """Tell whether `spazio top` shows a number of the last three seconds; the server may be away meanwhile."""
        answer = self.run("top", "--once", "--json")
        assert answer.returncode == 0 or "Traceback" not in answer.stderr, answer.stderr
        return answer.returncode == 0 and any(row["age_seconds"] < 3 for row in json.loads(answer.stdout))

    def cached(self) -> dict[str, Any]:
        """Return this host's row of the scheduler cache; cheap, where starting a command would be load itself."""

        async def once() -> bytes:
            client = await nats.connect(self.addresses["nats"], user_credentials=self.addresses["credentials"])
            try:
                bucket = await client.jetstream().key_value("SPAZIO_AVAILABILITY")
                return (await bucket.get(token(socket.gethostname()))).value or b""
            finally:
                await client.close()

        row: dict[str, Any] = json.loads(asyncio.run(once()))
        return row

    def is_cached(self) -> bool:
        """Tell whether the scheduler cache has this host."""
        try:
            return bool(self.cached())
        except nats.js.errors.NotFoundError:  # a missing key is one
            return False

    def stop(self, sign: signal.Signals = signal.SIGINT) -> float:
        """End it by a signal; returns how long that took."""
        began = time.monotonic()
        self.process.send_signal(sign)
        self.process.wait(20)
        return time.monotonic() - began

    def publish(self, subject: str, payload: bytes) -> None:
        async def once() -> None:
            client = await nats.connect(self.addresses["nats"], user_credentials=self.addresses["credentials"])
            await client.jetstream().publish(subject, payload)
            await client.close()

        asyncio.run(once())


def spazio(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command of spazio to its end."""
    return subprocess.run(
        [sys.executable, "-m", "spazio", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environ},
    )


@contextmanager
def up(folder: Path, *arguments: str, **environ: str) -> Iterator[Up]:
    """Run `spazio up` until its screen is there; killed at the end if it still lives."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    log = folder.with_suffix(".log")
    with log.open("a") as output:
        start = output.tell()
        command = [
            sys.executable,
            "-m",
            "spazio",
            "up",
            "--data-dir",
            str(folder),
            "--nats-port",
            "0",
            "--http-port",
            "0",
        ]
        process = subprocess.Popen(
            [*command, *arguments], stdout=output, stderr=output, text=True, env={**os.environ, **environ}
        )
    running = Up(folder, process, log)
    try:
        until(lambda: "try next" in log.read_text()[start:] or process.poll() is not None, 30, "the screen")
        assert process.poll() is None, log.read_text()
        yield running
    finally:
        if process.poll() is None:
            running.stop()


def alive(pid: int) -> bool:
    """Tell whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def again(running: Up, name: str, old: int) -> bool:
    """Tell whether a child runs again that had this pid."""
    return running.pid(name) not in (0, old)


def set_back(running: Up, copy: Path) -> None:
    """Have the server come back with its storage as it was some seconds before, as after a loss of power."""
    storage, server = running.folder / "nats" / "jetstream", running.pid("nats")
    with stopped(server):  # it makes files and removes them
        shutil.copytree(storage, copy)
    time.sleep(3)  # real seconds of blocks, which are then lost
    with stopped(running.process.pid):  # so that it starts the server only when the storage is back
        os.kill(server, signal.SIGKILL)
        until(lambda: not alive(server), 5, "the server is dead")
        shutil.rmtree(storage)
        shutil.copytree(copy, storage)
    until(partial(again, running, "nats", server), 15, "nats again")
