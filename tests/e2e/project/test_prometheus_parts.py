"""Alerts of the parts that processors share, made real: a real Prometheus reads two processors, of which one hangs.

Waits and ranges of the rules are sixty times shorter here, as in test_prometheus.py.
"""

import math
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schemas.messages.telemetry import SampleBlock
from schemas.subject import Names
from tests.e2e.pipeline import Up, until, up
from tests.e2e.project.watched import Watched, publish_as
from tests.support.processors import telemetry
from tests.support.server.program import SPAZIO, Program, stopped
from tests.support.server.prometheus import MISSING, RULES, hurried, prometheus

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

NAMES = Names()
PROCESSORS = ("process", "process-2")
# Long enough for Prometheus to see that nobody has the parts of a processor that hangs.
OPTIONS = ("--processors", "2", "--process-failover-seconds", "8", "--http-hung-seconds", "120")
_TOO_MANY = "4000"
_SAID_SECONDS = 8


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("parts")
    with up(folder / "data", *OPTIONS) as pipeline:
        publish_as(pipeline, "load", *blocks())
        until(lambda: all(owned(pipeline, name) for name in PROCESSORS), 60, "parts for both processors")
        with prometheus(f"{pipeline.addresses['http']}/targets", hurried(RULES.read_text(), 60)) as server:
            yield Watched(pipeline, server)


def blocks() -> Iterator[tuple[str, SampleBlock]]:
    """Yield a block of each of so many nodes that most partitions have one, and so somebody who does them."""
    now = round(time.time()) - telemetry.START
    for number in range(16):
        yield NAMES.node("samples", f"n{number}"), telemetry.block(f"n{number}", now)


def owned(pipeline: Up, name: str) -> set[str]:
    """Return the parts that a processor says it does."""
    return set(re.findall(r'spazio_part_owned\{part="([^"]+)"\} 1', pipeline.page(name, "/metrics")[1]))


@contextmanager
def confined(pipeline: Up) -> Iterator[None]:
    """Leave both processors one CPU for the length of a block."""
    all_of_them = os.sched_getaffinity(0)

    def confine(cpus: set[int]) -> None:
        for name in PROCESSORS:
            for thread in Path(f"/proc/{pipeline.pid(name)}/task").iterdir():
                os.sched_setaffinity(int(thread.name), cpus)

    confine({min(all_of_them)})
    try:
        yield
    finally:
        confine(all_of_them)


def test_alerts_of_parts_that_a_processor_has_and_does_not_do(watched: Watched) -> None:
    pipeline = watched.pipeline
    watched.server.clears()
    first, second = PROCESSORS
    going_on = -math.inf

    def has_taken(parts: set[str]) -> bool:
        """Tell whether the other processor does these parts; the server gives one out with its next message."""
        publish_as(pipeline, "load", *blocks())
        return owned(pipeline, first) >= parts

    def hang() -> None:
        """Stop a processor until the other one has its parts; it then says for some seconds that they are its own."""
        nonlocal going_on
        lost = owned(pipeline, second)
        if not lost or time.monotonic() < going_on + _SAID_SECONDS:
            return
        with stopped(pipeline.pid(second)):
            if math.isinf(going_on):
                watched.server.fires(SpazioPartUnowned="no replica folds ")
            until(lambda: has_taken(lost), 60, "all parts with the processor that runs")
        going_on = time.monotonic()

    # Its gauge may be renewed just before Prometheus has read it for long enough, and then it hangs once more.
    watched.server.fires(hang, seconds=120, SpazioPartOwnedTwice="2 replicas say that they fold ")
    watched.server.clears()


def test_alerts_of_processors_that_cannot_keep_up(watched: Watched, tmp_path: Path) -> None:
    pipeline = watched.pipeline
    watched.server.clears()
    with confined(pipeline):
        load = Program(
            (*SPAZIO, "load", "--data-dir", str(pipeline.folder), "--nodes", _TOO_MANY), tmp_path / "load.log"
        )
        load.start()
        try:
            watched.server.fires(seconds=120, SpazioPartLagging="", SpazioMessagesSkipped="")
        finally:
            load.kill()
    watched.server.clears("SpazioPartLagging", "SpazioMessagesSkipped")
