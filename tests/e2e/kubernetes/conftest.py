"""A control plane for each test that asks for one."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from schemas.settings import Settings
from tests.e2e.kubernetes import control_plane as lab
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.watch.watching import Watch


@pytest.fixture
def plane(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    if reason := lab.missing():
        pytest.skip(reason)
    with lab.control_plane(tmp_path / "plane", *getattr(request, "param", ())) as running:
        yield running


@pytest.fixture
async def kubectl(plane: ControlPlane) -> AsyncIterator[Kubectl]:
    async with Kubectl(plane) as client:
        yield client


@pytest.fixture
def watch(settings: Settings, plane: ControlPlane, tmp_path: Path) -> Iterator[Watch]:
    running = Watch(settings, plane.kubeconfig(), tmp_path)
    yield running
    running.kill()
