"""A control plane for each test that asks for one, as if it had just been made: tests of a file take turns with it."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest

from schemas.settings import Settings
from tests.e2e.kubernetes import control_plane as lab
from tests.e2e.kubernetes.control_plane import ControlPlane, Kubectl
from tests.e2e.kubernetes.watch.watching import Watch


@pytest.fixture(scope="module")
def planes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., ControlPlane]]:
    """Return the control plane with these flags of the API server; it is made for the first test that asks for it."""
    if reason := lab.missing():
        pytest.skip(reason)
    with ExitStack() as running:
        yield cache(lambda *flags: running.enter_context(lab.control_plane(tmp_path_factory.mktemp("plane"), *flags)))


@pytest.fixture
def plane(planes: Callable[..., ControlPlane], request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    running = planes(*getattr(request, "param", ()))
    yield running
    running.clear()


@pytest.fixture
async def kubectl(plane: ControlPlane) -> AsyncIterator[Kubectl]:
    async with Kubectl(plane) as client:
        yield client


@pytest.fixture
def watch(settings: Settings, plane: ControlPlane, tmp_path: Path) -> Iterator[Watch]:
    running = Watch(settings, plane.kubeconfig(), tmp_path)
    yield running
    running.kill()
