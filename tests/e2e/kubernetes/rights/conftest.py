"""A control plane that all tests of a file share: each of them makes what it needs itself."""

from collections.abc import Iterator

import pytest

from tests.e2e.kubernetes import control_plane as lab
from tests.e2e.kubernetes.control_plane import ControlPlane


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if reason := lab.missing():
        pytest.skip(reason)
    with lab.control_plane(tmp_path_factory.mktemp("plane"), "--allow-privileged=true") as running:
        yield running
