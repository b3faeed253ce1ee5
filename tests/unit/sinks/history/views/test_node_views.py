"""The views of nodes, on rows worked by hand."""

import time
from pathlib import Path

import pytest

from schemas import codec
from schemas.sections.service import History
from sinks.history import view
from sinks.history.upkeep.upkeep import Upkeep
from sinks.history.writer import Writer
from spazio.export import selection
from tests.support.extender.placement import report
from tests.support.history import append
from tests.support.processors.telemetry import NAMES

pytestmark = pytest.mark.slow

MINUTE_US = 60_000_000
START_US = 1_700_000_040_000_000  # a whole minute


@pytest.fixture
def history(tmp_path: Path) -> Path:
    target = Writer(tmp_path, "S", "20261121T063000123456Z", 1)
    rows = [
        ("a", 0, 4.0, 0.5),
        ("a", 1, 0.0, None),
        ("a", 61, 2.0, None),
        ("b", 2, 7.0, 0.25),
        ("old", -90_000, 9.0, 0.1),
    ]
    for sequence, (name, second, available, used) in enumerate(rows, 1):
        message = report(name, START_US + second * 1_000_000, available).model_copy(update={"cpu_used": used})
        append(target, NAMES.part(0, "availability", name), sequence, codec.encode(message))
    target.flush()
    view.create(tmp_path)
    return tmp_path


def test_node_now_has_the_newest_row_of_each_node_of_the_last_day(history: Path) -> None:
    with view.connect(history) as connection:
        rows = connection.execute(
            "SELECT node, available, cpu_used, age_seconds FROM node_now ORDER BY node"
        ).fetchall()
    assert rows == [("a", 2.0, None, 0.0), ("b", 7.0, 0.25, 59.0)]


def test_availability_1m_keeps_the_least_room_beside_the_mean(history: Path) -> None:
    with view.connect(history) as connection:
        rows = connection.execute(
            "SELECT epoch_us(minute) - ?, node, reports, available, least_available, cpu_used FROM availability_1m "
            "WHERE node <> 'old' ORDER BY ALL",
            [START_US],
        ).fetchall()
    assert rows == [(0, "a", 2, 2.0, 0.0, 0.5), (0, "b", 1, 7.0, 7.0, 0.25), (MINUTE_US, "a", 1, 2.0, 2.0, None)]


def test_what_is_now_is_the_same_before_and_after_hours_have_their_roll_up(tmp_path: Path) -> None:
    """One node has left three hours ago, one a day and an hour ago, and one has rows in the hour that still fills."""
    day, hour = 86_400, 3600
    begin_us = START_US // (hour * 1_000_000) * hour * 1_000_000
    seconds = {"gone": [10, 20], "left": [day - 2 * hour + 5, day - 2 * hour + 119], "here": [day, day + hour + 7]}
    view.create(tmp_path)
    target = Writer(tmp_path, "S", "20261121T063000123456Z", 1)
    rows = sorted((second, name) for name, listed in seconds.items() for second in listed)
    for sequence, (second, name) in enumerate(rows, 1):
        rooms = {"shop/web": (second % 7 + 0.5, 0.25), "shop/api": (1.0, 0.5)}
        message = report(name, begin_us + second * 1_000_000, second % 10 + 0.25, classes=rooms, free={"cpu": 1.0})
        append(target, NAMES.part(0, "availability", name), sequence, codec.encode(message))
        target.flush()
    asked = "SELECT node, at_us, class, available, lower, stranded_cpu FROM class_now ORDER BY ALL"

    def answers() -> list[tuple[object, ...]]:
        with view.connect(tmp_path, restricted=True) as connection:
            return [
                *connection.execute("SELECT * FROM node_now ORDER BY node").fetchall(),
                *connection.execute(asked).fetchall(),
            ]

    before = answers()
    assert [row[0] for row in before] == ["here", "left", "here", "here", "left", "left"]
    assert [row[2] for row in before[:2]] == [0.0, 3 * hour - 112]
    assert before[2][2:5] == ("shop/api", 1.0, 0.5)
    Upkeep(tmp_path).run(begin_us + (day + hour + 60) * 1_000_000, History(retention_seconds=30 * day))
    with view.connect(tmp_path) as connection:
        assert connection.execute("SELECT count(*) FROM availability_minutes").fetchall() == [(3,)]
    assert answers() == before


