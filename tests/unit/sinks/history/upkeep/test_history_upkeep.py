"""Upkeep of the history: nothing that one file, one folder or one clock has wrong keeps old hours on the disk."""

import resource
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schemas import codec
from schemas.sections.service import History
from sinks.history import layout, view, writer
from sinks.history.upkeep import compaction, damage, retention, upkeep
from sinks.history.upkeep.upkeep import Upkeep
from sinks.history.writer import Window, Writer
from tests.support.history import UNROLLED, append
from tests.support.processors.telemetry import NAMES, START, block, stored
from tests.support.processors.workload import of_each_kind

HOUR = 3600
CREATED = "20261121T063000123456Z"


def at(second: int) -> int:
    return (START + second) * 1_000_000


def feed(target: Writer, *seconds: int) -> None:
    """Append a block of ten rows for each second, and flush after each."""
    for second in seconds:
        subject, payload = stored(block("n", second))
        append(target, subject, second + 10 * HOUR, payload)
        target.flush()


def made(directory: Path, *seconds: int) -> Writer:
    view.create(directory)
    target = Writer(directory, "S", CREATED, 1)
    feed(target, *seconds)
    return target


def seconds_of(directory: Path) -> list[int]:
    with view.connect(directory, restricted=True) as connection:
        rows = connection.execute("SELECT seq, count(*) FROM samples GROUP BY 1 ORDER BY 1").fetchall()
    assert all(count == 10 for _, count in rows), rows
    return [seq - 1000 for seq, _ in rows]


def file_of(directory: Path, second: int) -> Path:
    (path,) = (path for path, name in layout.files(directory) if name.last == second + 10 * HOUR)
    return path


def spoil(path: Path, kind: str) -> None:
    """Damage a file as a lost write, an interrupted one or a bad sector does."""
    content = path.read_bytes()
    half = len(content) // 2
    wrong = {"empty": b"", "cut": content[:half], "zeroed": bytes(len(content)), "page": content[:4] + bytes(half)}[
        kind
    ]
    path.write_bytes(wrong + content[len(wrong) :] if kind == "page" else wrong)


def tidy(directory: Path, second: int, **settings: float) -> None:
    Upkeep(directory).run(at(second), History.model_validate({"retention_seconds": 6 * HOUR, **UNROLLED, **settings}))


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("kind", ["empty", "cut", "zeroed", "page"])
def test_a_damaged_file_stops_neither_retention_nor_merging_nor_queries(tmp_path: Path, kind: str) -> None:
    made(tmp_path, 0, 1, 4 * HOUR, 4 * HOUR + 1, 4 * HOUR + 2, 5 * HOUR, 5 * HOUR + 1)
    bad, counted = file_of(tmp_path, 4 * HOUR + 1), damage.DAMAGED._value.get()
    spoil(bad, kind)
    tidy(tmp_path, 9 * HOUR)
    assert seconds_of(tmp_path) == [4 * HOUR, 4 * HOUR + 2, 5 * HOUR, 5 * HOUR + 1]
    assert len(list(layout.files(tmp_path))) == 2
    assert bad.with_name(bad.name + ".damaged").exists()
    assert damage.DAMAGED._value.get() == counted + 1
    tidy(tmp_path, 13 * HOUR)
    assert seconds_of(tmp_path) == []
    assert not list(tmp_path.glob("samples/date=*/hour=*/*.damaged"))


@pytest.mark.slow
def test_a_damaged_file_of_the_current_hour_is_set_aside_and_new_ones_are_read_once(tmp_path: Path) -> None:
    target = made(tmp_path, 0, 1)
    spoil(file_of(tmp_path, 1), "cut")
    keeper = Upkeep(tmp_path)
    keeper.run(at(10), History())
    assert seconds_of(tmp_path) == [0]
    feed(target, 2, 3)
    spoil(file_of(tmp_path, 2), "empty")
    keeper.run(at(20), History())
    assert seconds_of(tmp_path) == [0, 3]
    spoil(file_of(tmp_path, 0), "cut")  # read before, and changed since
    keeper.run(at(30), History())
    assert seconds_of(tmp_path) == [3]


