"""A tree of cgroups in a folder."""

from pathlib import Path

import pytest

from tests.unit.producers.pods.trees import make


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A cgroup tree of version 2 with the usual services in it."""
    tree = tmp_path / "cgroup"
    make(tree, "system.slice/sshd.service", "system.slice/var-lib.mount", "user.slice/user-0.slice/session-1.scope")
    (tree / "cgroup.controllers").write_text("cpu memory pids\n")
    return tree
