"""Killed or failing at any step of a flush or a compaction, the history loses and doubles no row."""

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sinks.history import layout
from sinks.history.upkeep import compaction
from tests.support.processors import telemetry
from tests.unit.sinks.history.killed import HOUR, feed, query, seconds_of, writer


class Killed(BaseException):
    """Ends an operation as `kill -9` would: no handler of the code under test runs for it but `finally`."""


class Failing:
    """Lets the n-th call of some functions fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int, error: BaseException) -> None:
        self.calls = 0
        for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink")):
            self._wrap(monkeypatch, owner, name, getattr(owner, name), after, error)

    def _wrap(
        self,
        monkeypatch: pytest.MonkeyPatch,
        owner: object,
        name: str,
        real: Callable[..., object],
        after: int,
        error: BaseException,
    ) -> None:
        def wrapped(*arguments: object, **named: object) -> object:
            self.calls += 1
            if self.calls == after:
                raise error
            return real(*arguments, **named)

        monkeypatch.setattr(owner, name, wrapped)


def steps(act: Callable[[Path], None], tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Yield the number of each step that an operation takes, with a folder for it."""
    with pytest.MonkeyPatch.context() as patch:
        counted = Failing(patch, 0, Killed())
        folder = tmp_path / "counted"
        act(folder)
    for number in range(1, counted.calls + 1):
        yield number, tmp_path / f"step-{number}"


def test_killed_at_any_step_of_a_flush_no_row_is_lost_or_doubled(tmp_path: Path) -> None:
    def act(folder: Path) -> None:
        target = writer(folder)
        feed(target, range(2))
        target.flush()
        feed(target, range(HOUR - 200, HOUR + 2200, 600))
        target.flush()

    truth = [0, 1, *range(HOUR - 200, HOUR + 2200, 600)]
    tried = 0
    for number, folder in steps(act, tmp_path):
        with pytest.MonkeyPatch.context() as patch:
            Failing(patch, number, Killed())
            with pytest.raises(Killed):
                act(folder)
        again = writer(folder)
        feed(again, range(2))
        feed(again, range(HOUR - 200, HOUR + 2200, 600))
        again.flush()
        assert seconds_of(folder) == truth, number
        assert not list(folder.glob("**/*.tmp"))
        tried += 1
    assert tried >= 8


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EROFS])
def test_a_flush_that_fails_at_any_step_can_be_repeated(tmp_path: Path, fault: int) -> None:
    seconds, failed = range(HOUR - 200, HOUR + 1000, 600), 0
    for number in range(1, 20):
        folder = tmp_path / f"step-{number}"
        target = writer(folder)
        feed(target, seconds)
        with pytest.MonkeyPatch.context() as patch:
            Failing(patch, number, OSError(fault, os.strerror(fault)))
            with contextlib.suppress(OSError):
                target.flush()
        failed += target.rows == 20
        feed(target, range(HOUR - 200, HOUR + 2200, 600))
        target.flush()
        assert seconds_of(folder) == list(range(HOUR - 200, HOUR + 2200, 600)), number
    assert failed == 9  # three new folders; sync, rename, sync folder: for the file and for the cursor


def test_compaction_merges_settled_hours_sorted_and_leaves_young_ones(tmp_path: Path) -> None:
    target = writer(tmp_path)
    for start in (0, 10, 20, 7000, 7010):
        feed(target, range(start, start + 10))
        target.flush()
    rows = query(tmp_path, "SELECT at_us, cpu_util FROM samples ORDER BY ALL")
    now = (telemetry.START + 7010) * 1_000_000
    assert sum(compaction.compact(tmp_path, now)) == 3
    assert query(tmp_path, "SELECT at_us, cpu_util FROM samples ORDER BY ALL") == rows
    assert len(list(layout.files(tmp_path))) == 3
    assert sum(compaction.compact(tmp_path, now)) == 0
    again = writer(tmp_path)
    assert again.cursor == 7020


@pytest.mark.slow
def test_killed_at_any_step_of_compaction_no_row_is_lost_or_doubled_afterwards(tmp_path: Path) -> None:
    now = (telemetry.START + 10 * HOUR) * 1_000_000

    def fill(folder: Path) -> None:
        target = writer(folder)
        for start in (0, 10, 20):
            feed(target, range(start, start + 10))
            target.flush()

    def act(folder: Path) -> None:
        if not folder.exists():
            fill(folder)
        sum(compaction.compact(folder, now))

    tried = 0
    for number, folder in steps(act, tmp_path):
        fill(folder)
        with pytest.MonkeyPatch.context() as patch:
            Failing(patch, number, Killed())
            try:
                sum(compaction.compact(folder, now))
            except Killed:
                tried += 1
        writer(folder)
        sum(compaction.compact(folder, now))
        assert seconds_of(folder) == list(range(30)), number
    assert tried >= 4