@pytest.mark.slow
def test_files_in_a_folder_with_wildcards_in_its_name_are_merged_and_not_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "it's a [folder]*"
    made(folder, 0, 1, 2)
    tidy(folder, 3 * HOUR)
    assert seconds_of(folder) == [0, 1, 2]
    assert len(list(layout.files(folder))) == 1
    assert not list(folder.glob("**/*.damaged"))


@contextmanager
def full_disk() -> Iterator[None]:
    """Let the kernel refuse every byte that this process writes to a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    earlier = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, earlier)


@pytest.mark.slow
def test_on_a_full_disk_old_hours_are_dropped_and_merging_waits(tmp_path: Path) -> None:
    made(tmp_path, 0, 1, 4 * HOUR, 4 * HOUR + 1)
    failures = upkeep.FAILURES.labels("compact")._value
    before = failures.get()
    with full_disk():
        tidy(tmp_path, 9 * HOUR)
    assert seconds_of(tmp_path) == [4 * HOUR, 4 * HOUR + 1]
    assert len(list(layout.files(tmp_path))) == 2
    assert failures.get() == before + 1
    tidy(tmp_path, 9 * HOUR)
    assert seconds_of(tmp_path) == [4 * HOUR, 4 * HOUR + 1]
    assert len(list(layout.files(tmp_path))) == 1


@pytest.mark.slow
def test_an_hour_that_cannot_be_changed_keeps_no_other_hour(tmp_path: Path) -> None:
    made(tmp_path, 0, 1, HOUR + 1, HOUR + 2, 4 * HOUR, 4 * HOUR + 1, 5 * HOUR, 5 * HOUR + 1)
    obstacles = [file_of(tmp_path, second).with_name(str(layout.Name(CREATED, 7, 7))) for second in (0, 4 * HOUR)]
    for folder in obstacles:
        folder.mkdir()  # neither a file to remove nor one to read
    tidy(tmp_path, 9 * HOUR)
    for folder in obstacles:
        folder.rmdir()
    assert not set(seconds_of(tmp_path)) & {HOUR + 1, HOUR + 2}
    assert seconds_of(tmp_path)[-4:] == [4 * HOUR, 4 * HOUR + 1, 5 * HOUR, 5 * HOUR + 1]
    assert len([path for path, _ in layout.files(tmp_path) if path.parent == file_of(tmp_path, 4 * HOUR).parent]) == 2
    assert file_of(tmp_path, 5 * HOUR + 1).name == str(layout.Name(CREATED, 15 * HOUR, 15 * HOUR + 1))


@pytest.mark.slow
def test_rows_ahead_of_the_clock_or_older_than_the_retention_are_refused_and_counted(tmp_path: Path) -> None:
    view.create(tmp_path)
    target = Writer(tmp_path, "S", CREATED, 1, lambda: Window(at(1), at(HOUR) - 1))
    past, future = (writer.LATE.labels("samples", reason)._value for reason in ("past", "future"))
    before = past.get(), future.get()
    for sequence, second in enumerate((0, 1, HOUR - 1, HOUR, 2**53 // 1_000_000 - START - 100), 1):
        subject, payload = stored(block("n", second))
        append(target, subject, sequence, payload)
    assert target.flush() == 20
    assert seconds_of(tmp_path) == [1, HOUR - 1]
    assert (past.get() - before[0], future.get() - before[1]) == (10, 20)
    assert Writer(tmp_path, "S", CREATED, 1).cursor == 5  # none is read again


@pytest.mark.slow
def test_beyond_the_byte_limit_the_oldest_whole_hours_go_first_and_the_current_stays(tmp_path: Path) -> None:
    made(tmp_path, 0, HOUR, 2 * HOUR, 3 * HOUR, 3 * HOUR + 1)
    sizes = [file_of(tmp_path, second).stat().st_size for second in (2 * HOUR, 3 * HOUR, 3 * HOUR + 1)]
    now = 3 * HOUR + 60
    tidy(tmp_path, now)
    assert len(seconds_of(tmp_path)) == 5
    tidy(tmp_path, now, max_bytes=sum(sizes))
    assert seconds_of(tmp_path) == [2 * HOUR, 3 * HOUR, 3 * HOUR + 1]
    tidy(tmp_path, now, max_bytes=sum(sizes) - 1)
    assert seconds_of(tmp_path) == [3 * HOUR, 3 * HOUR + 1]
    tidy(tmp_path, now, max_bytes=1)
    assert seconds_of(tmp_path) == [3 * HOUR, 3 * HOUR + 1]
    assert retention.limit(tmp_path, at(5 * HOUR), History.model_validate({"max_bytes": 1, **UNROLLED})) == 2


def test_beyond_the_byte_limit_states_of_nodes_outlast_newer_rows(tmp_path: Path) -> None:
    target = made(tmp_path)
    state = of_each_kind(0)["nodefacts"].model_copy(update={"at_us": at(0)})
    append(target, NAMES.part(0, "nodefacts", "n"), 1, codec.encode(state))
    feed(target, HOUR, 2 * HOUR)

    def tables_after(max_bytes: int) -> set[str]:
        retention.limit(tmp_path, at(9 * HOUR), History.model_validate({"max_bytes": max_bytes, **UNROLLED}))
        return {path.parents[2].name for path, _ in layout.files(tmp_path)}

    states, *rows = (path.stat().st_size for path, _ in layout.files(tmp_path))
    assert tables_after(states + sum(rows) - 1) == {"nodes", "samples"}
    assert seconds_of(tmp_path) == [2 * HOUR]
    assert tables_after(states) == {"nodes"}
    assert tables_after(1) == set()


def test_beyond_the_byte_limit_states_of_pods_beyond_half_of_it_go_before_newer_rows(tmp_path: Path) -> None:
    target = made(tmp_path)
    for hour in range(6):
        state = of_each_kind(hour)["podfacts"].model_copy(update={"at_us": at(hour * HOUR)})
        append(target, NAMES.part(0, "podfacts", "n"), 1 + hour, codec.encode(state))
        target.flush()
    feed(target, 7 * HOUR)

    def files_after(max_bytes: int) -> Counter[str]:
        retention.limit(tmp_path, at(9 * HOUR), History.model_validate({"max_bytes": max_bytes, **UNROLLED}))
        return Counter(path.parents[2].name for path, _ in layout.files(tmp_path))

    *states, rows = (path.stat().st_size for path, _ in layout.files(tmp_path))
    assert sum(states) > rows
    assert files_after(sum(states) + rows - 1) == {"podfacts": 5, "samples": 1}
    assert files_after(sum(states[2:]) + rows) == {"podfacts": 4, "samples": 1}
    with view.connect(tmp_path) as connection:
        assert connection.execute("SELECT min(at_us) FROM podfacts").fetchone() == (at(2 * HOUR),)


def test_a_few_late_rows_wait_for_an_hour_before_all_of_their_hour_is_written_again(tmp_path: Path) -> None:
    keeper, first = Upkeep(tmp_path), 10 * HOUR
    target = made(tmp_path, 0, 1)

    def files_after(second: int) -> int:
        keeper.run(at(second), History.model_validate({"retention_seconds": 7 * 24 * HOUR, **UNROLLED}))
        return sum(path.parents[2].name == "samples" for path, _ in layout.files(tmp_path))

    assert files_after(first) == 1
    feed(target, 2)
    assert [files_after(first + minutes * 60) for minutes in (10, 20, 50)] == [2, 2, 2]
    assert files_after(first + HOUR) == 1
    feed(target, *range(3, 3 + compaction._FEW))
    assert files_after(first + HOUR + 600) == 1  # many do not wait


def test_what_counts_for_weeks_stays_as_long_as_the_longest_roll_ups(tmp_path: Path) -> None:
    lasting = {"nodes", "podfacts", "decisions", "trust"}
    for table in (*lasting, "predictions"):
        path = layout.hour_folder(tmp_path, table, at(0)) / str(layout.Name(CREATED, 1, 1))
        path.parent.mkdir(parents=True)
        path.touch()

    def tables_after(days: int) -> set[str]:
        settings = History.model_validate(
            {"retention_seconds": 7 * 24 * HOUR, **UNROLLED, "retention_1m_seconds": 90 * 24 * HOUR}
        )
        retention.drop(tmp_path, at(days * 24 * HOUR), settings)
        return {path.parents[2].name for path, _ in layout.files(tmp_path)}

    assert tables_after(6) == {*lasting, "predictions"}
    assert tables_after(89) == lasting
    assert tables_after(91) == set()
