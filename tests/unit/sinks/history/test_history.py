"""History on real files and a real DuckDB: every row once, whatever fails, and readable at any time."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pytest

from processors.partition.partition import Partition
from schemas import codec
from schemas.sections.service import History
from schemas.settings import load
from sinks.history import layout, view
from sinks.history.upkeep import retention
from tests.support.history import UNROLLED, append
from tests.support.processors import telemetry
from tests.support.processors.telemetry import NAMES, block, stored
from tests.unit.sinks.history.killed import CREATED, HOUR, _message, feed, query, seconds_of, writer


@pytest.mark.slow
def test_every_kind_of_row_is_written_and_read_back(tmp_path: Path) -> None:
    target = writer(tmp_path)
    append(target, *_message(0))
    outputs, _ = Partition(load({}, environ={}), 0).fold(
        [stored(block("n", second, cpu_util=0.25)) for second in range(3)]
    )
    for sequence, output in enumerate(outputs, 10):
        append(target, output.subject, sequence, codec.encode(output.message))
    assert target.rows == 10 + 30 + sum("smoothed" not in output.subject for output in outputs)
    assert target.flush() > 40
    assert target.flush() == 0
    assert query(tmp_path, "SELECT count(*), min(cpu_util), max(node) FROM samples") == [(10, 0.25, "n")]
    assert query(tmp_path, "SELECT count(*) FROM smoothed") == [(30,)]
    assert query(tmp_path, "SELECT DISTINCT scope, partition, nodes FROM models") == [("partition", 0, 1)]
    available = query(
        tmp_path,
        "SELECT available, binding, cpu_used, usage_cpu = cpu_saturation, epoch_us(time) - at_us "
        "FROM availability LIMIT 1",
    )
    assert available[0][1:] == ("cpu", 0.25, True, 0)


@pytest.mark.slow
def test_an_empty_history_has_every_table_and_column(tmp_path: Path) -> None:
    view.create(tmp_path)
    for table in ("samples", "smoothed", "availability", "models"):
        assert query(tmp_path, f"SELECT count(*), count(time), count(date) FROM {table}") == [(0, 0, 0)]


def test_recent_rows_are_found_by_time_without_an_extension_from_the_network(tmp_path: Path) -> None:
    view.create(tmp_path)
    assert query(tmp_path, "SELECT count(*) FROM availability WHERE time > now() - INTERVAL 15 SECOND") == [(0,)]


def test_a_flush_over_midnight_writes_a_file_for_each_hour(tmp_path: Path) -> None:
    target = writer(tmp_path)
    midnight = 1_700_006_400 - telemetry.START
    feed(target, range(midnight - 2, midnight + 2))
    target.flush()
    hours = query(tmp_path, "SELECT date::VARCHAR, hour, count(*) FROM samples GROUP BY ALL ORDER BY ALL")
    assert hours == [("2023-11-14", 23, 20), ("2023-11-15", 0, 20)]
    assert {name for _, name in layout.files(tmp_path)} == {layout.Name(CREATED, midnight - 1, midnight + 2)}


def test_garbage_is_refused_and_its_neighbours_are_written(tmp_path: Path) -> None:
    target = writer(tmp_path)
    append(target, *_message(0))
    with pytest.raises(codec.Refused):
        append(target, NAMES.part(0, "samples", "n"), 2, b"nonsense")
    with pytest.raises(codec.Refused):
        append(target, NAMES.part(0, "samples", "other"), 3, _message(2)[2])
    append(target, *_message(3))
    target.flush()
    assert seconds_of(tmp_path) == [0, 3]
    assert writer(tmp_path).cursor == 4


def test_a_flush_covers_what_was_refused_before_between_and_behind_its_rows(tmp_path: Path) -> None:
    target = writer(tmp_path)
    for part in (range(2, 5), range(7, 9)):
        feed(target, part)
        target.cover(part[0], part[-1] + 3)
        target.flush()
        target.cover(part[0], part[0] + 1)  # covered and written already
    assert target.flush() == 0
    assert {(name.first, name.last) for _, name in layout.files(tmp_path)} == {(2, 7), (8, 11)}
    assert writer(tmp_path).cursor == 11


def test_what_was_seen_is_not_taken_in_again(tmp_path: Path) -> None:
    target = writer(tmp_path)
    feed(target, range(3))
    feed(target, range(3))
    target.flush()
    feed(target, range(5))
    target.flush()
    again = writer(tmp_path)
    feed(again, range(6))
    again.flush()
    assert seconds_of(tmp_path) == list(range(6))


def test_a_stream_that_was_made_again_is_another_stream(tmp_path: Path) -> None:
    first, second = writer(tmp_path), None
    feed(first, range(3))
    first.flush()
    second = writer(tmp_path, created="20261122T000000000000Z")
    assert second.cursor == 0
    feed(second, range(3, 5), offset=-2)
    second.flush()
    assert seconds_of(tmp_path) == [0, 1, 2, 3, 4]


def test_without_a_cursor_file_the_files_say_how_far_everything_is_written(tmp_path: Path) -> None:
    target = writer(tmp_path)
    feed(target, range(4))
    target.flush()
    (tmp_path / ".S.cursor.json").write_text("{broken")
    assert writer(tmp_path).cursor == 4


def test_an_unfinished_flush_is_kept_if_the_stream_has_forgotten_its_messages(tmp_path: Path) -> None:
    target = writer(tmp_path)
    feed(target, range(2))
    target.flush()
    feed(target, range(2, 4))
    target.flush()
    layout.write_cursor(tmp_path, "S", CREATED, 2)
    late = writer(tmp_path, first=100)
    assert late.cursor == 4
    assert seconds_of(tmp_path) == [0, 1, 2, 3]


def test_hours_beyond_the_retention_are_dropped(tmp_path: Path) -> None:
    target = writer(tmp_path)
    for start in (0, 3 * HOUR):
        feed(target, range(start, start + 5))
        target.flush()
    week = History.model_validate({"retention_seconds": 7 * 24 * HOUR, **UNROLLED})
    assert retention.drop(tmp_path, (telemetry.START + (2 + 7 * 24) * HOUR) * 1_000_000, week) == 1
    assert seconds_of(tmp_path) == list(range(3 * HOUR, 3 * HOUR + 5))


@pytest.mark.slow
def test_another_process_reads_the_views_while_files_are_written(tmp_path: Path) -> None:
    folder = tmp_path / "it's a [folder]*"
    path = view.create(folder)
    program = (
        "import duckdb, sys\n"
        "for line in sys.stdin:\n"
        "    with duckdb.connect(sys.argv[1], read_only=True) as connection:\n"
        "        print(connection.execute('SELECT count(*) FROM samples').fetchone()[0], flush=True)\n"
    )
    target = writer(folder)
    with (
        subprocess.Popen(
            [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as reader,
        duckdb.connect(path, read_only=True) as own,
    ):
        assert reader.stdin is not None
        assert reader.stdout is not None
        for second in range(5):
            feed(target, range(second, second + 1))
            target.flush()
            if second == 3:
                view.create(folder)
            reader.stdin.write("now\n")
            reader.stdin.flush()
            assert int(reader.stdout.readline()) == 10 * (second + 1)
            assert own.execute("SELECT count(*) FROM samples").fetchone() == (10 * (second + 1),)
        reader.stdin.close()


@pytest.mark.slow
def test_a_file_that_is_gone_before_it_is_opened_fails_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those that compaction replaces, and those that a sink which starts removes."""
    target = writer(tmp_path)
    feed(target, range(3))
    target.flush()
    view.create(tmp_path)
    (file,) = (path for path, _ in layout.files(tmp_path) if path.parents[2].name == "samples")
    content, met = file.read_bytes(), threading.Event()
    many = [file.with_name(f"2{number:02}{file.name}") for number in range(40)]
    make_views = view._views

    def come_and_go() -> None:
        while not met.is_set():
            for each in many:
                layout.hidden(each).write_bytes(content)
                layout.hidden(each).replace(each)
            for each in many:
                each.unlink()

    def noticed(connection: duckdb.DuckDBPyConnection, directory: Path) -> None:
        try:
            make_views(connection, directory)
        except duckdb.IOException:
            met.set()
            raise

    monkeypatch.setattr(view, "_views", noticed)
    coming = threading.Thread(target=come_and_go)
    coming.start()
    try:
        for _ in range(100):
            view.connect(tmp_path).close()
            if met.is_set():
                break
    finally:
        unmet = not met.is_set()
        met.set()
        coming.join()
    assert not unmet
    assert seconds_of(tmp_path) == [0, 1, 2]


