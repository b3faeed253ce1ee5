"""When roll-ups are made and rows deleted, whatever is damaged or killed meanwhile."""

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from sinks.history import layout, view
from sinks.history.upkeep import retention, rollup
from sinks.history.writer import Writer
from tests.support.history import UNROLLED
from tests.support.processors.telemetry import block
from tests.unit.sinks.history.upkeep.steps import (
    CREATED,
    DAY,
    FIRST,
    HOUR,
    ask,
    at_us,
    history,
    put,
    settings,
    tidy,
)


@pytest.mark.slow
def test_rows_are_deleted_only_after_their_roll_up(tmp_path: Path) -> None:
    history(tmp_path, range(20))
    now = at_us(40 * DAY)
    assert retention.drop(tmp_path, now, settings(retention_10s_seconds=60 * DAY)) == 0
    assert ask(tmp_path, "SELECT count(*) FROM samples") == [(400,)]
    tidy(tmp_path, 40 * DAY, retention_10s_seconds=60 * DAY)
    assert ask(tmp_path, "SELECT count(*) FROM samples") == [(400,)]  # the same pass made it
    tidy(tmp_path, 40 * DAY, retention_10s_seconds=60 * DAY)
    assert ask(tmp_path, "SELECT count(*) FROM samples") == [(0,)]
    assert ask(tmp_path, "SELECT sum(samples), min(resolution_seconds) FROM samples_all") == [(400, 10)]
    tidy(tmp_path, 61 * DAY, retention_10s_seconds=60 * DAY)
    assert ask(tmp_path, "SELECT sum(samples), min(resolution_seconds) FROM samples_all") == [(400, 60)]
    tidy(tmp_path, 91 * DAY, retention_10s_seconds=60 * DAY)
    assert list(layout.files(tmp_path)) == []


@pytest.mark.slow
def test_rows_that_come_late_are_in_the_roll_up_once(tmp_path: Path) -> None:
    history(tmp_path, range(20))
    tidy(tmp_path, 3 * HOUR)
    history(tmp_path, range(20, 25), first=41)
    assert ask(tmp_path, "SELECT sum(samples) FROM samples_10s") == [(400,)]
    tidy(tmp_path, 3 * HOUR)
    assert ask(tmp_path, "SELECT sum(samples), count(*) FROM samples_10s") == [(500, 6)]
    assert len(list(layout.hour_folder(tmp_path, "samples_10s", at_us(0)).iterdir())) == 1
    tidy(tmp_path, 3 * HOUR)
    assert ask(tmp_path, "SELECT sum(samples), count(*) FROM samples_10s") == [(500, 6)]


@pytest.mark.slow
def test_a_stream_that_began_again_within_an_hour_has_a_roll_up_of_its_own(tmp_path: Path) -> None:
    history(tmp_path, range(20))
    history(tmp_path, range(20, 40), created="20261122T063000123456Z")
    tidy(tmp_path, 3 * HOUR)
    assert ask(tmp_path, "SELECT count(*), sum(samples) FROM samples_10s") == [(8, 800)]
    tidy(tmp_path, 31 * DAY)
    assert ask(tmp_path, "SELECT count(*) FROM samples") == [(0,)]


@pytest.mark.slow
def test_without_their_setting_none_are_made_and_those_that_exist_go(tmp_path: Path) -> None:
    history(tmp_path, range(20))
    tidy(tmp_path, 3 * HOUR, **UNROLLED)
    assert {path.parents[2].name for path, _ in layout.files(tmp_path)} == {"samples"}
    tidy(tmp_path, 3 * HOUR)
    assert {path.parents[2].name for path, _ in layout.files(tmp_path)} == {"samples", "samples_10s", "samples_1m"}
    tidy(tmp_path, 3 * HOUR, **UNROLLED)
    assert {path.parents[2].name for path, _ in layout.files(tmp_path)} == {"samples"}
    tidy(tmp_path, 31 * DAY, **UNROLLED)
    assert list(layout.files(tmp_path)) == []


@pytest.mark.slow
def test_beyond_the_byte_limit_rows_go_before_roll_ups(tmp_path: Path) -> None:
    for hour in range(2):
        history(tmp_path, range(hour * HOUR, hour * HOUR + 60), first=1 + 120 * hour)
    tidy(tmp_path, 6 * HOUR)
    sizes = Counter[str]()
    for path, _ in layout.files(tmp_path):
        sizes[path.parents[2].name] += path.stat().st_size
    total = sizes.total()
    tidy(tmp_path, 6 * HOUR, max_bytes=total - 1)
    asked = "SELECT resolution_seconds, sum(samples) FROM samples_all GROUP BY date, hour, 1 ORDER BY min(at_us)"
    assert ask(tmp_path, asked) == [(10, 1200), (0, 1200)]
    tidy(tmp_path, 6 * HOUR, max_bytes=total - sizes["samples"])
    assert ask(tmp_path, asked) == [(10, 1200), (10, 1200)]
    tidy(tmp_path, 6 * HOUR, max_bytes=1)
    assert ask(tmp_path, asked) == []


@pytest.mark.slow
def test_rows_that_come_late_twice_after_the_others_have_gone_count_once(tmp_path: Path) -> None:
    asked = "SELECT (SELECT sum(samples) FROM samples_all), (SELECT sum(samples) FROM samples_10s)"
    history(tmp_path, range(20))
    tidy(tmp_path, 3 * HOUR)
    total = sum(path.stat().st_size for path, _ in layout.files(tmp_path))
    assert retention.limit(tmp_path, at_us(3 * HOUR), settings(max_bytes=total - 1)) == 1
    history(tmp_path, range(20, 21), first=41)
    for seconds in (600, 1200):
        tidy(tmp_path, 3 * HOUR + seconds)
        assert ask(tmp_path, asked) == [(420, 420)]
    history(tmp_path, range(21, 22), first=43)
    for hours in (5, 7):
        tidy(tmp_path, hours * HOUR)
        assert ask(tmp_path, asked) == [(440, 440)]
    for path, _ in [each for each in layout.files(tmp_path) if each[0].parents[2].name == "samples"]:
        path.unlink()
    tidy(tmp_path, 9 * HOUR)
    assert ask(tmp_path, asked) == [(440, 440)]


