"""The health check of the images says what the service says."""

import asyncio
import threading

import pytest

from bus.health import Health
from spazio import health
from spazio.service.monitor import Monitor


async def ask(monitor: Monitor, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setenv("SPAZIO_HTTP_PORT", monitor.address.rpartition(":")[2])
    return await asyncio.to_thread(health.main, arguments)


async def test_a_service_is_well_if_it_is_ready_and_else_the_check_shows_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state = Health()
    monitor = Monitor("127.0.0.1", 0, state, lambda: True)
    try:
        assert await ask(monitor, monkeypatch) == 0
        state.degrade("history", "the disk is full")
        assert await ask(monitor, monkeypatch) == 1
        assert "the disk is full" in capsys.readouterr().out
        assert await ask(monitor, monkeypatch, "/healthz") == 0
        assert await ask(monitor, monkeypatch, "/nonsense") == 1
        state.degrade("connection", "nobody answers", dead=True)
        assert await ask(monitor, monkeypatch, "/healthz") == 0
        assert await ask(monitor, monkeypatch) == 1
        assert "nobody answers" in capsys.readouterr().out
    finally:
        monitor.close()


async def test_a_monitor_that_was_closed_leaves_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(threading.enumerate())
    monitor = Monitor("127.0.0.1", 0, Health(), lambda: True)
    assert {thread.name for thread in set(threading.enumerate()) - before} == {"monitor"}
    (serving,) = set(threading.enumerate()) - before
    assert await ask(monitor, monkeypatch, "/healthz") == 0
    monitor.close()
    assert not serving.is_alive()


async def test_a_service_that_does_not_listen_is_not_well(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monitor = Monitor("127.0.0.1", 0, Health(), lambda: True)
    monitor.close()
    assert await ask(monitor, monkeypatch) == 1
    assert "nothing answers" in capsys.readouterr().out
