"""What commands say of a wrong place, a full disk and a reader that goes away; nothing half-written stays."""

import errno
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest

from sinks.history import view
from spazio import backtest, cli
from spazio.simulation import compare
from spazio.truth import recording
from tests.support import powerless

Failed = Callable[..., str]


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Failed:
    """Run a command, which fails, beside `file` and the data folder `up`; return what it says after its own name."""
    (tmp_path / "file").write_bytes(b"\x82\n")
    (tmp_path / "up" / "credentials").mkdir(parents=True)
    (tmp_path / "up" / "credentials" / "server.conf").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPAZIO_DATA_DIR", str(tmp_path / "data"))

    def run(*arguments: str, status: int) -> str:
        monkeypatch.setattr("sys.argv", ["spazio", *arguments])
        assert cli.main() == status
        message = capsys.readouterr().err
        assert message.startswith("spazio: ")
        assert message.count("\n") == 1
        return message[len("spazio: ") : -1]

    return run


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("backup none/b.tar", 1, "none is no folder; make it, or name a file in another one; nothing was written"),
        ("backup file/b.tar", 1, "file is no folder; make it, or name a file in another one; nothing was written"),
        ("restore none", 1, "there is no none; name a backup, or a folder with spazio-*.tar; nothing was restored"),
        ("credentials --out file", 1, "file: File exists; it is a file, name a folder"),
        (
            "credentials --out file/c",
            1,
            "file/c: Not a directory; a part of this path is a file; name another place",
        ),
        ("credentials --nodes file", 2, "file: this is no text; write a file with a node name a line"),
        (
            "credentials --out up",
            2,
            "up is a data folder with credentials of its own; name up/credentials, or another folder",
        ),
        ("simulate latency --out file", 1, "file: File exists; it is a file, name a folder"),
        (
            "truth --again --out none",
            2,
            "none has no recording; name the folder of one with --out, or leave out --again",
        ),
    ],
)
def test_a_wrong_place_is_named_with_what_to_do_and_nothing_is_made(
    failed: Failed, line: str, status: int, message: str
) -> None:
    assert failed(*line.split(), status=status) == message
    assert sorted(names(Path())) == ["file", "up"]
    assert names(Path("up")) == ["credentials"]


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize(
    ("line", "status", "what"),
    [
        ("credentials --out locked/c", 1, "locked/c/server.conf: "),
        ("credentials --nodes locked/names", 2, "locked/names: "),
        ("restore locked/b.tar", 1, "locked/b.tar: "),
        ("export locked/rows.csv --query VALUES(1)", 1, "locked/rows.csv: "),
        ("simulate latency --out locked/runs", 1, "locked/runs: "),
        ("simulate locked/scenario.toml", 2, "locked/scenario.toml: "),
        ("truth --again --out locked", 1, "locked/steps.json: "),
        ("truth --again --out locked/truth", 1, "locked/truth/steps.json: "),
    ],
)
def test_a_folder_that_another_user_has_locked_is_named_with_what_to_do(
    tmp_path: Path, line: str, status: int, what: str
) -> None:
    view.create(tmp_path / "data" / "history")
    (tmp_path / "locked").mkdir(mode=0o000)
    answer = powerless.run(*line.split(), cwd=tmp_path, environ={"SPAZIO_DATA_DIR": str(tmp_path / "data")})
    assert answer.returncode == status
    assert answer.stderr.startswith(
        f"spazio: {what}Permission denied; name another place, or become a user who may use it"
    )
    assert answer.stderr.count("\n") == 1


@pytest.mark.slow
def test_an_export_onto_a_folder_names_the_folder(failed: Failed) -> None:
    view.create(Path("data/history"))
    Path("out").mkdir()
    message = failed("export", "out", "--format", "csv", "--query", "FROM samples", status=1)
    assert message == "out: Is a directory; name a file"
    assert names(Path("out")) == []


@contextmanager
def full() -> Iterator[None]:
    """Let no file grow beyond a few kilobytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
def test_an_export_that_cannot_be_written_says_so_in_words_and_leaves_nothing(failed: Failed) -> None:
    view.create(Path("data/history"))
    with full():
        message = failed("export", "out/many.csv", "--query", "FROM range(1000000)", status=1)
    assert message == "out/many.csv: File too large"
    assert names(Path("out")) == []


def test_a_back_test_that_cannot_be_written_could_not_do_it(failed: Failed, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "backtest/report.txt")

    monkeypatch.setattr(backtest, "run", fail)
    message = "backtest/report.txt: No space left on device; free space, or name another place"
    assert failed("backtest", "file", status=1) == message


def test_a_comparison_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    results = {"spazio": [{f"figure-{number}": float(number) for number in range(10_000)}]}
    with full(), pytest.raises(OSError, match="File too large"):
        compare._write(results, tmp_path / "runs.parquet")
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "content", ["[", "{}", '{"machine": {}, "steps": [{"family": 1}]}', '{"machine": {}, "steps": []}']
)
def test_a_damaged_recording_is_named(content: str, failed: Failed, tmp_path: Path) -> None:
    (tmp_path / recording.STEPS).write_text(content)
    message = failed("truth", "--again", "--out", ".", status=2)
    assert message.startswith("steps.json ")
    assert message.endswith("; measure without --again")


def test_damaged_telemetry_is_named(tmp_path: Path) -> None:
    step = {"family": "burn", "limit": "cpu", "pods": 1, "workload": "w", "begin_us": 0}
    (tmp_path / recording.STEPS).write_text(json.dumps({"machine": {}, "steps": [step]}))
    (tmp_path / recording.TELEMETRY).write_bytes(b"\x1f\x8b\x08")
    with pytest.raises(ValueError, match=r"telemetry.jsonl.gz is damaged; measure without --again"):
        list(recording.load(tmp_path).messages())


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize("buffered", [False, True])
def test_a_reader_that_goes_away_neither_stops_a_command_nor_makes_it_complain(tmp_path: Path, buffered: bool) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    if not buffered:
        environ["PYTHONUNBUFFERED"] = "1"
    line = [sys.executable, "-m", "spazio", "credentials", "--out", str(tmp_path)]
    try:
        answer = subprocess.run(line, stdout=writing, stderr=subprocess.PIPE, env=environ, timeout=60, check=False)
    finally:
        os.close(writing)
    assert (answer.returncode, answer.stderr) == (0, b"")
    assert (tmp_path / "kubernetes.yaml").exists()
