"""Which container sources are used, what is reported of the others, and that waiting for them is quiet."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator, Mapping
from importlib import util
from pathlib import Path

import pytest

from producers.containers.sources import choose, survey
from producers.containers.sources.patient import Patient
from producers.containers.sources.source import Identity, Observation, Sink
from schemas import settings as all_settings
from schemas.sections.measurement import CONTAINER_SOURCES
from schemas.settings import Settings


def given(folder: Path, containers: str = "auto") -> Settings:
    """Return settings under which every source is looked for in one folder."""
    places = {
        "sample_cgroup": folder / "cgroup",
        "runtime_bundles": folder / "bundles",
        "runtime_docker_socket": folder / "docker.sock",
        "runtime_containerd_socket": folder / "containerd.sock",
    }
    return all_settings.load(
        {"containers": containers, **{name: str(path) for name, path in places.items()}}, environ={}
    )


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Path]:
    """Make a host on which every source can be used."""
    (tmp_path / "cgroup/unified").mkdir(parents=True)
    (tmp_path / "bundles").mkdir()
    listeners = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for listener, name in zip(listeners, ("docker", "containerd"), strict=True):
        listener.bind(str(tmp_path / f"{name}.sock"))
        listener.listen()
    yield tmp_path
    for listener in listeners:
        listener.close()


def wanted(settings: Settings) -> list[str]:
    return [candidate.name for candidate in survey.explain(settings) if candidate.wanted]


def state(settings: Settings, name: str) -> str:
    return survey.inspect(name, settings)[0]


def test_auto_wants_all_but_containerd_where_bundles_can_be_read(host: Path) -> None:
    assert wanted(given(host)) == ["cgroup", "bundle", "docker"]
    (host / "bundles").rmdir()
    assert wanted(given(host)) == list(CONTAINER_SOURCES)


def test_what_is_named_is_wanted_and_nothing_else(host: Path) -> None:
    assert wanted(given(host, "containerd,cgroup")) == ["cgroup", "containerd"]
    assert wanted(given(host, "none")) == []


def test_all_that_can_be_used_is_usable_and_needs_no_remedy(host: Path) -> None:
    pytest.importorskip("grpc")
    for candidate in survey.explain(given(host)):
        assert (candidate.state, candidate.remedy) == ("usable", "")
        assert candidate.detail
        assert candidate.gives


def test_nothing_there_is_absent_and_each_names_its_remedy(tmp_path: Path) -> None:
    for candidate in survey.explain(given(tmp_path)):
        assert candidate.state == "absent"
        assert str(tmp_path) in candidate.detail
        assert "--" in candidate.remedy


def test_a_daemon_that_has_ended_and_left_its_socket_is_distinguished_from_none(host: Path, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        (host / "docker.sock").unlink()
        listener.bind(str(host / "docker.sock"))
    assert survey.inspect("docker", given(host)) == (
        "refused",
        f"{host / 'docker.sock'} cannot be reached: Connection refused",
    )


def connections(listener: socket.socket) -> int:
    count = 0
    listener.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


@pytest.mark.parametrize("tree", [".", "pids", "unified"])
def test_a_daemon_that_a_connection_would_start_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tree: str
) -> None:
    units = tmp_path / "cgroup" / tree / "system.slice"
    (units / "docker.socket").mkdir(parents=True)
    if tree == ".":
        (tmp_path / "cgroup/cgroup.controllers").touch()
    monkeypatch.setattr(survey, "_DOCKER_SOCKETS", (tmp_path / "docker.sock",))
    assert survey.inspect("docker", given(tmp_path)) == ("absent", f"no socket {tmp_path / 'docker.sock'}")
    with socket.socket(socket.AF_UNIX) as listener:  # systemd's
        listener.bind(str(tmp_path / "docker.sock"))
        listener.listen()
        assert survey.inspect("docker", given(tmp_path)) == (
            "absent",
            f"{tmp_path / 'docker.sock'} is docker.socket's, and docker.service does not run",
        )
        assert connections(listener) == 0
        assert state(given(tmp_path, "docker"), "docker") == "usable", "it is named"
        assert connections(listener) == 1
        (units / "docker.service").mkdir()
        assert state(given(tmp_path), "docker") == "usable", "it runs"
        (units / "docker.service").rmdir()
        monkeypatch.setattr(survey, "_DOCKER_SOCKETS", (tmp_path / "other.sock",))
        assert state(given(tmp_path), "docker") == "usable", "another daemon's socket, as of one without root"


def test_what_is_closed_to_this_user_is_refused(host: Path, request: pytest.FixtureRequest) -> None:
    for name in ("docker.sock", "bundles"):
        (host / name).chmod(0)
    request.getfixturevalue("unprivileged")
    for name in ("docker", "bundle"):
        assert survey.inspect(name, given(host))[0] == "refused"
        assert "Permission denied" in survey.inspect(name, given(host))[1]


def test_one_folder_of_bundles_that_can_be_read_is_enough(host: Path, tmp_path: Path) -> None:
    settings = all_settings.load({"runtime_bundles": f"{tmp_path / 'none'},{host / 'bundles'}"}, environ={})
    assert survey.inspect("bundle", settings) == ("usable", str(host / "bundles"))


def test_a_daemon_that_is_too_busy_to_take_a_connection_is_usable(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "docker.sock"))
        listener.listen(0)
        assert [state(given(tmp_path), "docker") for _ in range(3)] == ["usable"] * 3


def test_containerd_without_grpcio_is_refused_with_what_to_install(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda _: None)
    candidate = survey.explain(given(host))[-1]
    assert (candidate.name, candidate.state) == ("containerd", "refused")
    assert candidate.remedy == "pip install '.[containerd]' in a checkout"


def test_the_sources_to_run_are_those_of_the_settings(tmp_path: Path) -> None:
    assert [source.name for source in choose.choose(given(tmp_path))] == list(CONTAINER_SOURCES)
    assert [source.name for source in choose.choose(given(tmp_path, "docker"))] == ["docker"]
    assert choose.choose(given(tmp_path, "none")) == []


class Silent:
    """Takes what sources say and keeps nothing."""

    def observe(self, observation: Observation) -> None:
        """Take one observation."""

    def present(self, source: str, listed: Mapping[str, tuple[Identity, bool]], boottime_us: int) -> None:
        """Take a listing."""


class Runs:
    """A source that says when it runs, and fails at once if it has to."""

    name = "runs"

    def __init__(self) -> None:
        self.ran = asyncio.Event()

    async def run(self, sink: Sink) -> None:
        self.ran.set()
        raise ConnectionResetError("gone")


async def test_a_source_is_waited_for_quietly_and_its_own_failures_are_passed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    source, shortages = Runs(), ["no socket", "no socket", "closed", "closed", "", "no socket", ""]
    patient = Patient(source, lambda: shortages.pop(0), look_seconds=0.001, level=logging.WARNING)
    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            await patient.run(Silent())
    logged = [(record.levelname, record.message, getattr(record, "reason", "")) for record in caplog.records]
    waiting, usable = "containers.waiting", ("INFO", "containers.found", "")
    assert logged == [
        ("WARNING", waiting, "no socket"),
        ("WARNING", waiting, "closed"),
        usable,
        ("WARNING", waiting, "no socket"),
        usable,
    ]


@pytest.mark.parametrize(("containers", "level"), [("auto", "INFO"), ("docker", "WARNING")])
async def test_what_is_missing_is_a_warning_only_if_it_was_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, containers: str, level: str
) -> None:
    caplog.set_level(logging.INFO)
    (source,) = (chosen for chosen in choose.choose(given(tmp_path, containers)) if chosen.name == "docker")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(source.run(Silent()), 0.01)
    assert [record.levelname for record in caplog.records] == [level]
    assert "--runtime-docker-socket" in str(vars(caplog.records[0])["reason"])


async def test_auto_leaves_containerd_alone_while_bundles_can_be_read(
    host: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    source = choose.choose(given(host))[-1]
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(source.run(Silent()), 0.01)
    assert [vars(record)["reason"] for record in caplog.records] == [
        "not needed: bundle reports the same at a lower cost"
    ]
