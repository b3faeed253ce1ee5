"""Ctrl-C ends a command that still imports, a statement and an export."""

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sinks.history import view
from spazio.backup.save import SETTINGS
from spazio.command import sql
from spazio.service.liveness import probe
from tests.support.forged_backup import ABOUT, forged

# Sends SIGINT to itself as soon as a module is imported.
IMPORTING = """
import os, signal, sys
awaited = sys.argv[1]
class Finder:
    def find_spec(self, name, path, target=None):
        if name == awaited:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from spazio.__main__ import main
sys.argv = ["spazio", "sql", "SELECT 1", "--history-dir", sys.argv[2]]
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["schemas.settings", "typer"])
def test_ctrl_c_while_a_command_imports_ends_it_without_a_word(module: str, tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", IMPORTING, module, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (130, "", "")


def test_a_command_that_is_ended_while_it_imports_ends_without_a_word(tmp_path: Path) -> None:
    ending = IMPORTING.replace("signal.SIGINT", "signal.SIGTERM")
    answer = subprocess.run(
        [sys.executable, "-c", ending, "typer", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (answer.returncode, answer.stdout, answer.stderr) == (143, "", "")


LONG = "SELECT sum(a.range * b.range) AS total FROM range(10000000) a, range(10000000) b"  # hours


def run(*arguments: object, given: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    environ = os.environ | {"PYTHONUNBUFFERED": "1"}
    line = [sys.executable, "-m", "spazio", *map(str, arguments)]
    return subprocess.Popen(line, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)


def interrupted(command: subprocess.Popen[str], sign: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
    """Press Ctrl-C, and return the exit status and what the command prints from then on; it has a minute."""
    command.send_signal(sign)
    try:
        out, err = command.communicate(timeout=60)
    finally:
        command.kill()
    return command.returncode, out, err


@pytest.mark.slow
@pytest.mark.cases
@pytest.mark.parametrize(
    ("piped", "sign", "status"), [(True, signal.SIGINT, 130), (False, signal.SIGINT, 130), (True, signal.SIGTERM, 143)]
)
def test_ctrl_c_and_sigterm_end_a_long_statement_with_one_line(
    tmp_path: Path, piped: bool, sign: signal.Signals, status: int
) -> None:
    view.create(tmp_path)
    text, asked = f"SELECT 1 AS begun; {LONG};", ("sql", "--format", "csv", "--history-dir", tmp_path)
    command = run(*asked, given=subprocess.PIPE) if piped else run(*asked, text)
    if command.stdin is not None:
        command.stdin.write(text)
        command.stdin.close()
        command.stdin = None
    assert command.stdout is not None
    assert [command.stdout.readline() for _ in range(2)] == ["begun\n", "1\n"]
    assert interrupted(command, sign) == (status, "", "spazio: interrupted\n")


@pytest.mark.slow
def test_ctrl_c_ends_a_long_export_and_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    history, out = tmp_path / "history", tmp_path / "out"
    view.create(history)
    command = run("export", out / "total.csv", "--query", LONG, "--history-dir", history)
    while not (out.is_dir() and [*out.iterdir()]):
        assert command.poll() is None
        threading.Event().wait(0.01)
    status, shown, err = interrupted(command)
    assert (status, shown, [*out.iterdir()]) == (130, "", [])
    assert err == f"spazio: interrupted; {out}/total.csv has no part of a file\n"


LONG_LIFE = """\
seconds = 86400
[[nodes]]
count = 1000
[[pods]]
name = "endless"
count = 1000
work = 1e9
"""


def comparing(folder: Path) -> tuple[subprocess.Popen[str], list[str], Path]:
    """Return a comparison whose runs have begun, the processes of its workers, and the folder that it writes into."""
    scenario, out = folder / "long.toml", folder / "out"
    scenario.write_text(LONG_LIFE)
    command = run("simulate", scenario, "--seeds", 1, "--out", out)
    children = Path(f"/proc/{command.pid}/task/{command.pid}/children")
    while not (workers := children.read_text().split()) or not all(probe.cpu_seconds(int(pid)) > 1 for pid in workers):
        assert command.poll() is None
        threading.Event().wait(0.01)
    return command, workers, out


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_comparison_that_is_ended_ends_the_runs_of_its_workers(
    tmp_path: Path, sign: signal.Signals, status: int
) -> None:
    command, workers, out = comparing(tmp_path)
    ended, _, err = interrupted(command, sign)
    assert ended == status
    assert sign == signal.SIGKILL or err.endswith(f"spazio: interrupted; {out} has no part of a file\n")
    while [pid for pid in workers if Path("/proc", pid).exists()]:
        threading.Event().wait(0.1)  # one whose parent was killed ends by itself
    assert [*out.iterdir()] == []


@pytest.mark.slow
def test_a_comparison_of_which_a_run_is_killed_ends_with_a_sentence(tmp_path: Path) -> None:
    command, workers, out = comparing(tmp_path)
    os.kill(int(workers[0]), signal.SIGKILL)  # as the kernel does where memory runs out
    _, err = command.communicate(timeout=60)
    assert command.returncode == 1
    assert err.endswith("spazio: a run was killed, as where memory runs out; fewer nodes, pods or seconds take less\n")
    assert "Traceback" not in err
    assert [*out.iterdir()] == []


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_table_that_is_ended_before_its_server_answers_has_the_status_of_the_signal(
    tmp_path: Path, sign: signal.Signals, status: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        command = run("top", "--once", "--nats", address, "--data-dir", tmp_path)
        silent.settimeout(60)
        with silent.accept()[0]:  # it waits for a greeting
            assert interrupted(command, sign)[:2] == (status, "")


@pytest.mark.slow
def test_ctrl_c_ends_a_restore_that_still_reads_its_backup(tmp_path: Path) -> None:
    backup = forged(tmp_path / "b.tar", SETTINGS, about=ABOUT, hole=1 << 37)  # minutes
    command = run("restore", backup, "--data-dir", tmp_path / "data")
    assert command.stdout is not None
    assert command.stdout.readline().startswith("checking ")
    status, shown, err = interrupted(command)
    assert (status, shown, err) == (130, "", "spazio: interrupted; nothing was restored\n")
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_ctrl_c_at_the_prompt_ends_the_statement_and_the_prompt_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    view.create(tmp_path)

    def press() -> None:
        while not any(thread.name == "interruption" for thread in threading.enumerate()):
            threading.Event().wait(0.01)  # the statement has not begun
        signal.raise_signal(signal.SIGINT)

    pressed = threading.Thread(target=press)
    lines = iter([f"{LONG};", "SELECT 7 AS n;", "quit"])

    def typed(_: str) -> str:
        if not pressed.ident:
            pressed.start()
        return next(lines)

    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert sql.run(tmp_path, None, form="json") == 0
    shown = capsys.readouterr().out
    assert "\ninterrupted; the prompt goes on, and Ctrl-D exits\n" in shown
    assert shown.index("interrupted") < shown.index('[{"n": 7}]')
