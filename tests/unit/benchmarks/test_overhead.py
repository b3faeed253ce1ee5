"""The overhead of the agent: pairs in random order, an interval over them, and a real agent that is stopped."""

import asyncio
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.agent import process, served
from benchmarks.overhead import __main__ as benchmark
from bus import connection, stream
from schemas import settings as all_settings
from schemas.settings import Settings
from schemas.subject import Names


def test_pairs_have_one_job_with_and_one_without_the_agent_in_random_order() -> None:
    order: list[bool] = []
    state = [True]

    def run() -> float:
        order.append(state[0])
        return 2.0 if state[0] else 1.0

    def pause(stopped: bool) -> None:
        state[0] = not stopped

    times = benchmark.measure(20, run, pause, random.Random(1))
    assert times.tolist() == [[1.0, 2.0]] * 20
    pairs = np.array(order).reshape(-1, 2)
    assert (pairs.sum(axis=1) == 1).all()
    assert 0 < pairs[:, 0].sum() < 20
    assert state == [True]


def test_the_interval_has_the_mean_and_narrows_with_more_pairs() -> None:
    noise = np.random.default_rng(1).normal(0, 0.01, 400)
    times = np.stack((np.full(400, 10.0), 10.0 * np.exp(0.005 + noise)), axis=1)
    few, many = benchmark.overhead(times[:20]), benchmark.overhead(times)
    for each in (few, many):
        assert each.low < each.mean < each.high
    assert many.high - many.low < 0.4 * (few.high - few.low)
    assert many.low < 0.005 < many.high
    assert benchmark.overhead(times) == many


def test_a_few_pairs_that_something_else_disturbed_say_nothing() -> None:
    times = np.stack((np.full(50, 10.0), np.full(50, 10.1)), axis=1)
    times[:9, 1] = 30.0
    assert benchmark.overhead(times).mean == pytest.approx(0.01)


def test_processes_do_one_job_after_another_and_a_job_without_processes_fails() -> None:
    with benchmark.Workers() as workers:
        assert workers.count >= 1
        assert all(workers.job(20) > 0 for _ in range(3))
        for each in workers.running:
            each.kill()
        with pytest.raises(RuntimeError, match="the processes of the job have ended"):
            workers.job(20)


@pytest.mark.slow
def test_a_benchmarked_agent_stores_its_blocks() -> None:
    with served() as environ, process([sys.executable, "-m", "spazio", "agent"], environ):
        settings = all_settings.load({"nats_url": environ["SPAZIO_NATS_URL"]}, environ={})
        stored = asyncio.run(_stored(settings, 3))
    assert stored >= 3


async def _stored(settings: Settings, least: int) -> int:
    """Wait until the telemetry stream has so many messages; return how many it has."""
    async with asyncio.timeout(30), connection.connect(settings, "test") as client:
        while (last := (await stream.describe(client, Names(settings.prefix).telemetry)).last) < least:  # noqa: ASYNC110 # a server stores
            await asyncio.sleep(0.1)
        return last


@pytest.mark.slow
def test_two_short_pairs_beside_a_real_agent() -> None:
    command = [sys.executable, "-m", "benchmarks.overhead", "--pairs", "2", "--work", "0.3", "--json"]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, check=False, text=True, cwd=root, timeout=120)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["pairs"] == 2
    assert all(seconds > 0 for seconds in document["seconds"])
    assert document["low"] <= document["mean"] <= document["high"]
