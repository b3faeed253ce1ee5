"""By how much the agent delays jobs that compute (table T1 of the dissertation), on this machine.

    python -m benchmarks.overhead [--pairs 30] [--work 4] [--json]

A job is one process for each CPU that computes digits of pi, all of the same work; its time is that of the last one. A
pair is a job with the agent and a job without, right after each other and in random order, so that slow changes of the
machine (temperature, neighbours) reach both alike. The overhead is the mean over pairs of the logarithm of the ratio of
their times, with a bootstrap interval over pairs. The agent runs during all of it and is stopped by a signal (SIGSTOP)
for a job without it, so that no start is measured; the NATS server that it publishes to runs in both, since it runs
elsewhere in a cluster. Run it while nothing else does: 30 pairs of 4 s take about 5 minutes.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.agent import process, served

Array = NDArray[np.float64]

_WARM_SECONDS, _PAUSE_SECONDS = 5.0, 0.2
_RESAMPLES, _SEED = 10_000, 1
_DIGITS = """
import sys
def digits(count):
    q, r, t, k, n, l = 1, 0, 1, 1, 3, 3
    while count:
        if 4 * q + r - t < n * t:
            count -= 1
            q, r, n = 10 * q, 10 * (r - n * t), 10 * (3 * q + r) // t - 10 * n
        else:
            q, r, t, k, n, l = q * k, (2 * q + r) * l, t * l, k + 1, (q * (7 * k + 2) + r * l) // (t * l), l + 2
for _ in range(int(sys.argv[1])):
    digits(300)
"""


class Overhead(NamedTuple):
    """What pairs of jobs say.

    Attributes:
        mean: By which share a job takes longer with the agent.
        low, high: Bounds of its 95 % interval.
    """

    mean: float
    low: float
    high: float


def job(turns: int, processes: int) -> float:
    """Run a job; return its seconds."""
    command = [sys.executable, "-I", "-c", _DIGITS, str(turns)]
    began = time.perf_counter()
    started = [subprocess.Popen(command) for _ in range(processes)]
    for each in started:
        if each.wait():
            raise RuntimeError(f"a process of the job ended with status {each.returncode}")
    return time.perf_counter() - began


def calibrated(seconds: float, processes: int) -> int:
    """Return the turns with which a job takes about so long here."""
    few, many = job(5, processes), job(25, processes)
    return max(1, round(20 * seconds / max(many - few, 1e-3)))


def measure(pairs: int, run: Callable[[], float], pause: Callable[[bool], None], dice: random.Random) -> Array:
    """Return the seconds (pairs, 2) of jobs without and with the agent.

    Args:
        pairs: How many.
        run: Runs a job.
        pause: Stops the agent, or lets it go on.
        dice: Decides which job of a pair comes first.
    """
    times = np.empty((pairs, 2))
    for pair in range(pairs):
        for with_agent in dice.sample((0, 1), 2):
            pause(not with_agent)
            times[pair, with_agent] = run()
    pause(False)
    return times


def overhead(times: Array) -> Overhead:
    """Return the overhead by pairs (pairs, 2) of seconds without and with the agent.

    >>> overhead(np.array([[10.0, 10.1], [20.0, 20.2]])).mean.__round__(4)
    0.01
    """
    ratios = np.log(times[:, 1] / times[:, 0])
    drawn = np.random.default_rng(_SEED).integers(0, len(ratios), (_RESAMPLES, len(ratios)))
    low, high = np.percentile(ratios[drawn].mean(axis=1), (2.5, 97.5))
    return Overhead(*(float(np.expm1(value)) for value in (ratios.mean(), low, high)))


@contextmanager
def agent() -> Iterator[Callable[[bool], None]]:
    """Run an agent with its server; yield what stops it for a while and lets it go on."""
    with served() as environ, process([sys.executable, "-m", "spazio", "agent"], environ) as started:
        time.sleep(_WARM_SECONDS)
        if started.poll() is not None:
            raise RuntimeError(f"the agent ended with status {started.returncode}")

        def pause(stopped: bool) -> None:
            started.send_signal(signal.SIGSTOP if stopped else signal.SIGCONT)
            time.sleep(_PAUSE_SECONDS)

        try:
            yield pause
        finally:
            started.send_signal(signal.SIGCONT)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--work", type=float, default=4.0, help="seconds of a job, about")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    processes = len(os.sched_getaffinity(0))
    turns = calibrated(asked.work, processes)
    with agent() as pause:
        times = measure(asked.pairs, lambda: job(turns, processes), pause, random.Random(_SEED))
    result = overhead(times)
    if asked.json:
        document = {"pairs": asked.pairs, "processes": processes, "seconds": times.mean(axis=0).round(3).tolist()}
        print(json.dumps(document | {name: round(value, 5) for name, value in result._asdict().items()}))
        return
    without, beside = times.mean(axis=0).tolist()
    print(
        f"{asked.pairs} pairs of jobs of {processes} processes: {without:.2f} s without, {beside:.2f} s with the agent"
    )
    print(f"overhead {100 * result.mean:.2f} % (95 %: {100 * result.low:.2f} to {100 * result.high:.2f} %)")


if __name__ == "__main__":
    main()
