"""The compose stack leaves loopback only where extender and dashboard ask who it is."""

import itertools
import re
import subprocess
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from tests.support.project.documents import ROOT

FILES = ("deploy/published.yml", "deploy/monitoring.yml", "deploy/docker-socket.yml")
SHELL = "/bin/sh"


def type_header(file: str, folder: Path) -> None:
    """Type the commands that the first lines of a file have."""
    header = itertools.takewhile(lambda line: line.startswith("#"), (ROOT / file).read_text().splitlines())
    typed = "\n".join(line[4:] for line in header if line.startswith("#   "))
    away = "docker() { :; }\nstat() { echo 999; }\n"
    subprocess.run([SHELL, "-e", "-c", away + typed], cwd=folder, check=True, capture_output=True, timeout=10)


def variables(folder: Path) -> dict[str, str]:
    """Return what `.env` sets, as Compose reads it: of a name that is there twice the last counts."""
    return dict(line.split("=", 1) for line in (folder / ".env").read_text().splitlines())


def credentials(environ: dict[str, str]) -> str:
    """Return why the service that all others wait for ends; no path leads to openssl, so it always does."""
    merged: dict[str, str] = {}
    for file in environ.get("COMPOSE_FILE", "docker-compose.yml").split(":"):
        service = yaml.safe_load((ROOT / file).read_text())["services"].get("credentials", {})
        merged |= service.get("environment", {})
    given = {
        name: re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: environ.get(match[1]) or match[2], value)
        for name, value in merged.items()
    }
    done = subprocess.run(
        [SHELL, "deploy/credentials.sh"], cwd=ROOT, env={"PATH": ""} | given, capture_output=True, text=True,
        check=False, timeout=10,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr


@pytest.mark.parametrize("order", [*itertools.permutations(FILES)])
def test_files_whose_first_lines_are_typed_in_turn_are_all_used(tmp_path: Path, order: tuple[str, ...]) -> None:
    for file in order:
        type_header(file, tmp_path)
    environ = variables(tmp_path)
    assert environ["COMPOSE_FILE"].split(":") == ["docker-compose.yml", *order]
    assert environ["SPAZIO_PUBLISH"] == "192.0.2.1"
    assert "no openssl" in credentials(environ)


@pytest.mark.parametrize("address", ["192.0.2.1", "0.0.0.0", "[::]", "host.example"])
def test_nothing_starts_at_an_address_of_the_network_without_the_file_that_protects_it(address: str) -> None:
    files = "docker-compose.yml:deploy/monitoring.yml"
    assert "needs deploy/published.yml" in credentials({"SPAZIO_PUBLISH": address, "COMPOSE_FILE": files})
    assert "no openssl" in credentials({"SPAZIO_PUBLISH": address, "COMPOSE_FILE": f"{files}:deploy/published.yml"})


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.0.1.1", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_protection(address: str) -> None:
    assert "no openssl" in credentials({"SPAZIO_PUBLISH": address})
