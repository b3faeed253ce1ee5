"""Fixtures that several kinds of tests use: a real nats-server, and settings that point at it."""

import asyncio
import faulthandler
import functools
import gc
import inspect
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from nats.aio.client import Client

from bus import connection, server, stream
from schemas import settings as all_settings
from schemas.settings import Settings
from tests.support.server.natsd import Natsd

# A slow machine is no fault of the code: examples are not timed.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

# A shell has what it starts in the background ignore Ctrl-C, and tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of tests without a slow one where slow tests alone are wanted."""
    if not str(config.option.markexpr).startswith("slow") or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text()
    return None if "mark.slow" in text or "mark.cases" in text else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark all cases but the first of each test that is marked `cases` as slow, and end coroutines that hang."""
    begun = set()
    seconds = _limit(config)
    for item in items:
        if seconds and isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = _bounded(item.obj, 0.75 * seconds)
        if item.get_closest_marker("cases"):
            test = item.nodeid.partition("[")[0]
            if test in begun:
                item.add_marker(pytest.mark.slow)
            begun.add(test)


def _bounded(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    """Return a test that fails where it waits if it takes too long: the stack of its thread says nothing of that."""

    @functools.wraps(test)
    async def bounded(*args: Any, **kwargs: Any) -> None:
        running = asyncio.ensure_future(test(*args, **kwargs))
        try:
            await asyncio.wait({running}, timeout=seconds)
            late = not running.done()
            while not running.done():  # what it waits for may take a cancellation for something else
                running.cancel(f"not done after {seconds:.0f} s")
                await asyncio.wait({running}, timeout=1)
            await running
        finally:
            running.cancel()
        assert not late, f"done only when it was cancelled after {seconds:.0f} s"

    return bounded


def _limit(config: pytest.Config) -> float:
    """Return the seconds after which a test that hangs ends its process; 0: none does."""
    return float(config.getini("faulthandler_timeout") or 0)


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """Set the limit once more: pytest takes it away from a test that has failed, and cleaning up may hang, too."""
    if isinstance(node, pytest.Item) and (seconds := _limit(node.config)):
        faulthandler.dump_traceback_later(seconds, exit=True, file=2)


def pytest_collection_finish() -> None:
    """Keep the thousands of collected tests out of every later collection of garbage: a tenth of the CPU time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Collect everything at the end: DuckDB's bindings report what is left, behind the last line of pytest."""
    gc.unfreeze()


class NatsServer(Natsd):
    """A server as `spazio up` starts its own."""

    def __init__(self, folder: Path) -> None:
        settings, port = all_settings.load({"data_dir": str(folder)}, environ={}), server.free_port(0)
        super().__init__(server.write_config(settings, port), port)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the developer's shell must not reach a test."""
    for name in [name for name in os.environ if name.startswith("SPAZIO_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    running = NatsServer(tmp_path)
    running.start()
    yield running
    running.kill()


@pytest.fixture
def settings(nats_server: NatsServer, tmp_path: Path) -> Settings:
    return all_settings.load(
        {
            "nats_url": nats_server.url,
            "data_dir": str(tmp_path / "data"),
            "nats_partitions": "2",
            "nats_request_timeout_seconds": "1",
            "nats_telemetry_max_bytes": str(64 << 20),
            "nats_estimates_max_bytes": str(64 << 20),
            "history_retention_seconds": str(86_400 * 36_500),  # times in tests are years ago
        },
        environ={},
    )


@pytest.fixture
async def client(settings: Settings) -> AsyncIterator[Client]:
    async with connection.connect(settings, "test") as connected:
        await stream.ensure(connected, settings)
        yield connected


@pytest.fixture
def unprivileged(tmp_path: Path) -> Iterator[None]:
    """Permissions bind root only when it steps down; folders above the test's stay passable."""
    if os.geteuid():
        yield
        return
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(folder.stat().st_mode | 0o055)
    os.seteuid(65534)
    yield
    os.seteuid(0)
