"""By how much the agent delays jobs that compute (table T1 of the dissertation), on this machine.

    python -m benchmarks.overhead [--pairs 300] [--work 1] [--json]

A job is many equal units of work, as its pods are, each of which computes digits of pi; as many processes as there are
CPUs take them from one queue. A pair is a job with the agent and a job without, right after each other and in random
order, so that slow changes of the machine (temperature, neighbours) reach both alike. Neighbours change within seconds,
so many short pairs say more than few long ones, and a few pairs say nothing: the processes stay and wait between two
jobs, and the overhead is the mean of the logarithm of the ratio of times over pairs without the fifth at either end,
with a bootstrap interval over pairs. The agent runs during all of it and is stopped by a signal (SIGSTOP) for a job
without it, so that no start is measured; the NATS server that it publishes to runs in both, on the same CPUs, though it
runs elsewhere in a cluster. Run it while nothing else does: 300 pairs of 1 s take about 12 minutes.
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
from contextlib import contextmanager, suppress
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.agent import process, served

Array = NDArray[np.float64]

_WARM_SECONDS, _PAUSE_SECONDS = 5.0, 0.1
_MOST_UNITS = 65_536  # that fit into a pipe
_RESAMPLES, _SEED, _TRIMMED = 10_000, 1, 0.2
_DIGITS = """
import os
def digits(count):
    q, r, t, k, n, l = 1, 0, 1, 1, 3, 3
    while count:
        if 4 * q + r - t < n * t:
            count -= 1
            q, r, n = 10 * q, 10 * (r - n * t), 10 * (3 * q + r) // t - 10 * n
        else:
            q, r, t, k, n, l = q * k, (2 * q + r) * l, t * l, k + 1, (q * (7 * k + 2) + r * l) // (t * l), l + 2
while os.read(0, 1):
    digits(500)
    os.write(1, b".")
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


class Workers:
    """Processes that compute, one for each CPU, for the length of a `with` block; between jobs they wait.

    Attributes:
        count: How many.
        running: They.
    """

    def __init__(self) -> None:
        self.count = len(os.sched_getaffinity(0))
        self.running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        queue, self._to_do = os.pipe()
        self._done, finished = os.pipe()
        command = [sys.executable, "-I", "-c", _DIGITS]
        self.running += [subprocess.Popen(command, stdin=queue, stdout=finished) for _ in range(self.count)]
        os.close(queue)
        os.close(finished)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._to_do)
        for each in self.running:
            each.wait()
        os.close(self._done)

    def job(self, units: int) -> float:
        """Let the processes do so many units; return the seconds until the last one was done.

        Raises:
            RuntimeError: They have ended.
        """
        began, left = time.perf_counter(), units
        with suppress(BrokenPipeError):
            os.write(self._to_do, b"." * units)
        while left:
            if not (done := os.read(self._done, left)):
                raise RuntimeError("the processes of the job have ended")
            left -= len(done)
        return time.perf_counter() - began

    def calibrated(self, seconds: float) -> int:
        """Return the units with which a job takes about so long here."""
        self.job(50)
        return min(max(1, round(50 * seconds / self.job(50))), _MOST_UNITS)


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
    low, high = np.percentile(_middle(ratios[drawn]), (2.5, 97.5))
    return Overhead(*(float(np.expm1(value)) for value in (_middle(ratios), low, high)))


def _middle(ratios: Array) -> Array:
    """Return the mean over the last axis without the fifth at either end."""
    cut = int(_TRIMMED * ratios.shape[-1])
    return np.asarray(np.sort(ratios, axis=-1)[..., cut : ratios.shape[-1] - cut].mean(axis=-1))


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


def run(pairs: int, seconds: float) -> tuple[Array, int]:
    """Return the seconds (pairs, 2) of jobs without and with the agent, and the processes of a job.

    Args:
        pairs: How many.
        seconds: Of a job, about.
    """
    with Workers() as workers, agent() as pause:
        units = workers.calibrated(seconds)
        return measure(pairs, lambda: workers.job(units), pause, random.Random(_SEED)), workers.count


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--work", type=float, default=1.0, help="seconds of a job, about")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    times, processes = run(asked.pairs, asked.work)
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
