"""The systemd units are valid, start commands that there are, and expose little of the machine."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from schemas import role
from schemas import settings as all_settings
from spazio import cli, sink
from spazio.service.composition import machine
from tests.support.project import documents

FOLDER = Path(__file__).parents[4] / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
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
    assert len(UNITS) == 5
    for unit in UNITS:
        text = unit.read_text()
        (command,) = re.findall(r"^ExecStart=/opt/spazio/bin/spazio (.+)$", text, re.MULTILINE)
        assert command.partition(" --")[0].replace("%i", "history") in commands
        assert set(re.findall(r"\bSPAZIO_\w+(?==)", text.partition("[Unit]")[2])) <= fields


def ports() -> dict[str, int]:
    """Return the port of each unit's pages; of the template, of each sink."""
    texts = {unit.stem: unit.read_text() for unit in UNITS}
    template = texts.pop("spazio-sink@")
    assert "sink %i --http-port ${PORT_%i}\n" in template
    of_sinks = {f"spazio-sink@{name}": int(port) for name, port in re.findall(r"\bPORT_(\w+)=(\d+)", template)}
    matches = {name: re.search(r"\bSPAZIO_HTTP_PORT=(\d+)", text) for name, text in texts.items()}
    return of_sinks | {name: int(match[1]) for name, match in matches.items() if match}


def test_units_of_one_machine_have_ports_that_differ_and_are_those_of_up() -> None:
    own = ports()
    assert len(set(own.values())) == len(own)
    sinks = {f"spazio-sink@{command.callback.__name__}" for command in sink.app.registered_commands if command.callback}
    assert own.keys() == sinks | {"spazio-agent", "spazio-process", "spazio-watch"}
    first = all_settings.Settings().http.port
    for name in (service.name for service in machine.SERVICES if not service.simulates):
        unit = f"spazio-sink@{name}" if name in machine.SINKS else f"spazio-{name}"
        assert own[unit] == first + machine.port_offset(name)


def test_the_readme_has_the_port_and_the_credential_of_each_unit() -> None:
    page = (FOLDER / "README.md").read_text()
    rows = re.findall(r"^\| `(\S+)` \| (?:`(\S+)`|none) \| (\d+)", page, re.MULTILINE)
    assert {unit: int(port) for unit, _, port in rows if unit != "spazio"} == ports()
    for unit, credential, _ in rows:
        template, _, name = unit.partition("@")
        text = (FOLDER / (f"{template}@.service" if name else f"{unit}.service")).read_text()
        loaded = re.findall(r"^LoadCredential=nats.creds:/etc/spazio/(\S+)$", text.replace("%i", name), re.MULTILINE)
        assert loaded == [credential] * bool(credential)
    roles = {f"{each.name}.creds" for each in role.ROLES}
    assert {credential for _, credential, _ in rows} <= roles | {"nats.creds", ""}


def test_every_unit_that_the_readme_starts_has_its_credential_copied_before() -> None:
    page = (FOLDER / "README.md").read_text()
    copied: set[str] = set()
    for line in (line for block in documents.blocks(page) for line in block.text.splitlines()):
        copied |= set(re.findall(r"credentials/roles/(\w+\.creds)", line))
        if match := re.search(r"cp credentials/nodes/n1.creds /etc/spazio/(\S+)", line):
            copied.add(match[1])
        for unit in re.findall(r"spazio-(?:sink@)?(\w+)", line) if line.startswith("systemctl enable") else ():
            assert {"agent": "nats"}.get(unit, unit) + ".creds" in copied, line
    roles = ("process", "cache", "history", "metrics", "watch", "extender")
    assert copied == {"nats.creds", *(f"{name}.creds" for name in roles)}


def test_the_readme_copies_the_kubeconfig_that_the_watch_loads() -> None:
    unit = (FOLDER / "spazio-watch.service").read_text()
    (loaded,) = re.findall(r"^LoadCredential=kubeconfig:(\S+)$", unit, re.MULTILINE)
    assert re.search(rf"^cp \S+ {loaded}$", (FOLDER / "README.md").read_text(), re.MULTILINE)
