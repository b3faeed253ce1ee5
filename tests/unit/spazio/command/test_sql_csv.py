"""Rows as CSV: for programs exactly what they are, for a terminal without what could move its cursor."""

import csv
import io
import os
import subprocess
import sys
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
LINE_ENDS = ["a\rb", "a\nb", "a\r\nb"]


def test_no_text_can_forge_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view.create(tmp_path)
    listed = ", ".join(f"('{text}')" for text in LINE_ENDS)
    assert sql.run(tmp_path, f"SELECT t FROM (VALUES {listed}) AS v(t)", form="csv") == 0
    assert list(csv.reader(io.StringIO(capsys.readouterr().out, newline=""))) == [
        ["t"],
        *([text] for text in LINE_ENDS),
    ]


@pytest.mark.slow
def test_statements_behind_one_whose_rows_have_lost_their_reader_are_no_work_done(tmp_path: Path) -> None:
    view.create(tmp_path)
    statements = f"SELECT range FROM range(200000); COPY (SELECT 1) TO '{tmp_path / 'behind.csv'}'; SELECT 2"
    reading, writing = os.pipe()
    os.close(reading)
    line = ["sql", statements, "--unrestricted", "--format", "csv", "--history-dir", str(tmp_path)]
    try:
        answer = subprocess.run(
            [sys.executable, "-m", "spazio", *line], stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False
        )
    finally:
        os.close(writing)
    assert answer.returncode == 1
    assert answer.stderr == b"spazio: the rows have lost their reader; 2 statements behind were not executed\n"


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


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("rows", [1, 100_000])
@pytest.mark.parametrize("form", ["csv", "json", "table"])
def test_a_reader_that_has_what_it_wants_is_no_failure_however_much_is_left(
    tmp_path: Path, form: str, rows: int
) -> None:
    view.create(tmp_path)
    reading, writing = os.pipe()
    os.close(reading)
    line = ["sql", f"SELECT range AS n FROM range({rows})", "--format", form, "--history-dir", str(tmp_path)]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-m", "spazio", *line]
    try:
        answer = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, env=environ, timeout=60, check=False)
    finally:
        os.close(writing)
    assert (answer.returncode, answer.stderr) == (0, b"")
