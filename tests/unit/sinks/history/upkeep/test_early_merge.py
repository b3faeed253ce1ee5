"""Small files of an hour that still fills are merged once."""

import contextlib
import os
import shutil
from pathlib import Path

import duckdb
import polars as pl
import pytest

from schemas.sections.service import History
from sinks.history import layout
from sinks.history.upkeep import compaction
from sinks.history.upkeep.upkeep import Upkeep
from sinks.history.writer import Writer
from tests.support.processors.telemetry import START
from tests.unit.sinks.history.upkeep.kill import (
    CREATED,
    LATER_US,
    Killed,
    break_after,
    exactly,
    flush_but_the_cursor,
    put,
    writer,
)

NOW_US = (START + 60) * 1_000_000


def files(directory: Path) -> int:
    return len(list(layout.files(directory)))


def merged_early(directory: Path, now_us: int, grouped: frozenset[Path]) -> frozenset[Path]:
    """Merge the small files of hours that still fill; return the merged ones."""
    return frozenset[Path]().union(*compaction.group(directory, now_us, grouped))


def fed(directory: Path, sequences: range) -> Writer:
    """Write two messages a flush."""
    target = writer(directory)
    for first in sequences[::2]:
        put(target, range(first, first + 2))
        target.flush()
    return target


@pytest.mark.slow
def test_small_files_of_an_hour_that_still_fills_are_merged_once(tmp_path: Path) -> None:
    fed(tmp_path, range(1, 17))
    grouped = merged_early(tmp_path, NOW_US, frozenset())
    assert (grouped, files(tmp_path)) == (frozenset(), 16)  # eight a table are few
    fed(tmp_path, range(17, 21))
    grouped = merged_early(tmp_path, NOW_US, grouped)
    assert grouped == {path for path, _ in layout.files(tmp_path)}
    assert files(tmp_path) == 2
    fed(tmp_path, range(21, 41))
    second = merged_early(tmp_path, NOW_US, grouped)
    assert second > grouped
    assert files(tmp_path) == 4
    assert merged_early(tmp_path, NOW_US, second) == second
    assert exactly(tmp_path, [*range(1, 41)])
    assert sum(compaction.compact(tmp_path, NOW_US)) == 0
    assert sum(compaction.compact(tmp_path, LATER_US)) == 4
    assert exactly(tmp_path, [*range(1, 41)])


def rows(folder: Path) -> tuple[pl.DataFrame, set[str]]:
    """Return the samples of the only file that they have, and the types of their numbers in it."""
    (path,) = (path for path, _ in layout.files(folder) if path.parents[2].name == "samples")
    with duckdb.connect() as connection:
        types = {str(kind) for kind in connection.read_parquet(str(path), hive_partitioning=False).types}
    return pl.read_parquet(path), types - {"VARCHAR", "BIGINT"}


@pytest.mark.slow
def test_only_the_last_merge_changes_the_form_of_rows(tmp_path: Path) -> None:
    fed(tmp_path, range(1, 21))
    merged_early(tmp_path, NOW_US, frozenset())
    early, types = rows(tmp_path)
    assert types == {"DOUBLE"}
    fed(tmp_path, range(21, 23))
    sum(compaction.compact(tmp_path, LATER_US))
    last, types = rows(tmp_path)
    assert any(kind.startswith("DECIMAL") for kind in types)
    assert last.height > early.height
    assert exactly(tmp_path, [*range(1, 23)])


@pytest.mark.slow
@pytest.mark.parametrize("restarted", [False, True])
def test_an_hour_whose_files_were_all_merged_early_takes_its_last_form_when_it_ends(
    tmp_path: Path, *, restarted: bool
) -> None:
    fed(tmp_path, range(1, 21))
    keeper = Upkeep(tmp_path)
    keeper.run(NOW_US, History())
    early, types = rows(tmp_path)
    assert types == {"DOUBLE"}
    if restarted:
        keeper = Upkeep(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
        keeper.run(LATER_US, History())
    assert rows(tmp_path)[1] == {"DOUBLE"}
    keeper.run(LATER_US, History())
    last, types = rows(tmp_path)
    changed = {path: path.stat().st_mtime_ns for path, _ in layout.files(tmp_path)}
    keeper.run(LATER_US, History())
    assert {path: path.stat().st_mtime_ns for path, _ in layout.files(tmp_path)} == changed
    assert any(kind.startswith("DECIMAL") for kind in types)
    assert last.height == early.height
    assert exactly(tmp_path, [*range(1, 21)])


@pytest.mark.slow
def test_a_file_beyond_the_cursor_is_not_merged_early(tmp_path: Path) -> None:
    target = fed(tmp_path, range(1, 21))
    put(target, range(21, 23))
    flush_but_the_cursor(target)
    grouped = merged_early(tmp_path, NOW_US, frozenset())
    assert {layout.parse(path) for path in grouped} == {layout.Name(CREATED, 1, 20)}
    target.flush()
    assert exactly(tmp_path, [*range(1, 23)])


@pytest.mark.slow
def test_killed_while_it_merges_early_no_row_is_lost_or_doubled(tmp_path: Path) -> None:
    killed = 0
    fed(tmp_path / "begun", range(1, 21))
    merged_early(tmp_path / "begun", NOW_US, frozenset())
    fed(tmp_path / "begun", range(21, 41))
    for number in range(60):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "begun", folder)
        grouped = frozenset(path for path, name in layout.files(folder) if name.last == 20 and name.first == 1)
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
            break_after(patch, number, Killed())
            merged_early(folder, NOW_US, grouped)
            break
        killed += 1
        fed(folder, range(41, 43))
        assert exactly(folder, [*range(1, 43)]), number
    assert killed >= 20


@pytest.mark.slow
def test_a_failed_early_merge_is_done_at_the_next_pass(tmp_path: Path) -> None:
    fed(tmp_path, range(1, 21))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            merged_early(tmp_path, NOW_US, frozenset())
    assert files(tmp_path) == 20
    merged_early(tmp_path, NOW_US, frozenset())
    assert files(tmp_path) == 2
    assert exactly(tmp_path, [*range(1, 21)])
