"""One pod of a workload family; a program that needs only the standard library.

It works until it is killed, and prints a line for each finished piece of work: its end (microseconds of
CLOCK_REALTIME), the time taken, and the time that it would have taken alone (both in microseconds; 0: unknown).
Requests are measured in CPU time and arrive by a seed, so their time alone is known: the response time of a single
server is `max(arrival, end of the previous request) + work - arrival` (Lindley's recursion). So slowdown does not
depend on which requests arrived. Endless work is counted in turns of a loop, and its slowdown is relative to the time
of one pod.
"""

import argparse
import mmap
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

BUFFER = 64 << 20
_PAGE = 4096
_TURNS_A_SECOND = 1e8  # approximate; pieces of endless work consist of turns
_BLOCK = 4 << 20


def turn(turns: int) -> None:
    """Work for a number of turns."""
    for _ in range(turns):
        pass


def spend(seconds: float) -> None:
    """Work for a CPU time in seconds."""
    ending = time.thread_time() + seconds
    while time.thread_time() < ending:
        turn(1000)


def _report(end: float, took: float, alone: float) -> None:
    sys.stdout.write(f"{round(end * 1e6)} {round(took * 1e6)} {round(alone * 1e6)}\n")
    sys.stdout.flush()


def _amounts(mean: float, form: str, dice: random.Random) -> Iterator[float]:
    while True:
        yield mean if form == "constant" else dice.expovariate(1 / mean)


def burn(options: argparse.Namespace) -> None:
    """Compute without a pause, in `threads` processes."""
    for _ in range(options.threads - 1):
        if os.fork() == 0:
            break
    while True:
        began = time.time()
        turn(round(options.work * _TURNS_A_SECOND))
        ended = time.time()
        _report(ended, ended - began, options.work)


def serve(options: argparse.Namespace) -> None:
    """Answer requests that arrive whatever the answers take: an open loop."""
    dice = random.Random(options.seed)  # noqa: S311 # a load, not a secret
    amounts = _amounts(options.work, options.form, dice)
    gap = options.work / options.share
    arrival = time.time()
    free = 0.0
    while True:
        arrival += gap if options.form == "regular" else dice.expovariate(1 / gap)
        amount = options.work if options.form == "regular" else next(amounts)
        free = max(arrival, free) + amount
        time.sleep(max(0.0, arrival - time.time()))
        spend(amount)
        ended = time.time()
        _report(ended, ended - arrival, free - arrival)


def think(options: argparse.Namespace) -> None:
    """Work, think, work: a closed loop."""
    dice = random.Random(options.seed)  # noqa: S311 # a load, not a secret
    amounts = _amounts(options.work, options.form, dice)
    while True:
        time.sleep(dice.expovariate(1 / (options.work / options.share - options.work)))
        amount = next(amounts)
        began = time.time()
        spend(amount)
        ended = time.time()
        _report(ended, ended - began, amount)


def hold(options: argparse.Namespace) -> None:
    """Fill memory, at once or over so many seconds, and sleep."""
    began, held = time.monotonic(), 0
    memory = mmap.mmap(-1, options.bytes)
    while held < options.bytes:
        grown = options.seconds and (time.monotonic() - began) / options.seconds
        due = min(options.bytes, int(options.bytes * grown)) if options.seconds else options.bytes
        for page in range(held, due, _PAGE):
            memory[page] = 1
        held = max(held, due)
        time.sleep(0.1)
    while True:
        time.sleep(3600)


def stream(options: argparse.Namespace) -> None:  # noqa: ARG001 # all families are called alike
    """Copy memory without a pause."""
    source, target = bytearray(os.urandom(1 << 20)) * (BUFFER >> 20), bytearray(BUFFER)
    while True:
        began = time.time()
        for _ in range(4):
            target[:] = source
        ended = time.time()
        _report(ended, ended - began, 0)


def write(options: argparse.Namespace) -> None:
    """Write and sync without a pause."""
    block = os.urandom(_BLOCK)
    with tempfile.TemporaryFile(dir=options.folder) as file:
        while True:
            began = time.time()
            file.seek(0)
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            ended = time.time()
            _report(ended, ended - began, 0)


def spike(options: argparse.Namespace) -> None:
    """Compute on two CPUs for `seconds`, then serve."""
    ending = time.monotonic() + options.seconds
    child = os.fork()
    while time.monotonic() < ending:
        spend(0.01)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    serve(options)


KINDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "burn": burn,
    "serve": serve,
    "think": think,
    "hold": hold,
    "stream": stream,
    "write": write,
    "spike": spike,
}


def main() -> None:
    """Run one pod."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--work", type=float, default=0.04, help="mean seconds of a piece of work, alone")
    parser.add_argument("--share", type=float, default=0.3, help="of a core that is asked for")
    parser.add_argument("--form", choices=("exponential", "constant", "regular"), default="exponential")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default=None)
    options = parser.parse_args()
    KINDS[options.kind](options)


if __name__ == "__main__":
    main()
