"""Upkeep of the files: drops old hours, bounds the bytes, sets damaged files aside, merges small files.

Dropping comes first, because it makes room on a full disk, and no step keeps another from its work.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from prometheus_client import Counter

from schemas.sections.service import History
from sinks.history import compaction, damage

log = logging.getLogger(__name__)

FAILURES = Counter("spazio_history_upkeep_failures_total", "steps of the upkeep that failed", ["step"])


class Upkeep:
    """Looks after the files of one folder; not thread-safe, and no writer may write at the same time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._readable: frozenset[damage.Stamp] = frozenset()

    def run(self, now_us: int, settings: History) -> None:
        """Do every step once; a step that fails is logged and counted."""
        directory = self._directory
        before_us = now_us - int(settings.retention_seconds * 1e6)
        self._step("drop", lambda: compaction.drop(directory, before_us))
        if settings.max_bytes:
            self._step("limit", lambda: compaction.limit(directory, settings.max_bytes, now_us))
        self._step("inspect", self._inspect)
        self._step("compact", lambda: compaction.compact(directory, now_us))

    def _inspect(self) -> None:
        self._readable = damage.inspect(self._directory, self._readable)

    def _step(self, name: str, step: Callable[[], object]) -> None:
        try:
            step()
        except OSError as error:
            FAILURES.labels(name).inc()
            log.warning("history.upkeep_failed", extra={"step": name, "reason": str(error)})
