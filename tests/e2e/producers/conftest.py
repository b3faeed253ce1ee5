"""Real container runtimes, started once for all tests of a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.producers import hearing
from tests.e2e.producers.hearing import Bus
from tests.e2e.runtimes import cri, runtime
from tests.e2e.runtimes.cri import Containerd
from tests.e2e.runtimes.groups import Groups, groups
from tests.e2e.runtimes.runtime import Dockerd


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runtime.compile_tick(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def shared_engine(program: Path) -> Iterator[Dockerd]:
    with runtime.dockerd(program) as engine:
        yield engine


@pytest.fixture
def engine(shared_engine: Dockerd) -> Iterator[Dockerd]:
    if not shared_engine.is_up():
        shared_engine.start()
    yield shared_engine
    shared_engine.remove_all()


@pytest.fixture(scope="module")
def kubelet(program: Path) -> Iterator[Containerd]:
    with cri.containerd(program) as daemon:
        yield daemon


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    with hearing.bus(tmp_path) as running:
        yield running


@pytest.fixture
def cgroups() -> Iterator[Groups]:
    with groups() as made:
        yield made
