"""Rows as CSV: for programs exactly what they are, for a terminal without what could move its cursor."""

import csv
import io
from pathlib import Path

import pytest

from sinks.history import view
from spazio.command import sql


def test_rows_are_printed_as_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view.create(tmp_path)
    statement = "SELECT 'n' AS node, NULL AS none, [1, 2] AS list, 'a,\"b' AS text, 0.5 AS half"
    assert sql.run(tmp_path, statement, form="csv") == 0
    assert list(csv.DictReader(io.StringIO(capsys.readouterr().out))) == [
        {"node": "n", "none": "", "list": "[1, 2]", "text": 'a,"b', "half": "0.5"}
    ]


EVIL = "two\nlines\ta tab\r\x1b[2J \u202e\\x1b"


def test_programs_get_texts_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view.create(tmp_path)
    assert sql.run(tmp_path, f"SELECT '{EVIL}' AS \"{EVIL}\"", form="csv") == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out, newline=""))) == [[EVIL], [EVIL]]


def test_a_terminal_gets_no_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view.create(tmp_path)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert sql.run(tmp_path, f"SELECT '{EVIL}' AS \"{EVIL}\", 7 AS n", form="csv") == 0
    shown = r"two\nlines\ta tab\r\x1b[2J \u202e\x1b"
    assert capsys.readouterr().out == f"{shown},n\n{shown},7\n"