@pytest.mark.parametrize(
    ("error", "failures", "tries"), [("broken disk", 9, 1), ("No such file", 9, 5), ("No such file", 2, 3)]
)
def test_a_query_is_run_again_for_a_file_that_is_gone_and_for_nothing_else(
    error: str, failures: int, tries: int
) -> None:
    tried = 0

    def query() -> int:
        nonlocal tried
        tried += 1
        if tried <= failures:
            raise duckdb.IOException(error)
        return 7

    if failures >= tries:
        with pytest.raises(duckdb.IOException, match=error):
            view.retried(query)
    else:
        assert view.retried(query) == 7
    assert tried == tries


@pytest.mark.slow
def test_a_moved_history_is_still_readable(tmp_path: Path) -> None:
    target = writer(tmp_path / "before")
    feed(target, range(3))
    target.flush()
    view.create(tmp_path / "before")
    (tmp_path / "before").rename(tmp_path / "after")
    assert seconds_of(tmp_path / "after") == [0, 1, 2]


def test_the_cursor_file_names_the_stream_and_the_sequence(tmp_path: Path) -> None:
    target = writer(tmp_path)
    feed(target, range(3))
    target.flush()
    content = json.loads((tmp_path / ".S.cursor.json").read_text())
    assert {name: content[name] for name in ("created", "sequence")} == {"created": CREATED, "sequence": 3}
