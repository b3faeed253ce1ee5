"""The newest time of a history, and questions that are measured against it, where clocks are ahead."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.extender.placement import report
from tests.support.history import ask, record
from tests.support.processors.telemetry import NAMES, block
from tests.support.project import documents

pytestmark = pytest.mark.slow

HOUR = 3600
SAVED = json.loads((documents.ROOT / "sinks" / "dashboard" / "static" / "sql" / "questions.json").read_text())
MEASURED = [saved["sql"] for saved in SAVED if "newest_time" in saved["sql"]]


@pytest.fixture
def now_us() -> int:
    """Return a time not long ago, in the middle of a minute."""
    return (time.time_ns() // 60_000_000_000 - 1) * 60_000_000 + 30_000_000


def recorded(folder: Path, now_us: int, ahead: dict[str, int], *, sampled: bool = True, reported: bool = True) -> Path:
    """Record two reports and two blocks of samples of each node, whose clock is so many seconds ahead."""
    messages: list[tuple[str, Any]] = []
    for name, seconds in ahead.items():
        for at_us in (now_us + (seconds - before) * 1_000_000 for before in (5, 0)):
            if reported:
                messages.append((NAMES.part(0, "availability", name), report(name, at_us, 4.0)))
            if sampled:
                samples = block(name, 0, samples=1, cpu_util=0.5).model_copy(update={"at_us": at_us})
                messages.append((NAMES.part(0, "samples", name), samples))
    record(folder, messages)
    return folder


@pytest.mark.parametrize("tables", [{}, {"sampled": False}, {"reported": False}])
def test_rows_of_the_future_count_only_where_most_nodes_have_some(
    tmp_path: Path, now_us: int, tables: dict[str, bool]
) -> None:
    statement = "SELECT at_us, epoch_us(time) FROM newest_time"
    single, most = tmp_path / "single", tmp_path / "most"
    assert ask(recorded(single, now_us, {"a": 0, "b": -2, "c": 3000}, **tables), statement) == [(now_us, now_us)]
    ((newest_us, _),) = ask(recorded(most, now_us, {"a": 2 * HOUR, "b": 2 * HOUR - 2, "c": -20}, **tables), statement)
    assert newest_us == now_us + 2 * HOUR * 1_000_000


def test_samples_count_where_availability_ended_hours_ago(tmp_path: Path, now_us: int) -> None:
    messages = [
        (NAMES.part(0, "availability", "a"), report("a", now_us - 3 * HOUR * 1_000_000, 4.0)),
        (NAMES.part(0, "samples", "a"), block("a", 0, samples=1).model_copy(update={"at_us": now_us})),
    ]
    record(tmp_path, messages)
    assert ask(tmp_path, "SELECT at_us FROM newest_time") == [(now_us,)]


def test_a_clock_that_is_ahead_hides_no_hour_of_another_node(tmp_path: Path, now_us: int) -> None:
    """In the hour that began just now only the node whose clock is ahead has a row, of when it was not."""
    hour_us = HOUR * 1_000_000
    begin_us = now_us // hour_us * hour_us
    recorded(tmp_path / "recent", begin_us, {"a": 0, "b": 0, "c": 2 * HOUR})
    counted = "SELECT node, count(*) FROM samples JOIN recent_hours USING (date, hour) GROUP BY node ORDER BY node"
    assert ask(tmp_path / "recent", counted) == [("a", 2), ("b", 2), ("c", 2)]
    rows = [("c", begin_us + 2 * hour_us), ("c", begin_us), ("a", begin_us - 1), ("b", begin_us - 2)]
    messages = [(NAMES.part(0, "availability", name), report(name, at_us, 4.0)) for name, at_us in rows]
    record(tmp_path / "newest", messages)
    assert ask(tmp_path / "newest", "SELECT at_us FROM newest_time") == [(begin_us - 1,)]


@pytest.mark.parametrize(
    ("ahead", "nodes"), [({"a": 0, "b": -2, "c": 3000}, 2), ({"a": 2 * HOUR, "b": 2 * HOUR, "c": 2 * HOUR - 2}, 3)]
)
def test_a_question_of_what_was_last_is_about_all_nodes(
    tmp_path: Path, now_us: int, ahead: dict[str, int], nodes: int
) -> None:
    recorded(tmp_path, now_us, ahead)
    recent, of_one, minutes, busy = (ask(tmp_path, statement) for statement in MEASURED)
    assert [row[1] for row in recent] == [row[1] for row in minutes] == [nodes]
    assert len(of_one) == 2
    assert len(busy) == nodes
