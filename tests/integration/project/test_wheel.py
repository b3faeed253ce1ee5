"""The wheel that `pip install .` builds, and the agent from it in an environment of its own."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

from schemas.messages.base import RELEASE as NUMBER
from tests.unit.project.test_release import RELEASE, ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = RELEASE.build_wheel(tmp_path_factory.mktemp("wheel"))
    return made


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    assert RELEASE.wheel_faults(wheel) == ""


def test_the_base_installation_runs_the_agent_away_from_the_checkout(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    pinned = ["--require-hashes", "-r", str(ROOT / "requirements-agent.txt")]
    for what in (pinned, ["--no-deps", str(wheel)]):
        subprocess.run([*install, "--disable-pip-version-check", *what], check=True)
    environ = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    plugin = subprocess.run(["kubectl-spazio", "agent", "--help"], env=environ, capture_output=True, check=False)
    assert plugin.returncode == 0, plugin.stderr
    for option in ("--version", "--help", "-h"):
        answer = subprocess.run(["spazio", option], env=environ, capture_output=True, text=True, check=False)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert answer.stdout.startswith(f"spazio {NUMBER}")
    command = ["spazio", "agent", "--nats", "nats://127.0.0.1:9", "--log-format", "json", "--http-port", "0"]
    with subprocess.Popen(command, env=environ, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as agent:
        assert agent.stderr is not None
        lines = []
        for line in agent.stderr:
            lines.append(line)
            if "ConnectionRefusedError" in line:  # it measures, and waits for its server
                agent.terminate()
    assert agent.returncode == 0, lines
    assert not [line for line in lines if "Traceback" in line]
