"""Runs a target with new inputs for a time, and finds crashes, hangs and growth.

A crash is any exception but those that the target declares. A hang is a case that takes more than two seconds. Inputs
that lead to a line that no other input reached (the last one of a traceback) become seeds as well, which drives inputs
deeper without instrumentation.
"""

import gc
import hashlib
import os
import random
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tests.fuzz import mutation

LONGEST_SECONDS = 2.0
MOST_GROWTH_BYTES = 64 << 20
_MOST_SEEDS, _MOST_FINDINGS = 2000, 20
_WARM_CASES = 300
FOUND = Path(__file__).parent / "found"

Run = Callable[[bytes], None]


class Hang(BaseException):
    """A case takes too long; no `except Exception` of the code under test can stop it."""


@dataclass(frozen=True, slots=True)
class Target:
    """Code that reads bytes from outside.

    Attributes:
        name: Name on the command line and of its folder of found cases.
        seeds: Good inputs.
        opened: Makes what runs one input, for the length of a block.
        refuses: Exceptions by which it may refuse an input.
        tokens: Words of its language.
    """

    name: str
    seeds: Sequence[bytes]
    opened: Callable[[], AbstractContextManager[Run]]
    refuses: tuple[type[Exception], ...] = ()
    tokens: Sequence[bytes] = ()


@dataclass(slots=True)
class Outcome:
    """What a session found; `findings` are inputs by their description."""

    cases: int = 0
    refused: int = 0
    growth_bytes: int = 0
    findings: dict[str, bytes] = field(default_factory=dict)


def run(target: Target, seconds: float, seed: int) -> Outcome:
    """Run new inputs for so many seconds, or until 20 different faults are found."""
    chance, outcome, seeds = random.Random(seed), Outcome(), list(target.seeds)
    reached: set[str] = set()
    begun, is_warm = 0, False
    began = time.monotonic()
    end = began + seconds
    with target.opened() as once:
        for good in target.seeds:
            once(good)  # a seed that is refused is no seed
        while time.monotonic() < end and len(outcome.findings) < _MOST_FINDINGS:
            data = mutation.mutated(chance, seeds, target.tokens)
            where, fault = attempt(once, data, target.refuses)
            outcome.cases += 1
            outcome.refused += bool(where and not fault)
            if fault:
                outcome.findings.setdefault(fault, data)
            elif where not in reached and len(seeds) < _MOST_SEEDS and len(data) < 20_000:
                reached.add(where)
                seeds.append(data)
            if not is_warm and (outcome.cases == _WARM_CASES or time.monotonic() - began > seconds / 4):
                begun, is_warm = _resident(), True
        gc.collect()
        outcome.growth_bytes = _resident() - begun
    if outcome.growth_bytes > MOST_GROWTH_BYTES:
        outcome.findings[f"growth of {outcome.growth_bytes >> 20} MiB in {outcome.cases} cases"] = b""
    return outcome


def attempt(once: Run, data: bytes, refuses: tuple[type[Exception], ...]) -> tuple[str, str]:
    """Run one input; return where it was refused (empty: it was not) and the fault (empty: none).

    An input that takes too long is run once more, since a busy machine makes any of them slow now and then.
    """
    began = time.monotonic()
    where, fault = _attempt(once, data, refuses)
    return _attempt(once, data, refuses) if time.monotonic() - began > LONGEST_SECONDS else (where, fault)


def _attempt(once: Run, data: bytes, refuses: tuple[type[Exception], ...]) -> tuple[str, str]:
    began = time.monotonic()
    try:
        with _limited():
            once(data)
    except refuses as error:
        where, fault = _where(error), ""
    except (Exception, Hang) as error:  # noqa: BLE001 # this is what is looked for
        where, fault = _where(error), f"{type(error).__name__} at {_where(error)}: {str(error)[:200]}"
    else:
        where = fault = ""
    if not fault and time.monotonic() - began > LONGEST_SECONDS:
        fault = f"took {time.monotonic() - began:.1f} s, refused at {where or 'no line'}"
    return where, fault


def keep(target: Target, data: bytes) -> Path:
    """Store a case, which the tests run from then on."""
    folder = FOUND / target.name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.blake2b(data, digest_size=6).hexdigest()
    path.write_bytes(data)
    return path


@contextmanager
def _limited() -> Iterator[None]:
    """Raise `Hang` in the main thread after the longest time of a case."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_: int, __: FrameType | None) -> None:
        raise Hang(f"more than {LONGEST_SECONDS:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/site-packages/" not in frame.filename] or list(frames)
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "?"


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
