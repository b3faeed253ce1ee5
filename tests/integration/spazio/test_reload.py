"""SIGHUP to real services: what may change does at once, bad settings change nothing, and nobody ends."""

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from schemas import codec
from schemas import settings as all_settings
from schemas.settings import Settings
from schemas.subject import Names
from tests.support.processors import telemetry


class Service:
    """A service with a file of settings, and what it logs."""

    def __init__(self, process: subprocess.Popen[bytes], config: Path, log: Path) -> None:
        self.process, self._config, self._log = process, config, log

    def set(self, content: str) -> None:
        self._config.write_text(content)
        self.process.send_signal(signal.SIGHUP)

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]


def until(true: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if result := true():
            return result
        time.sleep(0.05)
    raise AssertionError("it did not come true")


@contextmanager
def running(settings: Settings, folder: Path, content: str, *arguments: str) -> Iterator[Service]:
    config, log = folder / "spazio.toml", folder / "service.log"
    config.write_text(content)
    environ = {**os.environ, **all_settings.environment(settings), "SPAZIO_HTTP_PORT": "0"}
    command = [sys.executable, "-m", "spazio", *arguments, "--config", str(config)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environ, stderr=output)
    try:
        service = Service(process, config, log)
        until(lambda: service.logged("service.started"))
        yield service
    finally:
        process.kill()
        process.wait()


def files(settings: Settings) -> list[Path]:
    return [path for path in settings.history_dir.glob("samples/**/*.parquet") if path.name != "empty.parquet"]


@pytest.mark.slow
async def test_history_is_flushed_as_new_settings_say_without_a_restart(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    js = client.jetstream()
    with running(settings, tmp_path, "[history]\nflush_seconds = 3600\n", "sink", "history") as service:
        for second in range(3):
            block = codec.encode(telemetry.block("n", second))
            await js.publish(Names().node("samples", "n"), block)
        await asyncio.sleep(2)
        assert not files(settings)
        service.set("[history]\nflush_seconds = 0.2\n")
        await asyncio.to_thread(until, lambda: files(settings))
        (record,) = service.logged("settings.reloaded")
        assert record["applied"] == "history_flush_seconds"
        assert service.process.poll() is None


@pytest.mark.slow
async def test_processors_checkpoint_as_new_settings_say_without_a_restart(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    note = settings.data.dir / "run" / "process.json"

    def written() -> float:
        with urllib.request.urlopen(json.loads(note.read_text())["http"] + "/metrics", timeout=2) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("spazio_checkpoints_total{"))

    async def publish() -> None:
        for second in range(1000):
            block = telemetry.block("n", second)
            await client.jetstream().publish(Names().node("samples", "n"), codec.encode(block))
            await asyncio.sleep(0.05)

    publishing = asyncio.create_task(publish())
    with running(settings, tmp_path, "[process]\ncheckpoint_seconds = 0.2\n", "process") as service:
        await asyncio.to_thread(until, lambda: written() >= 3)
        service.set("[process]\ncheckpoint_seconds = 3600\n")
        await asyncio.to_thread(until, lambda: service.logged("settings.reloaded"))

        def rests() -> bool:
            before = written()
            time.sleep(2)
            return written() == before

        await asyncio.to_thread(until, rests)  # what was begun before may take a while on a busy machine
    publishing.cancel()


@pytest.mark.slow
def test_the_rest_needs_a_restart_and_bad_settings_change_nothing(settings: Settings, tmp_path: Path) -> None:
    with running(settings, tmp_path, "", "sink", "cache") as service:
        service.set('[log]\nlevel = "loud"\n[cache]\nexpiry_seconds = 0\n')
        (refused,) = until(lambda: service.logged("settings.refused"))
        assert len(refused["faults"]) == 2
        service.set('[log]\nlevel = "debug"\n[cache]\nexpiry_seconds = 40\n')
        (waiting,) = until(lambda: service.logged("settings.deferred"))
        assert waiting["settings"] == "cache_expiry_seconds"
        assert service.logged("settings.reloaded")[0]["applied"] == "log_level"
        service.set('[log]\nlevel = "error"\n')
        time.sleep(1)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(10) == 0
        assert not service.logged("service.stopping")  # the new level hides it


def ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("gone", [True, False])
def test_the_end_of_its_terminal_ends_a_service_as_before(settings: Settings, gone: bool) -> None:
    environ = {**os.environ, **all_settings.environment(settings), "SPAZIO_HTTP_PORT": "0"}
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests are started to ignore it
        os.execve(sys.executable, [sys.executable, "-m", "spazio", "sink", "cache"], environ)
    try:
        note = settings.data.dir / "run" / "cache.json"
        until(lambda: note.exists() and ready(json.loads(note.read_text())["http"]))
        if not gone:
            os.kill(pid, signal.SIGHUP)
            time.sleep(1.5)
            assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        os.close(terminal)
        until(lambda: not note.exists())
    finally:
        os.kill(pid, signal.SIGKILL)  # it is not waited for yet, so this is still its number
        os.waitpid(pid, 0)
