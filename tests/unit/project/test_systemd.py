"""The systemd units are valid, start commands that there are, and expose little of the machine."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from schemas import settings as all_settings
from spazio import cli, sink

UNITS = sorted((Path(__file__).parents[3] / "deploy" / "systemd").glob("*.service"))
BY_NAME = pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
ANALYZE = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
EXPOSURE = 20  # tenths; 100 is a service without any limits, and 50 is what systemd calls medium


def installed(unit: Path, folder: Path) -> Path:
    """Return a copy whose program exists here; of a template an instance."""
    made = folder / unit.name.replace("@", "@history")
    made.write_text(unit.read_text().replace("/opt/spazio/bin/spazio", sys.executable))
    return made


@ANALYZE
@BY_NAME
def test_systemd_knows_every_line_of_a_unit(unit: Path, tmp_path: Path) -> None:
    command = ["systemd-analyze", "verify", "--recursive-errors=no", str(installed(unit, tmp_path))]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (0, "")


@ANALYZE
@BY_NAME
def test_a_unit_exposes_little(unit: Path, tmp_path: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager"]
    answer = subprocess.run([*command, str(installed(unit, tmp_path))], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stdout[-300:]


def test_each_unit_starts_a_command_and_names_settings_that_there_are() -> None:
    commands = {command.callback.__name__ for command in cli.app.registered_commands if command.callback}
    commands |= {f"sink {command.callback.__name__}" for command in sink.app.registered_commands if command.callback}
    fields = {
        f"SPAZIO_{all_settings.option_name(section, field).upper()}".replace("-", "_")
        for section, field, _ in all_settings.options()
    }
    assert len(UNITS) == 4
    for unit in UNITS:
        text = unit.read_text()
        (command,) = re.findall(r"^ExecStart=/opt/spazio/bin/spazio (.+)$", text, re.MULTILINE)
        assert command.replace("%i", "history") in commands
        assert set(re.findall(r"\bSPAZIO_\w+(?==)", text.partition("[Unit]")[2])) <= fields
