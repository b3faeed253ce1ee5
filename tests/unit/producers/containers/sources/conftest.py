"""A folder for trees of cgroups."""

from pathlib import Path

import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree of version 2."""
    made = tmp_path / "cgroup"
    (made / "system.slice/sshd.service").mkdir(parents=True)
    (made / "cgroup.controllers").write_text("cpu memory pids\n")
    return made
