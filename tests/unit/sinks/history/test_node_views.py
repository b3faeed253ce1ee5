"""The views of nodes, on rows worked by hand."""

from pathlib import Path

import pytest

from schemas import codec
from sinks.history import view
from sinks.history.writer import Writer
from tests.support.history import append
from tests.support.placement import report
from tests.support.telemetry import NAMES

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
