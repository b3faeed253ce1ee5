"""What the dashboard's questions to the history see of each other, and of a history that is created again."""

import shutil
from pathlib import Path

import pytest

from schemas.subject import Names
from sinks.dashboard.history import Unanswerable
from sinks.history import view
from spazio.service.composition.dashboard import Folder
from tests.support.dashboard.pages import rows
from tests.support.history import record

pytestmark = pytest.mark.slow

NAMES = Names()


def ask(folder: Folder, statement: str) -> list[list[object]]:
    return [list(row) for row in folder.query(statement, rows=10, seconds=5).rows]


def write(folder: Path, count: int) -> None:
    record(folder, [(NAMES.node("availability", row.node), row) for row in rows(count)])


def test_no_statement_changes_what_another_one_sees(tmp_path: Path) -> None:
    write(tmp_path, 3)
    folder = Folder(tmp_path)
    assert ask(folder, "SELECT count(*) FROM node_now") == [[3]]
    threads = ask(folder, "SELECT current_setting('threads')")
    for changing in ("EXPLAIN ANALYZE DROP VIEW node_now", "EXPLAIN ANALYZE CREATE TABLE mine AS SELECT 1"):
        folder.query(changing, rows=1, seconds=5)
    assert ask(folder, "SELECT count(*) FROM node_now") == [[3]]
    assert ask(folder, "SELECT current_setting('threads')") == threads
    with pytest.raises(Unanswerable, match="mine does not exist"):
        ask(folder, "FROM mine")


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("DROP VIEW node_now", "node_now is of the history, which statements only read"),
        ("ALTER VIEW Node_Now RENAME TO n", "node_now is of the history, which statements only read"),
        ("DROP VIEW IF EXISTS mine", "DROP gives no rows"),
        ("SET memory_limit = '9GB'", "SET gives no rows"),
        ("CREATE TABLE mine AS SELECT 1", "CREATE gives no rows"),
        ("BEGIN", "TRANSACTION gives no rows"),
    ],
)
def test_a_statement_without_rows_is_refused_and_not_reported_as_done(
    tmp_path: Path, statement: str, reason: str
) -> None:
    write(tmp_path, 1)
    with pytest.raises(Unanswerable, match=reason):
        ask(Folder(tmp_path), statement)


@pytest.mark.parametrize(
    "statement",
    ["PRAGMA version", "EXPLAIN SELECT 1", "DESCRIBE node_now", "PIVOT (FROM range(1) AS t(a)) ON a USING count(*)"],
)
def test_every_statement_with_rows_is_answered(tmp_path: Path, statement: str) -> None:
    write(tmp_path, 1)
    assert ask(Folder(tmp_path), statement)


def test_a_value_that_python_has_no_room_for_is_an_answer_and_no_failure(tmp_path: Path) -> None:
    write(tmp_path, 1)
    with pytest.raises(Unanswerable, match="days"):
        ask(Folder(tmp_path), "SELECT INTERVAL 2000000000 DAY")


def test_an_answer_ends_at_32_mebibytes_and_a_larger_row_is_refused(tmp_path: Path) -> None:
    write(tmp_path, 1)
    folder = Folder(tmp_path)
    answer = folder.query("SELECT repeat('a', 1 << 20) AS text FROM range(100)", rows=1000, seconds=30)
    assert (len(answer.rows), answer.truncated) == (31, True)
    with pytest.raises(Unanswerable, match="the first row has 33 MiB, and an answer at most 32"):
        ask(folder, "SELECT repeat('a', 33 << 20)")


def test_views_that_are_created_again_are_used_at_the_next_question(tmp_path: Path) -> None:
    write(tmp_path, 3)
    shutil.rmtree(tmp_path / "rejects")  # as in a folder of an older version
    folder = Folder(tmp_path)
    with pytest.raises(Unanswerable, match="rejects does not exist"):
        ask(folder, "SELECT count(*) FROM rejects")
    view.create(tmp_path)
    assert ask(folder, "SELECT count(*) FROM rejects") == [[0]]


def test_a_question_keeps_the_folder_that_it_spills_into_until_it_is_answered(tmp_path: Path) -> None:
    write(tmp_path, 1)
    folder, asked = Folder(tmp_path), "SELECT current_setting('temp_directory')"
    with folder._shared() as running:
        ((spill,),) = running.execute(asked).fetchall()
        view.create(tmp_path)
        assert ask(folder, asked) != [[spill]]
        assert Path(spill).is_dir()
    assert not Path(spill).exists()


def test_a_folder_that_comes_later_or_goes_is_noticed(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "history")
    with pytest.raises(Unanswerable, match="holds no history"):
        ask(folder, "SELECT 1")
    write(tmp_path / "history", 2)
    assert ask(folder, "SELECT count(*) FROM node_now") == [[2]]
    (tmp_path / "history").rename(tmp_path / "away")
    with pytest.raises(Unanswerable, match="holds no history"):
        ask(folder, "SELECT 1")
    assert ask(Folder(tmp_path / "away"), "SELECT count(*) FROM node_now") == [[2]]
