"""Names from data reach no terminal and no log line as control characters, and no table as markup."""

import io
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bus.accounting.ledger import Statement
from producers.recorded.prepare import Fault
from schemas.messages.estimate import Availability
from schemas.messages.placement import Decision, Ranked, Refusal
from schemas.settings import load
from sinks.history import view
from sinks.history.writer import Writer
from spazio.__main__ import main
from spazio.command import doctor, explain, histograms, sql
from spazio.service import logs
from spazio.service.host import Finding
from spazio.terminal import clean, flow, partitions, replayed, screen, table
from tests.support.history import append
from tests.support.processors.telemetry import facts
from tests.unit.spazio.command.test_top import NOW, room, row

# ESC, its one-byte form, a retitled window, a bidirectional override, a forged line, markup, an unpaired surrogate.
EVIL = "\x1b[2J\x9b31m\x1b]0;title\x07\u202eevil\nforged [/x][red]\ud800"
FORBIDDEN = set("\x1b\x9b\x07\u202e\ud800")
SHOWN = r"\x1b[2J\x9b31m\x1b]0;title\x07\u202eevil\nforged [/x][red]\ud800"


def printed(*things: Any, width: int = 400) -> str:
    console = Console(file=io.StringIO(), width=width)
    for thing in things:
        console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def harmless(text: str) -> bool:
    return not FORBIDDEN & set(text) and "\nforged" not in text


def test_a_printable_name_of_any_script_stays_and_everything_else_becomes_an_escape() -> None:
    for name in ("node-1.example", "Knoten-ä", "节点", "\N{ROCKET}", "[/x]", ""):
        assert clean.text(name) == name
    assert clean.text(EVIL) == SHOWN
    assert clean.lines(f"a\n{EVIL}") == "a\n" + SHOWN.replace(r"\n", "\n")


def evil_row() -> Availability:
    """Return an availability without the checks of a decoder, which refuse a part of the name only."""
    return row("n").model_copy(update={"node": EVIL, "classes": {EVIL: room()}, "mix": {EVIL: 1.0}})


@pytest.mark.parametrize("width", [60, 200])
def test_top_shows_nodes_and_classes_with_any_names(width: int) -> None:
    rows = [evil_row()]
    text = printed(table.page(rows, NOW, width, 30), width=width)
    assert harmless(text)
    assert r"\x1b" in text
    if width == 200:
        assert "[/x][red]" in text


def test_top_shows_partitions_whatever_replicas_report() -> None:
    report = {"nodes": EVIL, "sequence": EVIL, "lag": EVIL, "since_us": 0}
    rows: list[Any] = [partitions.Row(EVIL), partitions.Row(EVIL, EVIL, EVIL, 1, EVIL, **report)]  # type: ignore[arg-type] # a replica reports what it likes
    text = printed(partitions._table(rows))
    assert harmless(text)
    assert text.count("[/x][red]") >= 5


def test_explain_shows_a_decision_about_any_names() -> None:
    ranked = Ranked.model_construct(node=EVIL, score=1.0, scores={EVIL: 1.0}, room=1.0, reserved=0.0, state="fresh")
    decision = Decision.model_construct(
        namespace=EVIL, name=EVIL, pod="u", at_us=1, outcome="placed", mode="argmax", guaranteed=True, seconds=0.0,
        workload=EVIL, strategies={"availability": 1.0}, note=EVIL, feasible=1, nodes=2,
        ranked=[ranked], refused={EVIL: 1}, refusals=[Refusal.model_construct(node=EVIL, reason=EVIL, needs=[EVIL])],
    )  # fmt: skip
    console = Console(file=io.StringIO(), width=400)
    explain.show(decision, console)
    assert isinstance(console.file, io.StringIO)
    assert harmless(console.file.getvalue())
    assert console.file.getvalue().count("[/x][red]") == 9


def test_explain_complains_about_a_file_without_what_is_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(f"kind: Pod\nmetadata: {{name: {json.dumps('p' + EVIL[:4])}}}\nspec: {{}}\n")
    assert explain.run(load({}, environ={}), path, json_output=False) == 2
    path.write_text("a: 'b\x1b[31m\n")
    assert explain.run(load({}, environ={}), path, json_output=False) == 2
    assert harmless(capsys.readouterr().err)


