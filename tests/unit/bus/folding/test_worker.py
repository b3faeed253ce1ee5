"""The thread of folds: the loop goes on, one function at a time, and no function outlives its caller's cleaning up."""

import asyncio
import threading
import time

import pytest

from bus.folding.worker import Worker


async def test_the_loop_goes_on_while_functions_run_one_after_another() -> None:
    worker, running, most = Worker(), 0, 0
    first, go_on = threading.Event(), threading.Event()

    def fold() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        first.set()
        go_on.wait(10)
        running -= 1
        return threading.get_ident()

    calls = [asyncio.create_task(worker.run(fold)) for _ in range(3)]
    while not first.is_set():  # noqa: ASYNC110 # the loop must turn
        await asyncio.sleep(0)
    go_on.set()
    threads = await asyncio.gather(*calls)
    assert most == 1
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


async def test_a_cancelled_caller_waits_for_its_running_function_and_drops_a_waiting_one() -> None:
    worker, go_on, events = Worker(), threading.Event(), list[str]()

    def fold() -> None:
        events.append("begun")
        go_on.wait(10)
        events.append("ended")

    async def call(name: str) -> None:
        try:
            await worker.run(fold)
        finally:
            events.append(f"{name} cleans up")

    running, waiting = asyncio.create_task(call("running")), asyncio.create_task(call("waiting"))
    while not events:  # noqa: ASYNC110 # another thread adds them
        await asyncio.sleep(0)
    for task in (running, waiting):
        task.cancel()
    await asyncio.wait([waiting])
    running.cancel()
    await asyncio.sleep(0.01)
    go_on.set()
    await asyncio.wait([running])
    assert events == ["begun", "waiting cleans up", "ended", "running cleans up"]
    assert running.cancelled()
    assert await worker.run(time.monotonic) > 0


async def test_an_exception_of_a_function_reaches_its_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        await Worker().run(lambda: 1 // 0)


async def test_a_function_that_does_not_end_is_reported() -> None:
    stuck = asyncio.Event()
    worker, go_on = Worker(0.05, stuck.set), threading.Event()
    running = asyncio.create_task(worker.run(go_on.wait, 10))
    async with asyncio.timeout(5):
        await stuck.wait()
    go_on.set()
    assert await running
