"""Without extras, a command works or says in one sentence which of them it needs."""

import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from schemas.messages.base import RELEASE
from spazio import __main__, cli, extra, sink
from tests.support.server import bare

ROOT = Path(__file__).parents[3]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def canonical(name: str) -> str:
    """Return the name of a distribution that is required, as package indexes write it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[<>=!~\[; (]", name)[0]).lower()


def by_extras() -> dict[tuple[str, ...], list[str]]:
    """Return the commands by the extras that they need."""
    result: dict[tuple[str, ...], list[str]] = {}
    for command, extras in extra.COMMANDS.items():
        result.setdefault(extras, []).append(command)
    return result


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take away the packages of all extras."""
    monkeypatch.delitem(sys.modules, "spazio.cli")
    monkeypatch.delattr("spazio.cli")
    for package in {package for packages in extra.PACKAGES.values() for package in packages}:
        monkeypatch.setitem(sys.modules, package, None)


def test_the_commands_are_those_of_the_command_line() -> None:
    commands = {command.callback.__name__ for command in cli.app.registered_commands if command.callback}
    commands |= {f"sink {command.callback.__name__}" for command in sink.app.registered_commands if command.callback}
    commands |= {f"histograms {command.name}" for command in cli.histograms_app.registered_commands}
    assert extra.COMMANDS.keys() == commands


def test_the_documentation_has_the_extras_of_each_command() -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    table = page[page.index("| extras |") :].split("\n\n")[0]
    listed: dict[str, tuple[str, ...]] = {}
    for row in table.splitlines()[2:]:
        extras, commands = (re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[1:3])
        listed |= dict.fromkeys(commands, tuple(extras))
    assert listed == extra.COMMANDS


def test_the_packages_of_an_extra_are_those_that_it_installs() -> None:
    owners = {
        module: {canonical(name) for name in names} for module, names in metadata.packages_distributions().items()
    }
    for name, packages in extra.PACKAGES.items():
        required = {canonical(each) for each in DECLARED[name]}
        brought = {canonical(each) for own in required for each in metadata.requires(own) or ()}
        providers = {owner for package in packages for owner in owners[package]}
        assert providers <= required | brought
        assert not packages or required <= providers


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("command", [each for each, extras in extra.COMMANDS.items() if extras])
def test_a_base_install_names_all_extras_of_a_command(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["spazio", *command.split(), "--http-port", "0"])
    assert __main__.main() == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith(f"spazio: {command} needs the package typer (extra")
    assert f"pip install '.[{','.join(extra.COMMANDS[command])}]'" in written.err
    assert len(written.err.splitlines()) == 1


@pytest.mark.usefixtures("base")
@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_a_base_install_helps(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["spazio", *arguments])
    assert __main__.main() == 0
    written = capsys.readouterr()
    assert "`spazio agent --help`" in written.out
    assert "pip install '.[cli]' in a checkout" in written.out
    assert written.err == ""


@pytest.mark.usefixtures("base")
def test_a_base_install_has_a_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["spazio", "--version"])
    assert __main__.main() == 0
    assert capsys.readouterr().out == f"spazio {RELEASE}\n"


def test_the_extra_of_an_option_is_named_where_the_command_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes_asyncio", None)
    sentence = extra.remedy("sink extender", "kubernetes_asyncio")
    assert sentence.startswith("sink extender needs the package kubernetes_asyncio (extra kube): ")


def test_a_package_that_belongs_to_no_extra_is_a_fault_of_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spazio.cli", None)
    monkeypatch.delattr("spazio.cli")
    monkeypatch.setattr("sys.argv", ["spazio", "top"])
    with pytest.raises(ModuleNotFoundError):
        __main__.main()


@pytest.mark.slow
@pytest.mark.parametrize("extras", by_extras(), ids=lambda extras: ",".join(extras) or "base")
def test_the_extras_of_a_command_are_enough_and_each_is_needed(extras: tuple[str, ...]) -> None:
    commands = by_extras()[extras]
    for command, (status, written) in bare.answers(extras, commands).items():
        assert "needs the package" not in written, (command, status)
    for missing in extras:
        if not extra.PACKAGES[missing]:
            continue
        rest = [each for each in extras if each != missing]
        for command, (status, written) in bare.answers(rest, commands).items():
            assert (status, len(written.splitlines())) == (2, 1), (command, written)
            assert f"spazio: {command} needs the package " in written
            assert missing in written.rpartition("pip install '.[")[2].partition("]")[0].split(",")
