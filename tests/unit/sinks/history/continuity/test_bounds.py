"""What keeps names and times that nodes make up from taking memory and files, and from changing what is written."""

from random import Random

import polars as pl
import pytest

from sinks.history.continuity import hour, repetition
from sinks.history.continuity.repetition import CopyDetector
from sinks.history.layout import HOUR_US
from sinks.history.table import TABLES
from tests.support.processors import telemetry


def test_ever_new_names_of_nodes_take_bounded_memory_and_the_last_stay_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repetition, "_NODES", 100)
    table, given = next(table for table in TABLES if table.name == "samples"), CopyDetector()
    for number in range(1000):
        assert given.new(table, telemetry.block(f"n{number}", 0))
        assert given.new(table, telemetry.block("steady", 0)) == (number == 0)
    assert len(given._followed) == 100
    assert [given.new(table, telemetry.block(f"n{number}", 0)) for number in (999, 0)] == [False, True]


def test_of_equally_frequent_hours_the_newest_have_files_in_whatever_order_rows_come() -> None:
    rows = [each * HOUR_US for each in range(100) for _ in range(2)] + [200 * HOUR_US]
    for seed in range(20):
        Random(seed).shuffle(rows)
        hours = [each // HOUR_US for each in rows]
        expected = [each if each in range(76, 100) else 99 for each in hours]
        assert hour.of_rows(pl.Series("at_us", rows), 24).to_list() == expected
