"""Upkeep of the files: drops old hours, bounds the bytes, sets damaged files aside, merges small files, makes roll-ups.

Dropping comes first, because it makes room on a full disk, and no step keeps another from its work.
"""

import functools
import logging
from collections import Counter as Tally
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from prometheus_client import Counter

from schemas.sections.service import History
from sinks.history.upkeep import compaction, damage, retention, rollup

log = logging.getLogger(__name__)

FAILURES = Counter("spazio_history_upkeep_failures_total", "steps of the upkeep that failed", ["step"])


class Upkeep:
    """Looks after the files of one folder; not thread-safe, and no writer may write during a step."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._readable: frozenset[damage.Stamp] = frozenset()
        self._grouped: frozenset[Path] = frozenset()
        self._merged: dict[Path, int] = {}
        self._unmade = Tally[Path]()  # how often each roll-up that is not made yet has failed

    def run(self, now_us: int, settings: History) -> None:
        """Do every step once."""
        for _ in self.steps(now_us, settings):
            pass

    def steps(self, now_us: int, settings: History) -> Iterator[str]:
        """Do every step once, and yield its name after each part of it; one that fails is logged and counted."""
        directory = self._directory
        yield from self._first(now_us, settings)
        before, grouped = self._grouped, set[Path]()
        if (yield from self._each("group", map(grouped.update, compaction.group(directory, now_us, self._grouped)))):
            self._grouped = before | grouped  # the next inspection sees which of them have taken their last form
        yield from self._each("compact", compaction.compact(directory, now_us, before, self._merged))
        jobs: list[rollup.Job] = []
        yield self._step("list", lambda: jobs.extend(rollup.jobs(directory, now_us, settings, self._unmade)))
        for job in jobs:
            yield self._step("roll", functools.partial(self._roll, job))

    def _roll(self, job: rollup.Job) -> None:
        self._unmade[job.target] += 1
        rollup.make(job)
        del self._unmade[job.target]

    def make_room(self, now_us: int, settings: History) -> None:
        """Do only the first steps, which need no space: remove old hours, and set damaged files aside."""
        for _ in self._first(now_us, settings):
            pass

    def _first(self, now_us: int, settings: History) -> Iterator[str]:
        yield self._step("drop", lambda: retention.drop(self._directory, now_us, settings))
        if settings.max_bytes:
            yield self._step("limit", lambda: retention.limit(self._directory, now_us, settings))
        yield self._step("inspect", self._inspect)

    def _inspect(self) -> None:
        self._readable, read, early = damage.inspect(self._directory, self._readable)
        present = {Path(path) for path, *_ in self._readable}
        self._grouped = ((self._grouped - read) | early) & present

    def _each(self, name: str, parts: Iterator[object]) -> Generator[str, None, bool]:
        """Do a step part by part, and yield its name after each; returns whether it has not failed."""
        while True:
            try:
                next(parts)
            except StopIteration:
                return True
            except OSError as error:
                _failed(name, error)
                return False
            yield name

    def _step(self, name: str, step: Callable[[], object]) -> str:
        try:
            step()
        except OSError as error:
            _failed(name, error)
        return name


def _failed(name: str, error: OSError) -> None:
    FAILURES.labels(name).inc()
    log.warning("history.upkeep_failed", extra={"step": name, "reason": str(error)})
