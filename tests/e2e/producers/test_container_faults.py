"""Nonsense among real events, sources that come late, hang or lack rights."""

import contextlib
import socket
import threading
import time
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from tests.e2e.pipeline import until
from tests.e2e.producers import hearing
from tests.e2e.producers.hearing import Agent, Bus
from tests.e2e.producers.many import assert_whole, right_within
from tests.e2e.runtimes import runtime
from tests.e2e.runtimes.runtime import Dockerd

pytestmark = pytest.mark.slow


class Meddler:
    """Stands between an agent and the engine's socket and adds nonsense to its events."""

    NONSENSE = (b"{not json}\n", b'{"Type":"container","Action":"start"}\n', b"\xff\xfe\x00\n", b"[" * 5000 + b"\n")

    def __init__(self, path: Path, behind: Path) -> None:
        self._behind = behind
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(8)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                front, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(front,), daemon=True).start()

    def _serve(self, front: socket.socket) -> None:
        with front, socket.socket(socket.AF_UNIX) as back:
            back.connect(str(self._behind))
            asking = threading.Thread(target=self._pass, args=(front, back, False), daemon=True)
            asking.start()
            self._pass(back, front, True)
            for end in (front, back):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            asking.join()

    def _pass(self, taker: socket.socket, giver: socket.socket, meddle: bool) -> None:
        events = meddle
        with contextlib.suppress(OSError):
            while data := taker.recv(65_536):
                giver.sendall(data)
                events = events and (b"chunked" in data or not data.startswith(b"HTTP/"))
                if events and data.endswith(b"\r\n") and not data.endswith(b"0\r\n\r\n"):
                    giver.sendall(b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in self.NONSENSE))
            giver.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()


@pytest.mark.alone
def test_nonsense_among_real_events_is_counted_logged_once_and_harms_nothing(
    tmp_path: Path, engine: Dockerd, bus: Bus
) -> None:
    socket_path = engine.folder / "meddler.sock"
    meddler = Meddler(socket_path, engine.socket)
    bundles, containerd = engine.bundles, engine.containerd
    with hearing.agents(
        tmp_path, bus, met=hearing.options("docker", docker=socket_path, containerd=containerd, bundles=bundles)
    ) as met:
        hearing.hearing(bus, ["met"], lambda: engine.run(100))
        containers = [engine.run(50) for _ in range(5)]
        for container in containers:
            engine.wait(container)
            engine.remove(container)
        assert_whole(bus, ["met"], containers)
        assert met["met"].metric('spazio_container_damaged_total{source="docker"}') >= 20
        assert len(met["met"].logged("containers.damaged")) == 1
    meddler.close()


@pytest.mark.alone
def test_sources_whose_sockets_and_folders_come_later_are_waited_for_and_logged_once(
    tmp_path: Path, program: Path, bus: Bus
) -> None:
    with runtime.short_folder() as folder:
        engine = Dockerd(folder)
        names = ["bundle", "docker", "containerd"]
        wanted = {name: hearing.of_engine(engine, name) for name in names} | {"auto": hearing.of_engine(engine, "auto")}
        with hearing.agents(tmp_path, bus, **wanted) as agents:
            waiting = {name: lambda name=name: agents[name].logged("containers.waiting") for name in wanted}
            until(lambda: all(waiting[name]() for name in wanted), 20, "agents that wait")
            time.sleep(3)
            assert {name: len(waiting[name]()) for name in names} == dict.fromkeys(names, 1)
            assert {row["level"] for name in names for row in waiting[name]()} == {"warning"}
            assert {row["level"] for row in waiting["auto"]()} == {"info"}
            assert all(agents[name].metric(f'spazio_source_failures_total{{source="{name}"}}') == 0 for name in names)
            runtime.require("dockerd")
            engine.start()
            try:
                engine.load(program)
                container = engine.run(600_000)
                right_within(bus, list(wanted), engine.running, {container}, 2)
                assert {name: len(agents[name].logged("containers.found")) for name in names} == dict.fromkeys(names, 1)
            finally:
                engine.remove_all()
                engine.end()


@pytest.mark.alone
def test_an_agent_without_any_privilege_tells_all_by_cgroups_and_says_what_is_closed_to_it(
    tmp_path: Path, engine: Dockerd, bus: Bus
) -> None:
    for path in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        path.chmod(0o755)
    agent = Agent(tmp_path, bus, "nobody", hearing.of_engine(engine, "auto"), unprivileged=True)
    agent.start()
    try:
        hearing.hearing(bus, ["nobody"], lambda: engine.run(100))
        container = engine.run(50)
        engine.wait(container)
        engine.remove(container)
        assert_whole(bus, ["nobody"], [container])
        closed = {str(row["source"]): str(row["reason"]) for row in agent.logged("containers.waiting")}
        assert "Permission denied" in closed["docker"]
        assert "Permission denied" in closed["bundle"]
        assert len(agent.logged("containers.waiting")) == 3
        agent.end()
    finally:
        agent.kill()


# It is waited for and not measured, so other tests may run beside it.
def test_a_runtime_that_hangs_is_given_up_logged_once_and_found_again(
    tmp_path: Path, engine: Dockerd, bus: Bus
) -> None:
    with hearing.agents(tmp_path, bus, hung=hearing.of_engine(engine, "docker")) as agents:
        hearing.hearing(bus, ["hung"], lambda: engine.run(100))
        engine.send(SIGSTOP)
        try:
            until(lambda: agents["hung"].logged("containers.failed"), 45, "the listing that is not answered")
            time.sleep(12)
        finally:
            engine.send(SIGCONT)
        container = engine.run(600_000)
        right_within(bus, ["hung"], engine.running, {container}, 30)
        assert len({str(row["reason"]) for row in agents["hung"].logged("containers.failed")}) == len(
            agents["hung"].logged("containers.failed")
        )
