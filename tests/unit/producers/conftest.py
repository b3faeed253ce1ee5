"""A frozen `/proc` that tests change."""

import shutil
from pathlib import Path

import pytest

from tests.unit.producers.rig import FROZEN


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc that stands at the first moment."""
    return Path(shutil.copytree(FROZEN / "a", tmp_path / "proc"))
