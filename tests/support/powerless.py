"""Runs a command as a user to whom permissions apply, which they do not to root."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

NOTHING: Mapping[str, str] = MappingProxyType({})
_DROPPED = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


def run(
    *arguments: str, cwd: Path | None = None, environ: Mapping[str, str] = NOTHING
) -> subprocess.CompletedProcess[str]:
    """Run `spazio` in a folder, with more in its environment."""
    may_all = os.geteuid() == 0
    assert not may_all or shutil.which("setpriv"), "install setpriv (Debian package util-linux)"
    return subprocess.run(
        [*(_DROPPED if may_all else ()), sys.executable, "-m", "spazio", *arguments],
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
