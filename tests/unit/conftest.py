"""Machines whose cgroups tests change, as kernels lay them out."""

from pathlib import Path

import pytest

from tests.support.machine import LAYOUTS, Host


@pytest.fixture(params=LAYOUTS)
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    """A machine of each layout in turn."""
    return Host(tmp_path, request.param)


@pytest.fixture
def modern(tmp_path: Path) -> Host:
    """A machine with cgroups of version 2 alone."""
    return Host(tmp_path, "v2")