def test_the_doctor_shows_findings_with_any_text() -> None:
    text = printed(doctor.report([Finding(EVIL, True, EVIL), Finding(EVIL, False, EVIL, EVIL, EVIL)]))
    assert not FORBIDDEN & set(text)
    assert text.count("[/x][red]") == 6


def test_the_ledger_shows_accounts_of_any_service() -> None:
    statement = Statement(EVIL, EVIL, 0, 1, True, 1, {EVIL: 1}, 0, 0)
    line = flow.Line(EVIL, EVIL, 1, statement, 0, 0, (EVIL,))
    assert harmless(printed(flow._streams([flow.Flow(EVIL, 1, 2, 2)]), flow._readers([line])))


@pytest.mark.slow
async def test_the_first_screen_shows_any_node(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def settled(_: object) -> Any:
        return [evil_row()]

    monkeypatch.setattr(screen, "_settled", settled)
    screen.show({}, load({}, environ={}))
    await screen.learn(load({}, environ={}))
    assert harmless(capsys.readouterr().out)


@pytest.mark.parametrize("formatter", [logs.Text("watch"), logs.Json("watch")], ids=["text", "json"])
def test_a_log_line_stays_one_line_with_any_field(formatter: logging.Formatter) -> None:
    record = logging.LogRecord("x", logging.WARNING, "f", 1, "pod.refused %s", (EVIL,), None)
    record.pod = EVIL
    line = formatter.format(record)
    assert not FORBIDDEN & set(line)
    assert "\n" not in line
    record.exc_info = (ValueError, ValueError(EVIL), None)
    assert not FORBIDDEN & set(formatter.format(record))


def test_faults_of_settings_are_shown_with_any_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('"\\u001b]0;title\\u0007\\u009b1m" = 1\n')
    monkeypatch.setattr(sys, "argv", ["spazio", "doctor", "--config", str(file)])
    assert main() == 2
    shown = capsys.readouterr().err
    assert "there is no such setting" in shown
    assert harmless(shown)


@pytest.mark.slow
def test_a_table_of_the_history_shows_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = EVIL[:-1]  # DuckDB takes whole characters only
    writer = Writer(tmp_path, "S", "20261121T063000123456Z", 1)
    message = facts("n", "p", "w").model_copy(update={"labels": {"app": name}, "name": name})
    payload = message.model_dump_json(exclude_none=True).encode()
    append(writer, "spazio.podfacts.n", 1, payload)
    writer.flush()
    view.create(tmp_path)
    assert sql.run(tmp_path, "SELECT name, labels FROM podfacts") == 0
    out = capsys.readouterr().out
    assert harmless(out)
    assert "evil" in out
    assert sql.run(tmp_path, f"SELECT '{name}' AS \"{name}\"") == 0
    assert sql.run(tmp_path, f'SELECT "{name}" FROM podfacts') == 1
    captured = capsys.readouterr()
    assert not FORBIDDEN & set(captured.out + captured.err)


def test_a_replay_complains_about_rows_with_any_value(capsys: pytest.CaptureFixture[str]) -> None:
    clean.complain(replayed._located(Fault(f"/tmp/{EVIL[:4]}.csv", 3, EVIL, EVIL)))
    err = capsys.readouterr().err
    assert harmless(err)


def test_histograms_complain_about_files_with_any_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "n\x1b[2J"
    folder.mkdir()
    (folder / "\x9b31m.json").write_text("no JSON")
    assert histograms.take(load({}, environ={}), tmp_path) == 1
    assert harmless(capsys.readouterr().err)


def test_histograms_that_are_nested_too_deeply_are_refused_with_their_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "n1").mkdir()
    (tmp_path / "n1" / "uid.json").write_text("[" * 100_000)
    assert histograms.take(load({}, environ={}), tmp_path) == 1
    assert capsys.readouterr().err == f"spazio: {tmp_path}/n1/uid.json: it is nested too deeply\n"
