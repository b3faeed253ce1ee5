"""`spazio export` as a program would use it: files of tables, of a range, of nodes, of a query."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from schemas import codec
from sinks.history import view
from sinks.history.writer import Writer
from spazio import cli
from spazio.export import fault, file, selection
from tests.support.history import append
from tests.support.processors.telemetry import NAMES, block, stored
from tests.support.processors.workload import of_each_kind
from tests.unit.sinks.history.upkeep import steps

Spazio = Callable[..., int]
BEGIN_US = 1_700_000_000_000_000  # of the first block; each is a second of ten samples


@pytest.fixture
def history(tmp_path: Path) -> Path:
    folder = tmp_path / "it's a history"
    writer = Writer(folder, "S", "20261121T063000123456Z", 1)
    sequence = 0
    for second in range(60):
        for node in ("n", "n2"):
            sequence += 1
            append(writer, *_at(sequence, stored(block(node, second, cpu_util=0.5, memory_pressure=None))))
    for kind, message in of_each_kind(0).items():
        sequence += 1
        append(writer, NAMES.part(0, kind, "n"), sequence, codec.encode(message))
    writer.flush()
    view.create(folder)
    return folder


def _at(sequence: int, message: tuple[str, bytes]) -> tuple[str, int, bytes]:
    return message[0], sequence, message[1]


@pytest.fixture
def spazio(history: Path, monkeypatch: pytest.MonkeyPatch) -> Spazio:
    def run(*arguments: object) -> int:
        line = ["spazio", "export", *map(str, arguments), "--history-dir", str(history)]
        monkeypatch.setattr("sys.argv", line)
        return cli.main()

    return run


def rows(path: Path, what: str = "*") -> list[tuple[object, ...]]:
    name = str(path).replace("'", "''")
    result: list[tuple[object, ...]] = duckdb.connect().execute(f"SELECT {what} FROM '{name}'").fetchall()
    return result


@pytest.mark.slow
def test_all_tables_with_rows_become_files_with_all_their_rows(
    spazio: Spazio, history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "folder"
    assert spazio(out) == 0
    with view.connect(history) as connection:
        counts = {
            path.stem: connection.execute(f"SELECT count(*) FROM {path.stem}").fetchone() for path in out.iterdir()
        }
    assert {path.stem: rows(path, "count(*)")[0] for path in out.iterdir()} == counts
    assert counts["samples"] == (1200,)
    assert counts.keys() >= {"samples", "containers", "pods", "nodes", "podfacts"}
    assert "smoothed" not in counts, "a table without rows has no file"
    shown = capsys.readouterr().out
    assert f"{out}/samples.parquet: 1200 rows" in shown
    assert "up to 2023-11-14T22:14:19Z" in shown


@pytest.mark.slow
def test_a_range_and_nodes_choose_rows_and_only_of_tables_that_have_nodes(spazio: Spazio, tmp_path: Path) -> None:
    assert spazio(tmp_path / "out", "--from", "2023-11-14T22:13:30Z", "--to", "30s", "--node", "n2") == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["samples.parquet"]
    result = rows(tmp_path / "out" / "samples.parquet", "string_agg(DISTINCT node), min(at_us), max(at_us), count(*)")
    last = BEGIN_US + 59_900_000
    assert result == [("n2", BEGIN_US + 10_000_000, last - 30_000_000 - 100_000, 199)]


@pytest.mark.slow
def test_a_second_export_leaves_no_rows_of_the_first(spazio: Spazio, tmp_path: Path) -> None:
    assert spazio(tmp_path / "out", "--node", "n") == 0
    assert (tmp_path / "out" / "containers.parquet").exists()
    assert spazio(tmp_path / "out", "--node", "n2") == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["samples.parquet"]


def test_the_newest_row_may_be_of_a_table_whose_rows_are_made_of_others(tmp_path: Path) -> None:
    steps.history(tmp_path, range(5))
    steps.tidy(tmp_path, 3 * steps.HOUR)
    steps.tidy(tmp_path, 9 * steps.DAY, retention_seconds=7 * steps.DAY)
    with view.connect(tmp_path) as connection:
        assert connection.execute("SELECT count(*) FROM samples").fetchall() == [(0,)]
        (last,) = connection.execute("SELECT max(at_us) FROM samples_10s").fetchall()
        assert selection.newest(tmp_path, connection) == last[0]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "json"])
def test_lists_and_what_is_missing_survive_in_text(spazio: Spazio, tmp_path: Path, form: str) -> None:
    assert spazio(tmp_path, "--table", "nodes", "--table", "samples", "--format", form) == 0
    (labels, price), *_ = rows(tmp_path / f"nodes.{form}", "labels, price")
    assert (json.loads(labels) if isinstance(labels, str) else labels) == {
        "topology.kubernetes.io/zone": "a",
        "empty": "",
    }
    assert isinstance(price, float)
    assert rows(tmp_path / f"samples.{form}", "count(*), count(cpu_util), count(memory_pressure)") == [(1200, 1200, 0)]


@pytest.mark.slow
def test_the_rows_of_a_query_become_a_file_of_the_format_of_its_name(spazio: Spazio, tmp_path: Path) -> None:
    query = "SELECT node, count(*) AS n, 'NaN'::DOUBLE AS nan, 1e999 / 2 AS infinite FROM samples GROUP BY 1 -- all"
    assert spazio(tmp_path / "nodes.json", "--query", f"{query} ORDER BY 1") == 0
    lines = (tmp_path / "nodes.json").read_text().splitlines()
    assert sorted(json.loads(line)["node"] for line in lines) == ["n", "n2"]
    assert json.loads(lines[0]) | {"node": ""} == {"node": "", "n": 600, "nan": None, "infinite": None}
    assert spazio(tmp_path / "rows", "--query", "PIVOT samples ON node USING count(*)", "--format", "parquet") == 0
    assert duckdb.connect().execute(f"SELECT n, n2 FROM read_parquet('{tmp_path}/rows')").fetchall()


@pytest.mark.parametrize("form", ["csv", "json"])
def test_json_has_no_numbers_that_are_not_finite_however_deep_they_are(tmp_path: Path, form: file.Form) -> None:
    query = """
        SELECT [[1.5, 'NaN'::DOUBLE], NULL] AS lists, {'it''s': 'inf'::FLOAT, 'b': {'c': 'x'}} AS structs,
            MAP {'k': {'v': ['-inf'::DOUBLE]}} AS maps, [2.5, 'inf'::DOUBLE]::DOUBLE[2] AS arrays,
            NULL::STRUCT(a DOUBLE) AS missing, ['NaN'] AS texts
    """
    with duckdb.connect() as connection:
        assert file.write(connection.sql(query), tmp_path / "out", form) == 1
    content = (tmp_path / "out").read_text()
    cells = next(csv.DictReader(io.StringIO(content))) if form == "csv" else {}
    texts = [text or "null" for text in cells.values()] or [content]
    answers = [json.loads(text, parse_constant=pytest.fail) for text in texts]
    if form == "json":
        answers = list(answers[0].values())
    deep = {"k": {"v": [None]}}
    assert answers == [[[1.5, None], None], {"it's": None, "b": {"c": "x"}}, deep, [2.5, None], None, ["NaN"]]


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('{tmp}/secret')",
        "COPY (SELECT 1) TO '{tmp}/out.csv'",
        "COPY (SELECT 1) TO '{hidden}'",
        "SELECT 1) TO '{tmp}/out.csv'; --",
        "SELECT 1; SELECT 2",
        "SELECT nonsense",
        "SET threads = 1",
    ],
)
def test_a_query_reads_the_history_only_and_leaves_no_file_behind_when_it_fails(
    spazio: Spazio, tmp_path: Path, query: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "secret").write_text("hidden")
    (tmp_path / "out.csv").write_text("as it was")
    before = sorted(tmp_path.iterdir())
    hidden = file.hidden(tmp_path / "out.csv")
    assert spazio(tmp_path / "out.csv", "--query", query.format(tmp=tmp_path, hidden=hidden)) == 1
    assert (sorted(tmp_path.iterdir()), (tmp_path / "out.csv").read_text()) == (before, "as it was")
    assert capsys.readouterr().err.startswith("spazio: ")


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--table", "nothing"], "there are availability, "),
        (["--table", "subspaces", "--node", "n1"], "subspaces has no nodes"),
        (["--from", "yesterday"], "'yesterday' is no time; write 2026-"),
        (["--from", "10s", "--to", "20s"], "before it begins"),
        (["--table", "samples", "--query", "SELECT 1"], "leave out --table"),
        (["--table", "samples", "--format", "html"], "leave out --table"),
        (["--format", "html", "--from", "10s", "--to", "5s"], "no node was measured"),
        (["--from", "1e400d"], "is no time"),
    ],
)
def test_what_cannot_be_exported_is_reported_in_one_sentence(
    spazio: Spazio, tmp_path: Path, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spazio(tmp_path / "out", *arguments) in (1, 2)
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_folder_for_tables_is_not_named_like_a_file(
    spazio: Spazio, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spazio(tmp_path / "samples.csv", "--table", "samples") == 2
    assert "named like a file" in capsys.readouterr().err
    assert not (tmp_path / "samples.csv").exists()


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--node", "n", "--node", "nope"], "no row is of node nope; spazio sql"),
        (["--node", "n2", "--to", "1971-01-01T00:00Z"], "node n2 has no rows up to 1971-01-01T"),
        (
            ["--from", "1970-01-01T00:00Z", "--to", "1971-01-01T00:00Z"],
            "to 1971-01-01T00:00:00Z; the newest row is of 2023-11-14T22:14:19Z",
        ),
    ],
)
def test_a_node_or_a_range_without_rows_is_named(
    spazio: Spazio, tmp_path: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spazio(tmp_path / "out", *arguments, "--table", "samples") == 0
    warned = capsys.readouterr().err
    assert warned.startswith("spazio: warning: ")
    assert sentence in warned
    assert warned.count("\n") == 1
    assert spazio(tmp_path / "out", "--table", "samples", "--node", "n") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_an_ending_that_is_no_format_is_refused_with_those_that_are(
    spazio: Spazio, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spazio(tmp_path / "rows.xlsx", "--query", "SELECT 1") == 2
    assert "rows.xlsx ends with none of .parquet, .csv, .json, .html; " in capsys.readouterr().err
    assert not (tmp_path / "rows.xlsx").exists()
    assert spazio(tmp_path / "row.csv", "--query", 'SELECT 1 AS "Success"') == 0
    assert capsys.readouterr().out == f"{tmp_path}/row.csv: 1 row\n"


@pytest.mark.slow
def test_a_name_of_a_node_is_no_sql(spazio: Spazio, tmp_path: Path) -> None:
    assert spazio(tmp_path / "out", "--table", "samples", "--node", "n1' OR '1' = '1") == 0
    assert rows(tmp_path / "out" / "samples.parquet", "count(*)") == [(0,)]


def test_without_a_history_it_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["spazio", "export", str(tmp_path / "out"), "--history-dir", str(tmp_path)])
    assert cli.main() == 1
    assert "spazio up" in capsys.readouterr().err


@pytest.mark.slow
def test_an_empty_history_has_no_newest_row(tmp_path: Path) -> None:
    view.create(tmp_path)
    with view.connect(tmp_path) as connection, pytest.raises(selection.Unselectable, match="no rows yet"):
        selection.newest(tmp_path, connection)


def test_a_range_may_end_with_the_calendar_and_no_number_of_days_is_too_large_to_be_refused() -> None:
    period = selection.parse("2026-01-01T00:00Z", "9999-12-31T23:59:59-12:00", 0)
    assert selection.spoken(period) == "from 2026-01-01T00:00:00Z to 9999-12-31T23:59:59Z"
    with pytest.raises(selection.Unselectable, match="is no time"):
        selection.parse("9" * 400 + "d", None, 0)


def test_a_damaged_file_is_named_without_a_statement_of_ours(
    spazio: Spazio, history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = next((history / "samples").glob("date=*/hour=*/2*.parquet"))
    file.write_bytes(file.read_bytes()[:40])
    for arguments in ((tmp_path / "out",), (tmp_path / "out.csv", "--query", "FROM samples")):
        assert spazio(*arguments) == 1
        error = capsys.readouterr().err
        assert error.startswith(f"spazio: {file} is damaged, ")
        assert error.count("\n") == 1


def test_an_error_in_a_view_shows_no_statement_of_ours() -> None:
    with pytest.raises(duckdb.Error, match=r"\n\nLINE 1: ") as raised:
        duckdb.execute("SELECT absent FROM range(1)")
    shown = str(fault.without_statement(raised.value))
    assert 'column "absent" not found' in shown
    assert "LINE" not in shown
