"""What runs but does nothing is ended and started again, and what works is left alone."""

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bus.health import Health
from schemas.sections.bus import Http
from spazio.service import child
from spazio.service.child import Child, Recipe
from spazio.service.liveness import probe
from spazio.service.liveness.loop_guard import LoopGuard
from spazio.service.liveness.patience import Patience
from spazio.service.monitor import Monitor

# A service in miniature: its event loop serves /healthz, and it writes its address as services do.
SERVICE = """
import asyncio, json, os, sys
async def answer(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.0 200 OK\\r\\n\\r\\nok")
    writer.close()
async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    note = sys.argv[1]
    open(note + ".new", "w").write(json.dumps({"pid": os.getpid(), "http": f"http://127.0.0.1:{port}"}))
    os.replace(note + ".new", note)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def checks(patience: Patience, count: int, *, cpu: float = 0.0, answers: bool = False) -> list[bool]:
    return [patience.lost(5.0, cpu, answers=answers) for _ in range(count)]


def test_a_process_that_neither_answers_nor_computes_is_lost_after_the_shorter_time() -> None:
    patience = Patience(30.0, 300.0)
    assert patience.check_seconds == 5.0
    assert checks(patience, 6) == [False] * 5 + [True]


def test_one_that_computes_has_the_longer_time() -> None:
    assert checks(Patience(30.0, 300.0), 60, cpu=4.0) == [False] * 59 + [True]
    patience = Patience(30.0, 300.0)
    checks(patience, 5)
    checks(patience, 1, cpu=4.0)
    assert checks(patience, 6) == [False] * 5 + [True]


def test_an_answer_makes_all_good() -> None:
    patience = Patience(30.0, 300.0)
    assert not any(checks(patience, 5))
    checks(patience, 1, answers=True)
    assert not any(checks(patience, 5))


def test_a_machine_that_slept_finds_nothing_lost() -> None:
    patience = Patience(30.0, 300.0)
    assert not patience.lost(86_400.0, 0.0, answers=False)
    assert not patience.lost(5.0, 0.0, answers=False)


@pytest.mark.slow
@pytest.mark.parametrize("harm", [signal.SIGSTOP, None], ids=["stopped", "not answering"])
async def test_a_hung_child_is_killed_and_started_again(tmp_path: Path, harm: signal.Signals | None) -> None:
    note, answers = tmp_path / "note.json", [True]

    async def page(address: str) -> bool:
        return answers[0] and await probe.page(address)

    recipe = Recipe(
        "mini", [sys.executable, "-c", SERVICE, str(note)], lambda pid: child.noted([note], pid), answers=page
    )
    running = Child(recipe, lambda: None, lambda: Patience(0.4, 30.0))
    task = asyncio.create_task(running.run())
    try:
        async with asyncio.timeout(60):
            await running.ready.wait()
            first = running.pid
            await asyncio.sleep(0.6)
            assert (running.pid, running.hung) == (first, 0)
            if harm is None:
                answers[0] = False
            else:
                os.kill(first, harm)
            while running.hung == 0:  # noqa: ASYNC110 # nobody tells
                await asyncio.sleep(0.02)
            answers[0] = True
            while running.pid in (0, first) or not running.ready.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            assert (running.hung, running.restarts) == (1, 1)
            assert await probe.page(running.http)
    finally:
        task.cancel()
        await running.end(2.0)


async def test_a_nats_server_that_greets_is_well_and_anything_else_is_not() -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting[0])
        writer.close()

    greeting = [b'INFO {"server_name":"spazio-embedded-1f","version":"2.14.0"}\r\n']
    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        assert await probe.nats(port)
        assert await probe.nats(port, "-1f")
        assert not await probe.nats(port, "-2f")
        greeting[0] = b"HTTP/1.1 400 Bad Request\r\n"
        assert not await probe.nats(port)
    assert not await probe.nats(port)


def test_the_cpu_time_of_a_process_is_what_the_kernel_counts() -> None:
    before = time.process_time()
    assert probe.cpu_seconds(os.getpid()) == pytest.approx(before, abs=0.1)
    assert probe.cpu_seconds(2**22 + 1) == 0.0


def guarded(work: Callable[[], None], http: Http) -> bool:
    """Run work within a guarded event loop; tell whether the guard ended it."""
    ended = threading.Event()

    async def main() -> None:
        guard = LoopGuard(asyncio.get_running_loop(), http, ended.set)
        await asyncio.sleep(0.1)
        work()
        await asyncio.sleep(0.1)
        guard.close()

    asyncio.run(main())
    return ended.is_set()


def _compute(seconds: float) -> None:
    end = time.process_time() + seconds  # other load on the machine does not count
    while time.process_time() < end:
        sum(range(1000))


@pytest.mark.slow
def test_a_process_whose_event_loop_waits_for_something_else_ends_and_one_that_computes_does_not() -> None:
    http = Http(hung_seconds=0.2, busy_seconds=30)
    assert guarded(lambda: time.sleep(0.6), http)
    assert not guarded(lambda: _compute(0.6), http)
    assert guarded(lambda: _compute(0.8), Http(hung_seconds=0.2, busy_seconds=0.4))
    assert not guarded(lambda: None, http)


def test_a_stuck_process_ends_with_status_1_and_its_stacks() -> None:
    program = (
        "import asyncio, time\n"
        "from schemas.sections.bus import Http\n"
        "from spazio.service.liveness.loop_guard import LoopGuard\n"
        "async def main():\n"
        "    LoopGuard(asyncio.get_running_loop(), Http(hung_seconds=0.3))\n"
        "    time.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    ran = _run(program)
    assert ran[0] == 1
    assert "service.stuck" in ran[1]
    assert "in main" in ran[1]


def _run(program: str) -> tuple[int, str]:
    import subprocess

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stderr


async def test_a_service_whose_server_hangs_is_well_and_one_that_does_not_listen_is_not() -> None:
    health = Health()
    monitor = Monitor("127.0.0.1", 0, health, lambda: True)
    try:
        assert await probe.page(monitor.address)
        health.degrade("connection", "nobody answers", dead=True)
        assert await probe.page(monitor.address)
    finally:
        monitor.close()
    assert not await probe.page(monitor.address)


async def test_pages_are_served_at_an_address_of_version_6_too() -> None:
    monitor = Monitor("::1", 0, Health(), lambda: True)
    try:
        assert monitor.address.startswith("http://[::1]:")
        assert await probe.page(monitor.address)
    finally:
        monitor.close()
