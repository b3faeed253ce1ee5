"""Ctrl-C ends a command that still imports."""

import subprocess
import sys
from pathlib import Path

import pytest

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
