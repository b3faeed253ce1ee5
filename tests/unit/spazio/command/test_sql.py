"""`spazio sql` as a program would use it."""

import io
import json
from pathlib import Path

import duckdb
import pytest

from schemas import codec
from sinks.history import view
from sinks.history.writer import Writer
from spazio.command import sql
from tests.support.history import append
from tests.support.processors.telemetry import NAMES, block, stored
from tests.support.processors.workload import of_each_kind


@pytest.fixture
def history(tmp_path: Path) -> Path:
    target = Writer(tmp_path, "S", "20261121T063000123456Z", 1)
    for second in range(3):
        subject, payload = stored(block("n", second, cpu_util=0.5, memory_pressure=None))
        append(target, subject, second + 1, payload)
    target.flush()
    view.create(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_rows_are_printed_as_a_table_and_as_json(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sql.run(history, "SELECT node, max(cpu_util) AS most FROM samples GROUP BY 1") == 0
    assert "most" in capsys.readouterr().out
    statement = "SELECT node, min(time) AS time, any_value(memory_pressure) AS none, date FROM samples GROUP BY ALL"
    assert sql.run(history, statement, form="json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["node"] == "n"
    assert rows[0]["none"] is None
    assert rows[0]["time"].startswith("2023-11-14T22:13:20")
    assert rows[0]["date"] == "2023-11-14"


@pytest.mark.slow
def test_maps_lists_and_structs_are_json_too(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = Writer(history, "S", "20261121T063000123456Z", 1)
    for sequence, (kind, message) in enumerate(of_each_kind(0).items(), 10):
        append(target, NAMES.part(0, kind, "n"), sequence, codec.encode(message))
    target.flush()
    statement = "SELECT labels, taints, price / 0 AS dear, histogram(time) AS hours FROM nodes GROUP BY ALL"
    assert sql.run(history, statement, form="json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["labels"] == {"topology.kubernetes.io/zone": "a", "empty": ""}
    assert row["taints"] == [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]
    assert row["dear"] is None
    assert list(row["hours"].values()) == [1]
    assert next(iter(row["hours"])).startswith("2023-11-14T22:13:20")


@pytest.mark.slow
def test_a_column_may_have_the_name_that_duckdb_gives_to_no_rows(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = 'SET threads = 1; CHECKPOINT; SELECT true AS "Success"; FROM (SELECT true AS "Success") WHERE false'
    assert sql.run(history, text, form="json") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [[{"Success": True}], []]


@pytest.mark.slow
def test_a_wrong_statement_is_explained_with_status_1(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sql.run(history, "SELECT nonsense FROM samples") == 1
    assert "nonsense" in capsys.readouterr().err


def test_a_damaged_file_is_named_with_what_helps(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file,) = (history / "samples").glob("date=*/hour=*/2*.parquet")
    whole = file.read_bytes()
    footer = int.from_bytes(whole[-8:-4], "little")
    for content in (whole[:40], b"", whole[: -8 - footer] + b"\xff" * footer + whole[-8:]):
        file.write_bytes(content)
        assert sql.run(history, "SELECT count(*) FROM samples") == 1
        error = capsys.readouterr().err
        assert error.startswith(f"spazio: {file} is damaged, ")
        assert error.endswith(f"which sets it aside, or rename it to {file.name}.damaged\n")
    assert sql.run(history, "SELECT count(*) FROM sample") == 1
    assert "damaged" not in capsys.readouterr().err


def test_without_a_history_it_says_how_to_make_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sql.run(tmp_path / "none", "SELECT 1") == 1
    assert "spazio up" in capsys.readouterr().err


def test_statements_come_from_standard_input_if_it_is_no_terminal(
    history: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT count(*) AS n FROM samples; SELECT ';' AS text"))
    assert sql.run(history, None, form="json") == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [[{"n": 30}], [{"text": ";"}]]


@pytest.mark.slow
@pytest.mark.parametrize("leave", ["quit", "exit;", ".quit"])
def test_standard_input_may_leave_and_give_commands_as_the_prompt(
    history: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], leave: str
) -> None:
    text = f"SELECT 1 AS\nquit;\n.tables\n\nSELECT 'a\n\nb' AS text;\n{leave}\nSELECT 3 AS after;\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert sql.run(history, None, form="json") == 0
    first, tables, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == [{"quit": 1}]
    assert "samples" in [row["table"] for row in tables]
    assert second == [{"text": "a\n\nb"}]
    monkeypatch.setattr("sys.stdin", io.StringIO(".nonsense\nSELECT 1;\n"))
    assert sql.run(history, None) == 1
    captured = capsys.readouterr()
    assert (captured.out, ".nonsense" in captured.err) == ("", True)


@pytest.mark.slow
def test_the_prompt_takes_statements_over_several_lines_and_dot_commands(
    history: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter([".tables", "", "SELECT count(*) AS n", "FROM samples;", "SELECT wrong;", ".nonsense", ".help"])

    def typed(_: str) -> str:
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert sql.run(history, None) == 0
    shown = capsys.readouterr()
    assert "availability" in shown.out
    assert "30" in shown.out
    assert ".nonsense" in shown.out
    assert "wrong" in shown.err


@pytest.mark.slow
@pytest.mark.parametrize("statement", ["DROP VIEW samples", "ALTER VIEW Samples RENAME TO s"])
def test_a_view_of_the_history_is_not_dropped_and_nothing_says_that_it_was(
    history: Path, capsys: pytest.CaptureFixture[str], statement: str
) -> None:
    assert sql.run(history, statement) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "samples is of the history" in captured.err
    text = "CREATE TEMP TABLE t AS SELECT 1 AS a; DROP TABLE t; SELECT count(*) AS n FROM samples"
    assert sql.run(history, text) == 0
    captured = capsys.readouterr()
    assert "Success" not in captured.out
    assert "30" in captured.out


@pytest.mark.slow
@pytest.mark.parametrize("leave", ["quit", "EXIT;", ".quit"])
def test_quit_leaves_the_prompt(
    history: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], leave: str
) -> None:
    lines = iter(["SELECT 7 AS n;", leave, "SELECT 8 AS n;"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert sql.run(history, None, form="json") == 0
    assert '[{"n": 7}]' in capsys.readouterr().out
    assert next(lines) == "SELECT 8 AS n;"


OUTSIDE = [
    "SELECT * FROM read_text('{secret}')",
    "FROM '{secret}'",
    "SELECT * FROM read_csv('{secret}')",
    "SELECT * FROM glob('{out}/*')",
    "SELECT * FROM read_text('{history}/../out/secret.csv')",
    "SELECT * FROM read_text('{history}/link.csv')",
    "SELECT * FROM read_parquet('http://127.0.0.1:9/x.parquet')",
    "COPY (SELECT 1) TO '{out}/new.csv'",
    "COPY (SELECT 1) TO '{history}/new.parquet'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{history}/new.parquet'",
    "EXPLAIN ANALYZE /**/ cOpY (SELECT 1) TO '{history}/new.parquet'",
    "PREPARE p AS COPY (SELECT 1) TO '{history}/new.parquet'; EXECUTE p",
    "COPY (PIVOT (FROM range(3) AS t(a)) ON a USING count(*)) TO '{history}/new.csv'",
    "EXPORT DATABASE '{history}/new'",
    "ATTACH '{history}/new.db'",
    "ATTACH '{out}/new.db'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET allowed_directories = ['/']",
    "SET lock_configuration = false",
    "RESET allowed_directories",
    "SET autoload_known_extensions = true",
    "SET temp_directory = '{out}'",
]


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("statement", OUTSIDE)
def test_statements_neither_read_nor_write_anything_but_the_history(
    tmp_path: Path, history: Path, capsys: pytest.CaptureFixture[str], statement: str
) -> None:
    folder, out = tmp_path / "a 'history' [x]*", tmp_path / "out"
    folder.mkdir()
    for path in [*history.iterdir()]:
        if path != folder:
            path.rename(folder / path.name)
    out.mkdir()
    secret = out / "secret.csv"
    secret.write_text("word\nhidden\n")
    (folder / "link.csv").symlink_to(secret)
    before = sorted(tmp_path.rglob("*"))
    escaped = {name: str(path).replace("'", "''") for name, path in (("history", folder), ("out", out))}
    text = statement.format(secret=secret, **escaped)
    assert sql.run(folder, text, form="json") == 1
    shown = capsys.readouterr()
    assert "hidden" not in shown.out
    assert "spazio: " in shown.err
    assert sorted(tmp_path.rglob("*")) == before
    assert sql.run(folder, "SELECT count(*) AS n, count(date) AS dated FROM samples", form="json") == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 30, "dated": 30}]


@pytest.mark.slow
def test_unrestricted_statements_read_and_write_files(
    tmp_path: Path, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "out.csv"
    assert sql.run(history, f"COPY (SELECT 7 AS n) TO '{path}'", form="json", unrestricted=True) == 0
    capsys.readouterr()
    assert sql.run(history, f"FROM '{path}'", form="json", unrestricted=True) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 7}]
    assert sql.run(history, f"SELECT * FROM read_csv('{path.parent.parent}/x')", form="json") == 1
    assert "--unrestricted" in capsys.readouterr().err


@pytest.mark.slow
def test_restricted_statements_have_tables_in_memory_plans_and_room_to_spill(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = history.parent / f"{history.name} link"
    link.symlink_to(history)
    text = (
        "SET memory_limit = '60MB'; SET threads = 1; CREATE TEMP TABLE t AS FROM samples; INSERT INTO t FROM samples; "
        "EXPLAIN ANALYZE SELECT max(cpu_util) FROM t; PIVOT t ON node USING count(*); PRAGMA table_info('t'); "
        "SELECT last(s) AS s FROM (SELECT repeat('x', 50) || a AS s FROM range(2000000) AS r(a) ORDER BY hash(a), s)"
    )
    assert sql.run(link, text) == 0, capsys.readouterr().err
    assert "xxx" in capsys.readouterr().out


@pytest.mark.slow
def test_rows_are_written_to_a_pipe_as_parquet(
    history: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    statement = "SET threads = 1; SELECT node, [1] AS list, count(*) AS n FROM samples GROUP BY 1"
    assert sql.run(history, statement, form="parquet") == 0
    (tmp_path / "rows.parquet").write_bytes(capfdbinary.readouterr().out)
    assert duckdb.connect().execute(f"FROM '{tmp_path}/rows.parquet'").fetchall() == [("n", [1], 30)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("SELECT 1; SELECT 2", "of one statement"),
        ("SET threads = 1", "no rows"),
        ("COPY (SELECT 1) TO 'x.parquet'", "only read"),
    ],
)
def test_what_is_no_parquet_file_is_refused_before_a_byte_is_written(
    history: Path, capsys: pytest.CaptureFixture[str], statement: str, reason: str
) -> None:
    assert sql.run(history, statement, form="parquet") == 1
    shown = capsys.readouterr()
    assert (shown.out, reason in shown.err) == ("", True)


def test_a_terminal_gets_no_parquet(
    history: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert sql.run(history, "SELECT 1", form="parquet") == 2
    assert "> rows.parquet" in capsys.readouterr().err
