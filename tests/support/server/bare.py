"""Commands in a process that lacks the packages of some extras, as an installation without them does.

`python -m tests.support.server.bare EXTRAS COMMAND …` runs commands with these extras only (separated by commas) and
prints a JSON object: of each command its exit status and what it wrote. Every command ends before it does anything: no
server answers, ports are taken, files are missing.
"""

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from spazio import extra

ROOT = Path(__file__).parents[3]
POD = "kind: Pod\nmetadata: {name: web}\nspec: {containers: []}\n"
_SERVICES = ("up", "agent", "edge", "process", "watch", "sink", "govern")


def answers(extras: Iterable[str], commands: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Return the exit status of each command and all that it wrote, run with some extras only."""
    command = [sys.executable, "-m", "tests.support.server.bare", ",".join(extras), *commands]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return {name: (status, text) for name, (status, text) in json.loads(answer.stdout).items()}


def _arguments(command: str, folder: Path, port: int) -> list[str]:
    """Return a command line that ends soon after its imports."""
    words, data = command.split(), ["--data-dir", str(folder)]
    nowhere = ["--nats", "nats://127.0.0.1:1", "--nats-connect-timeout-seconds", "0.2", *data]
    if words[0] in _SERVICES:
        return [*words, *nowhere, "--http-port", str(port)]
    return words + {
        "backtest": ["missing.csv"],
        "truth": ["--again", "--out", "missing"],
        "simulate": ["missing"],
        "histograms export": ["missing", *nowhere],
        "histograms import": ["missing", *nowhere],
        "explain": ["pod.yaml", *nowhere],
        "top": ["--once", *nowhere],
        "sql": ["SELECT 1", *data],
        "ledger": data,
        "export": ["missing", *data],
        "schema": ["--out", "schemas"],
        "credentials": ["--out", "credentials"],
        "backup": ["missing.tar", *nowhere],
        "restore": ["missing.tar", *nowhere],
    }.get(command, nowhere)


def _run(arguments: list[str]) -> tuple[int, str]:
    from spazio.__main__ import main

    sys.argv, written = ["spazio", *arguments], io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.redirect_stderr(written):
        return main(), written.getvalue()


def _main(extras: str, commands: list[str]) -> None:
    having = {package for name in extras.split(",") if name for package in extra.PACKAGES[name]}
    for package in {package for packages in extra.PACKAGES.values() for package in packages} - having:
        sys.modules[package] = None  # type: ignore[assignment] # as if it were not installed
    with tempfile.TemporaryDirectory() as name, socket.create_server(("127.0.0.1", 0)) as taken:
        folder = Path(name)
        os.chdir(folder)
        (folder / "pod.yaml").write_text(POD)
        port = taken.getsockname()[1]
        print(json.dumps({each: _run(_arguments(each, folder, port)) for each in commands}))


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2:])
