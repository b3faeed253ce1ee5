"""A real server with accounts and roles."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server.secured import Secured, secured


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Secured]:
    with secured(tmp_path) as made:
        yield made
