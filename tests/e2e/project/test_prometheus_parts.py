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

from tests.e2e.pipeline import Up, until, up
from tests.e2e.project.watched import Watched
from tests.support.server.program import SPAZIO, Program, stopped
from tests.support.server.prometheus import MISSING, RULES, hurried, prometheus

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.skipif(bool(MISSING), reason=MISSING)]

PROCESSORS = ("process", "process-2")
# Long enough for Prometheus to see that nobody has the parts of a processor that hangs.
OPTIONS = ("--processors", "2", "--process-failover-seconds", "8", "--http-hung-seconds", "120")
_SOME, _TOO_MANY = "16", "3000"
_SAID_SECONDS = 8


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("parts")
    with (
        up(folder / "data", *OPTIONS) as pipeline,
        prometheus(f"{pipeline.addresses['http']}/targets", hurried(RULES.read_text(), 60)) as server,
    ):
        yield Watched(pipeline, server)


@contextmanager
def loaded(pipeline: Up, nodes: str, log: Path) -> Iterator[None]:
    """Let so many more nodes send for the length of a block."""
    load = Program((*SPAZIO, "load", "--data-dir", str(pipeline.folder), "--nodes", nodes), log)
    load.start()
    try:
        yield
    finally:
        load.kill()


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


def test_alerts_of_parts_that_a_processor_has_and_does_not_do(watched: Watched, tmp_path: Path) -> None:
    pipeline = watched.pipeline
    first, second = PROCESSORS
    going_on = -math.inf

    def hang() -> None:
        """Stop a processor until the other one has its parts; it then says for some seconds that they are its own."""
        nonlocal going_on
        lost = owned(pipeline, second)
        if not lost or time.monotonic() < going_on + _SAID_SECONDS:
            return
        with stopped(pipeline.pid(second)):
            if math.isinf(going_on):
                watched.server.fires(SpazioPartUnowned="no replica folds ")
            until(lambda: owned(pipeline, first) >= lost, 60, "all parts with the processor that runs")
        going_on = time.monotonic()

    # A part is given out with its next message, so that most have to have nodes.
    with loaded(pipeline, _SOME, tmp_path / "load.log"):
        until(lambda: all(owned(pipeline, name) for name in PROCESSORS), 60, "parts for both processors")
        watched.server.clears()
        # Its gauge may be renewed just before Prometheus has read it for long enough, and then it hangs once more.
        watched.server.fires(hang, seconds=120, SpazioPartOwnedTwice="2 replicas say that they fold ")
        watched.server.clears()


def test_alerts_of_processors_that_cannot_keep_up(watched: Watched, tmp_path: Path) -> None:
    pipeline = watched.pipeline
    watched.server.clears()
    with confined(pipeline), loaded(pipeline, _TOO_MANY, tmp_path / "load.log"):
        watched.server.fires(seconds=120, SpazioPartLagging="", SpazioMessagesSkipped="")
    # What has piled up is read, also to leave it out, for minutes on a slow machine.
    watched.server.clears("SpazioPartLagging", "SpazioMessagesSkipped", seconds=300)
