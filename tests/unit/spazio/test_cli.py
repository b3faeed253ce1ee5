"""What the command line says of itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bus import server
from schemas import settings
from schemas.messages.base import RELEASE
from spazio import cli, option


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr("sys.argv", ["spazio", *arguments])
    assert cli.main() == 0
    return capsys.readouterr().out


def test_the_version_is_that_of_the_release(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(monkeypatch, capsys, "--version") == f"spazio {RELEASE}\n"


@pytest.mark.parametrize("command", ["up", "top", "load"])
def test_help_is_short_and_help_all_has_every_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    short, whole = (printed(monkeypatch, capsys, command, option) for option in ("-h", "--help-all"))
    assert "--data-dir" in short
    assert "--help-all" in short
    assert "--nats-telemetry-max" not in short
    assert "--nats-telemetry-max" in whole
    assert len(short.splitlines()) < 130 < len(whole.splitlines())
    if command == "up":
        listed = [line for line in short.splitlines() if line.startswith("│ --")]
        assert len(listed) <= 10
    assert printed(monkeypatch, capsys, command, "--help") == short


def test_what_help_lists_are_settings() -> None:
    flats = {settings.option_name(section, field) for section, field, _ in settings.options()}
    assert option._MAIN - flats == set()
    assert option._MAIN_UP - flats == set()
    assert option._SPELLINGS.keys() - flats == set()
    short = {settings.option_name(section, field) for section, fields in option._SHORT.values() for field in fields}
    assert short - flats == set()


def test_help_names_the_node_of_an_agent_and_the_cluster_of_a_watch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        option.parse("agent", "", ["--help"])
    assert "--sample-node VALUE" in capsys.readouterr().out
    assert "--kube-config" in printed(monkeypatch, capsys, "watch", "--help")


@pytest.mark.slow
@pytest.mark.parametrize("command", [("load",), ("top", "--once")])
def test_without_a_server_a_command_says_so_in_one_sentence_and_ends(command: tuple[str, ...], tmp_path: Path) -> None:
    url = f"nats://127.0.0.1:{server.free_port(0)}"
    flags = ["--nats", url, "--nats-connect-timeout-seconds", "0.5", "--data-dir", str(tmp_path)]
    answer = subprocess.run(
        [sys.executable, "-m", "spazio", *command, *flags], capture_output=True, text=True, timeout=30, check=False
    )
    assert (answer.returncode, answer.stdout) == (1, "")
    connecting = f"spazio: connecting to {url}\n" if command == ("load",) else ""
    sentence = f"spazio: no NATS server answers at {url}: Connection refused: start one with `spazio up`\n"
    assert answer.stderr == f"{connecting}{sentence}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("si",), ["simulate", "sink"]),
        (("sink", "his"), ["history"]),
        (("top", "--on"), ["--once"]),
    ],
)
def test_bash_completes_commands_and_options(words: tuple[str, ...], expected: list[str], tmp_path: Path) -> None:
    program = tmp_path / "spazio"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m spazio "$@"\n')
    program.chmod(0o755)
    asked = " ".join(("spazio", *words))
    script = (
        'eval "$(spazio --show-completion)"\n'
        f"COMP_WORDS=({asked}) COMP_CWORD={len(words)}\n"
        'function="$(complete -p spazio | sed "s/.*-F \\([^ ]*\\).*/\\1/")"\n'
        '"$function" spazio\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    answer = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, env=environ, timeout=60, check=False
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    assert sorted(answer.stdout.split()) == expected


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr("sys.argv", ["spazio", *arguments])
    assert cli.main() == 2
    return capsys.readouterr().err


def test_what_was_mistyped_is_named_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mistyped = refused(monkeypatch, capsys, "tpo")
    ending = "`spazio --help` lists the commands and options\n"
    assert mistyped == f"spazio: No such command 'tpo'. Did you mean 'top'? {ending}"
    ending = "`spazio explain --help` lists the arguments and options\n"
    assert refused(monkeypatch, capsys, "explain") == f"spazio: Missing argument 'pod'; {ending}"
    assert refused(monkeypatch, capsys, "sink") == ""


def test_a_file_that_is_not_there_is_named_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "none.yaml"
    assert refused(monkeypatch, capsys, "explain", str(path)) == f"spazio: {path}: No such file or directory\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--once", "--classes"), "--classes needs --json; without it the table has both nodes and classes"),
        (("--json",), "--json needs --once"),
        (("--json", "--classes"), "--json needs --once"),
        (("--once", "--json", "--classes", "--partitions"), "--classes does not go with --partitions"),
    ],
)
def test_of_options_that_do_not_go_together_the_reason_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], expected: str
) -> None:
    assert refused(monkeypatch, capsys, "top", *options) == f"spazio: {expected}\n"


_POD = "kind: Pod\nspec: {containers: [{name: a, image: a}]}\n"


@pytest.mark.parametrize(
    "command",
    [
        ("top", "--once"),
        ("top", "--once", "--partitions"),
        ("doctor", "--flow"),
        ("load",),
        ("explain", "pod.yaml"),
        ("histograms", "export", "histograms"),
        ("backup", "backup.tar"),
    ],
    ids="-".join,
)
def test_a_credential_that_cannot_be_used_is_a_wrong_option_of_every_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pod.yaml").write_text(_POD)
    error = refused(monkeypatch, capsys, *command, "--nats-credentials", "none.creds", "--data-dir", "data")
    assert "none.creds does not exist; name a file of `spazio credentials`" in error


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_standard_output_that_is_full_is_said_in_one_sentence(unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        answer = subprocess.run(
            [sys.executable, "-m", "spazio", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            timeout=60,
            check=False,
        )
    assert answer.stderr == "spazio: cannot write standard output: No space left on device\n"
    assert answer.returncode == 1


@pytest.mark.parametrize("words", [("sink", "cache", "--http-port", "1"), ("process",), ("histograms", "export")])
def test_a_command_that_is_named_is_built_alone(words: tuple[str, ...]) -> None:
    app = option.meant(cli.app, words)
    if len(app.registered_groups) == 1:
        assert app.registered_commands == []
        assert app.registered_groups[0].typer_instance is not None
        app = app.registered_groups[0].typer_instance
        words = words[1:]
    assert [each.name or getattr(each.callback, "__name__", "") for each in app.registered_commands] == [words[0]]
    assert len(cli.app.registered_commands) > 20


@pytest.mark.parametrize("words", [(), ("--help",), ("proces",)])
def test_without_the_name_of_a_command_every_one_is_built(words: tuple[str, ...]) -> None:
    app = option.meant(cli.app, words)
    assert app.registered_commands == cli.app.registered_commands
    assert len(app.registered_groups) == len(cli.app.registered_groups)


@pytest.mark.slow
def test_a_service_without_pages_does_not_load_their_server() -> None:
    code = "import sys, bus.api, spazio.service.processing; print('aiohttp' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert answer.stdout == "False\n"