def ahead(folder: Path, seconds: dict[str, int]) -> dict[str, float]:
    """Record two reports of each node, five seconds apart, by clocks that are so far ahead; return ages by node."""
    step_us, folder = time.time_ns() // 10_000_000_000 * 10_000_000, folder / "-".join(seconds)
    target = Writer(folder, "S", "20261121T063000123456Z", 1)
    rows = [(name, more - before) for before in (5, 0) for name, more in seconds.items()]
    free = {"cpu": 1.0, "memory": 1.0}
    for sequence, (name, second) in enumerate(rows, 1):
        message = report(name, step_us + second * 1_000_000, 4.0, classes={"shop/web": (3.0, 0.25)}, free=free)
        append(target, NAMES.part(0, "availability", name), sequence, codec.encode(message))
    target.flush()
    view.create(folder)
    with view.connect(folder, restricted=True) as connection:
        return dict(connection.execute("SELECT node, age_seconds FROM node_now").fetchall())


def test_a_node_whose_clock_is_ahead_makes_no_other_old(tmp_path: Path) -> None:
    assert ahead(tmp_path, {"a": 0, "b": -2, "ahead": 3000}) == {"a": 0.0, "b": 2.0, "ahead": 0.0}
    with view.connect(tmp_path / "a-b-ahead") as connection:
        (newest,) = connection.execute("SELECT nodes FROM cluster QUALIFY time = max(time) OVER ()").fetchall()
        period = selection.parse("30s", None, selection.newest(tmp_path / "a-b-ahead", connection))
    assert newest == (2,)
    assert abs(period.to_us - time.time_ns() // 1000) < 60_000_000


def test_a_replay_that_has_run_ahead_of_the_clock_counts_from_its_newest_row(tmp_path: Path) -> None:
    assert ahead(tmp_path, {"a": 7200, "b": 7198, "gone": -20}) == {"a": 0.0, "b": 2.0, "gone": 7220.0}
    with view.connect(tmp_path / "a-b-gone") as connection:
        newest_us = selection.newest(tmp_path / "a-b-gone", connection)
    assert newest_us > time.time_ns() // 1000 + 7_000_000_000


def test_the_day_of_what_is_now_ends_with_what_was_newest_and_not_with_a_clock_that_is_ahead(tmp_path: Path) -> None:
    """Where most nodes have rows of the future, those of an earlier day do not count among them."""
    left, ago = 84_600, 200_000
    assert ahead(tmp_path, {"a": 0, "left": -left, "ahead": 3000}) == {"a": 0.0, "left": left, "ahead": 0.0}
    assert ahead(tmp_path, {"b": 7200, "c": -ago, "d": -ago}) == {"b": 0.0}


def test_recent_hours_are_the_two_newest_and_keep_other_files_closed(tmp_path: Path) -> None:
    view.create(tmp_path)
    target = Writer(tmp_path, "S", "20261121T063000123456Z", 1)
    for sequence in range(1, 6):
        message = report("a", START_US + sequence * 3_600_000_000, 1.0)
        append(target, NAMES.part(0, "availability", "a"), sequence, codec.encode(message))
        target.flush()
    with view.connect(tmp_path) as connection:
        hours = connection.execute("SELECT date::VARCHAR, hour FROM recent_hours ORDER BY ALL").fetchall()
        asked = "SELECT seq FROM availability JOIN recent_hours USING (date, hour)"
        rows = connection.execute(asked).fetchall()
        plan = connection.execute(f"EXPLAIN ANALYZE {asked}").fetchall()[0][1]
    assert hours == [("2023-11-15", 2), ("2023-11-15", 3)]
    assert len(rows) == 2
    assert "Total Files Read: 2" in plan, plan
