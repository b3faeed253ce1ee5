"""Every command of the tutorial, in its order, as a reader types it."""

import os
import re
import stat
import sys
from pathlib import Path

import pytest

from tests.e2e import shell
from tests.e2e.pipeline import until, up

ROOT = Path(__file__).parents[3]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()
START, *BLOCKS = re.findall(r"```sh\n(.*?)```", TUTORIAL, re.DOTALL)


@pytest.mark.slow
def test_every_command_of_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    *preparation, start = START.strip().splitlines()
    assert preparation == ["make", "export PATH=$PWD/.venv/bin:$PATH"]
    program, command, *options = start.split()
    assert (program, command) == ("spazio", "up")
    installed = tmp_path / "bin" / "spazio"
    installed.parent.mkdir()
    installed.write_text(f'#!/bin/sh\nexec {sys.executable} -m spazio "$@"\n')
    installed.chmod(installed.stat().st_mode | stat.S_IXUSR)
    with up(tmp_path / "data", "--extender-port", "0", *options) as running:
        environ = os.environ | {
            "PATH": f"{installed.parent}:{os.environ['PATH']}", "SPAZIO_DATA_DIR": str(running.folder),
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        until(lambda: running.run("sql", "FROM availability").returncode == 0, 20, "the history")
        until(lambda: running.sql("SELECT count(DISTINCT node) AS n FROM availability")[0]["n"] == 6, 20, "all nodes")
        look, change, past, placement, counted, save = shell.typed(BLOCKS, tmp_path, environ)
        assert os.uname().nodename in look
        assert os.uname().nodename in change
        assert os.uname().nodename in past
        assert "sim" in placement
        assert "SPAZIO_TELEMETRY" in counted
        assert (tmp_path / "tutorial.tar").stat().st_size > 10_000, save
