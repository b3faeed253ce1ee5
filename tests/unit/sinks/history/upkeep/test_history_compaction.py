"""Commit and compaction together: two tables, kills and failures at every step, each row exactly once."""

import contextlib
from pathlib import Path

import duckdb
import polars as pl
import pytest

from schemas import codec
from sinks.history import layout, view
from sinks.history.table import TABLES, Table
from sinks.history.upkeep import compaction
from sinks.history.writer import Writer
from tests.support.history import append
from tests.support.processors import workload
from tests.support.processors.telemetry import NAMES
from tests.unit.sinks.history.upkeep.kill import (
    LATER_US,
    Killed,
    break_after,
    exactly,
    flush_but_the_cursor,
    put,
    writer,
)


def made(directory: Path, sequences: range) -> Writer:
    target = writer(directory)
    put(target, sequences)
    target.flush()
    return target


@pytest.mark.slow
@pytest.mark.parametrize(("before", "rows"), [(0, range(1, 5)), (2, range(3, 7)), (2, range(101, 105))])
def test_killed_in_a_flush_of_two_tables_no_row_is_lost_or_doubled(tmp_path: Path, before: int, rows: range) -> None:
    killed = 0
    for number in range(20):
        folder = tmp_path / str(number)
        target = made(folder, range(1, before + 1))
        put(target, rows)
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
            break_after(patch, number, Killed())
            target.flush()
            break
        killed += 1
        again = writer(folder, first=rows.start if rows.start > 100 else 1)
        put(again, rows)
        again.flush()
        assert exactly(folder, [*range(1, before + 1), *rows]), number
    assert killed >= 9


@pytest.mark.slow
def test_killed_in_a_flush_of_containers_pods_and_facts_no_row_is_lost_or_doubled(tmp_path: Path) -> None:
    def feed(target: Writer) -> None:
        sequence = 0
        for number in range(3):
            for kind, message in workload.of_each_kind(number).items():
                for _ in range(2):  # the stream has each twice
                    sequence += 1
                    append(target, NAMES.part(0, kind, "n"), sequence, codec.encode(message))

    rows, killed = {"containers": 3, "pods": 9, "nodes": 3, "podfacts": 3}, 0
    for number in range(30):
        folder = tmp_path / str(number)
        target = writer(folder)
        feed(target)
        with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
            break_after(patch, number, Killed())
            target.flush()
            break
        killed += 1
        again = writer(folder)
        feed(again)
        again.flush()
        with view.connect(folder, restricted=True) as connection:
            result = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in rows}
        assert result == {table: (count,) for table, count in rows.items()}, number
    assert killed >= 12


@pytest.mark.slow
def test_killed_while_it_repeats_a_failed_flush_no_row_is_lost_or_doubled(tmp_path: Path) -> None:
    tried = 0
    for failing in (3, 5, 8):  # before a rename, before the cursor, after the cursor's rename
        for number in range(9):
            folder = tmp_path / f"{failing}-{number}"
            target = made(folder, range(1, 3))
            put(target, range(3, 5))
            with pytest.MonkeyPatch.context() as patch:
                break_after(patch, failing, OSError("full"))
                with pytest.raises(OSError, match="full"):
                    target.flush()
            with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Killed):
                break_after(patch, number, Killed())
                target.flush()
            again = writer(folder)
            put(again, range(1, 5))
            again.flush()
            assert exactly(folder, [1, 2, 3, 4]), (failing, number)
            tried += 1
    assert tried == 27


@pytest.mark.slow
def test_files_of_a_flush_that_is_not_committed_are_left_alone(tmp_path: Path) -> None:
    target = made(tmp_path, range(1, 3))
    put(target, range(3, 5))
    flush_but_the_cursor(target)
    assert sum(compaction.compact(tmp_path, LATER_US)) == 0
    target.flush()
    assert exactly(tmp_path, [1, 2, 3, 4])
    assert sum(compaction.compact(tmp_path, LATER_US)) == 4
    assert exactly(tmp_path, [1, 2, 3, 4])


@pytest.mark.slow
def test_a_start_removes_what_a_killed_compaction_left(tmp_path: Path) -> None:
    made(tmp_path, range(1, 3))
    made(tmp_path, range(3, 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            sum(compaction.compact(tmp_path, LATER_US))
    assert not exactly(tmp_path, [1, 2, 3, 4])
    spill = next(path.parent for path, _ in layout.files(tmp_path)) / layout.SPILL
    spill.mkdir()
    (spill / "duckdb_temp_storage_DEFAULT-0.tmp").write_bytes(b"x")
    writer(tmp_path)
    assert exactly(tmp_path, [1, 2, 3, 4])
    assert not spill.exists()


@pytest.mark.slow
def test_a_damaged_cursor_stops_compaction_until_the_next_start(tmp_path: Path) -> None:
    made(tmp_path, range(1, 3))
    made(tmp_path, range(3, 5))
    (tmp_path / ".S.cursor.json").write_text("{")
    with pytest.raises(OSError, match="is no cursor"):
        sum(compaction.compact(tmp_path, LATER_US))
    assert writer(tmp_path).cursor == 4
    assert sum(compaction.compact(tmp_path, LATER_US)) == 4


@pytest.mark.slow
def test_a_folder_that_looks_like_a_partition_hides_no_column(tmp_path: Path) -> None:
    folder = tmp_path / "node=3"
    made(folder, range(1, 3))
    with view.connect(folder, restricted=True) as connection:
        result = connection.execute("SELECT node, date::VARCHAR, hour FROM availability").fetchall()
    assert result == [("n", "2023-11-14", 22)]


@pytest.mark.slow
def test_merged_files_take_the_encodings_for_numbers_and_both_libraries_read_them(tmp_path: Path) -> None:
    target = writer(tmp_path)
    for sequences in (range(1, 40), range(40, 80)):
        put(target, sequences)
        target.flush()
    tables = [table for table in TABLES if table.name in ("samples", "availability")]
    before = {table.name: rows_of(tmp_path, table) for table in tables}
    samples = frame(tmp_path, "samples")
    assert sum(compaction.compact(tmp_path, LATER_US)) > 0
    assert frame(tmp_path, "samples").equals(samples)
    for table in tables:
        assert rows_of(tmp_path, table) == before[table.name]
        pattern = layout.quoted(f"{tmp_path}/{table.name}/**/*.parquet")
        with duckdb.connect() as connection:
            metadata = connection.execute(f"SELECT encodings FROM parquet_metadata({pattern})").fetchall()
        assert ("DELTA_BINARY_PACKED",) in metadata
    assert exactly(tmp_path, [*range(1, 80)])


def rows_of(folder: Path, table: Table) -> list[tuple[object, ...]]:
    with view.connect(folder, restricted=True) as connection:
        return connection.execute(f"SELECT * FROM {table.name} ORDER BY at_us, sequence").fetchall()


def frame(folder: Path, name: str) -> pl.DataFrame:
    table = next(table for table in TABLES if table.name == name)
    paths = [path for path, _ in layout.files(folder) if path.parents[2].name == name]
    rows = pl.concat([pl.read_parquet(path).cast(pl.Schema(table.columns)) for path in paths], how="diagonal")
    return rows.sort("at_us", "sequence")