@pytest.mark.slow
def test_a_damaged_file_is_set_aside_and_its_roll_up_stays(tmp_path: Path) -> None:
    history(tmp_path, range(20))
    tidy(tmp_path, 3 * HOUR)
    ((path, _),) = [each for each in layout.files(tmp_path) if each[0].parents[2].name == "samples"]
    path.write_bytes(path.read_bytes()[:100])
    tidy(tmp_path, 3 * HOUR)
    assert path.with_name(f"{path.name}.damaged").exists()
    assert ask(tmp_path, "SELECT sum(samples), min(resolution_seconds) FROM samples_all") == [(400, 10)]


@pytest.mark.slow
def test_a_row_that_comes_late_does_not_stand_for_an_hour_whose_rows_are_gone(tmp_path: Path) -> None:
    asked = "SELECT sum(samples), min(resolution_seconds), max(resolution_seconds) FROM samples_all"
    history(tmp_path, range(20))
    tidy(tmp_path, 3 * HOUR)
    remove(tmp_path, "samples")
    history(tmp_path, range(20, 21), first=41)
    assert ask(tmp_path, asked) == [(400, 10, 10)]
    tidy(tmp_path, 3 * HOUR)
    assert ask(tmp_path, asked) == [(420, 10, 10)]
    remove(tmp_path, "samples")
    remove(tmp_path, "samples_10s", last=40)
    assert ask(tmp_path, "SELECT sum(samples) FROM samples_10s") == [(20,)]
    assert ask(tmp_path, asked) == [(420, 60, 60)]


def remove(directory: Path, table: str, last: int = 2**62) -> None:
    """Remove the files of a table whose sequences go up to a last one."""
    for path, name in layout.files(directory):
        if path.parents[2].name == table and name.last <= last:
            path.unlink()


@pytest.mark.slow
def test_a_source_whose_pages_are_damaged_stops_no_other_roll_up(tmp_path: Path) -> None:
    history(tmp_path, range(20))
    history(tmp_path, range(HOUR, HOUR + 20), first=41)
    tidy(tmp_path, 4 * HOUR, **UNROLLED)
    path = next(layout.hour_folder(tmp_path, "samples", at_us(0)).glob("*.parquet"))
    content = path.read_bytes()
    path.write_bytes(content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :])
    tidy(tmp_path, 4 * HOUR)
    assert path.with_name(f"{path.name}.damaged").exists()
    assert ask(tmp_path, "SELECT sum(samples) FROM samples_10s") == [(400,)]


class Killed(BaseException):
    """The process is gone: nothing that it still tries has an effect."""


def break_after(patch: pytest.MonkeyPatch, calls: int) -> None:
    """Kill the process at the call after so many that change the disk."""
    made = 0

    def wrap(real: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*arguments: object, **named: object) -> object:
            nonlocal made
            made += 1
            if made > calls:
                raise Killed
            return real(*arguments, **named)

        return wrapped

    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "unlink"), (Path, "mkdir"), (Path, "rmdir")):
        patch.setattr(owner, name, wrap(getattr(owner, name)))


@pytest.mark.slow
def test_killed_at_any_step_of_the_upkeep_no_row_is_lost_or_rolled_up_twice(tmp_path: Path) -> None:
    """Late rows widen the hour's file, its roll-ups are made again, and the rows themselves are deleted."""
    ages = {"retention_10s_seconds": 60.0 * DAY}
    history(tmp_path / "begun", range(4))
    tidy(tmp_path / "begun", 3 * HOUR, **ages)
    history(tmp_path / "begun", range(4, 12), first=9)
    folder, killed = tmp_path / "folder", 0
    view.create(folder)
    with view.connect(folder, restricted=True) as connection:
        for number in range(200):
            shutil.rmtree(folder)
            shutil.copytree(tmp_path / "begun", folder)
            with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
                break_after(patch, number)
                tidy(folder, 3 * HOUR, **ages)
                tidy(folder, 31 * DAY, **ages)
                break
            killed += 1
            Writer(folder, "S", CREATED, 1)
            asked = "SELECT sum(samples) FROM samples_all"
            assert connection.execute(asked).fetchall() == [(240,)], number
            for _ in range(2):
                tidy(folder, 31 * DAY, **ages)
            counts = "SELECT (SELECT count(*) FROM samples), sum(samples), count(*) FROM"
            asked = f"{counts} samples_10s UNION ALL {counts} samples_1m"
            assert connection.execute(asked).fetchall() == [(0, 240, 4), (0, 240, 2)], number
    assert killed >= 20


@pytest.mark.slow
def test_a_long_history_without_roll_ups_gets_the_oldest_first_and_not_all_at_once(tmp_path: Path) -> None:
    view.create(tmp_path)
    target = Writer(tmp_path, "S", CREATED, 1)
    for hour in range(10):
        put(target, [block("a", FIRST + hour * HOUR)], 1 + hour)
    due = rollup.jobs(tmp_path, at_us(12 * HOUR), settings(), {})
    starts = [layout.hour_of(job.source.parent) for job in due]
    assert starts == [at_us(hour * HOUR) for hour in range(8) for _ in range(2)]
    assert [job.rolled.name for job in due] == ["samples_10s", "samples_1m"] * 8
