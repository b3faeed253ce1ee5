"""What the command line says of itself."""

import sys

import pytest

from schemas.messages.base import RELEASE
from spazio import __main__, cli


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr("sys.argv", ["spazio", *arguments])
    assert cli.main() == 0
    return capsys.readouterr().out


def test_the_version_is_that_of_the_release(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(monkeypatch, capsys, "--version") == f"spazio {RELEASE}\n"


@pytest.mark.parametrize("command", ["up", "top", "load"])
def test_help_is_short_and_help_all_has_every_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    short, whole = (said(monkeypatch, capsys, command, option) for option in ("-h", "--help-all"))
    assert "--data-dir" in short
    assert "--help-all" in short
    assert "--nats-telemetry-max" not in short
    assert "--nats-telemetry-max" in whole
    assert len(short.splitlines()) < 130 < len(whole.splitlines())
    assert said(monkeypatch, capsys, command, "--help") == short


def test_without_the_extras_one_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["spazio", "top"])
    monkeypatch.delitem(sys.modules, "spazio.cli")
    monkeypatch.delattr("spazio.cli")
    monkeypatch.setitem(sys.modules, "typer", None)
    assert __main__.main() == 2
    told = capsys.readouterr().err
    assert "needs the Python package typer" in told
    assert "pip install 'spazio[all]'" in told
    assert len(told.splitlines()) == 1
