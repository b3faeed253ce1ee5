"""A history with roll-ups, and what it answers."""

from pathlib import Path
from typing import Any

import numpy as np

from schemas.messages.telemetry import SampleBlock
from schemas.sections.service import History
from sinks.history import view
from sinks.history.upkeep.upkeep import Upkeep
from sinks.history.writer import Writer
from tests.support.history import append
from tests.support.processors.telemetry import START, noisy, stored

CREATED = "20261121T063000123456Z"
HOUR = 3600
# Seconds after START at which an hour begins.
FIRST = HOUR - START % HOUR
DAY = 24 * HOUR


def at_us(second: int) -> int:
    return (START + FIRST + second) * 1_000_000


def settings(**changed: float) -> History:
    return History.model_validate({"retention_seconds": 30 * DAY, **changed})


def put(target: Writer, blocks: list[SampleBlock], first: int) -> None:
    for sequence, each in enumerate(blocks, first):
        append(target, *_with(sequence, stored(each)))
    target.flush()


def _with(sequence: int, message: tuple[str, bytes]) -> tuple[str, int, bytes]:
    return message[0], sequence, message[1]


def history(directory: Path, seconds: range, *, first: int = 1, created: str = CREATED) -> list[SampleBlock]:
    """Write seconds of two nodes, in two flushes, and return the blocks."""
    random = np.random.default_rng(seconds.start)
    blocks = [noisy(node, FIRST + second, 2, random) for second in seconds for node in ("a", "b")]
    view.create(directory)
    target = Writer(directory, "S", created, first)
    half = len(blocks) // 2
    put(target, blocks[:half], first)
    put(target, blocks[half:], first + half)
    return blocks


def ask(directory: Path, sql: str) -> list[tuple[Any, ...]]:
    with view.connect(directory, restricted=True) as connection:
        return connection.execute(sql).fetchall()


def tidy(directory: Path, second: int, **changed: float) -> None:
    Upkeep(directory).run(at_us(second), settings(**changed))
