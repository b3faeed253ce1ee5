"""Real runtimes and real agents: each source alone and all together tell of every container, in order and once."""

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM, Signals

import pytest

from tests.e2e.pipeline import until
from tests.e2e.producers import hearing
from tests.e2e.producers.hearing import LIFE, Agent, Bus
from tests.e2e.runtimes import runtime
from tests.e2e.runtimes.cri import Containerd
from tests.e2e.runtimes.runtime import Dockerd

pytestmark = [pytest.mark.slow, pytest.mark.alone]

NUMBER = 50
AT_ONCE = 4


def many(run: Callable[[int], Sequence[str]], number: int) -> list[str]:
    """Do something so many times, a few at once; returns all containers that came of it."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [container for containers in pool.map(run, range(number)) for container in containers]


def assert_whole(bus: Bus, names: Sequence[str], containers: Sequence[str]) -> None:
    """Every agent has told the life of every container: all of it, in order, each event once."""
    unfinished = [(name, container) for name in names for container in containers]

    def all_told() -> bool:
        unfinished[:] = [(name, container) for name, container in unfinished if len(bus.life(name, container)) < 4]
        return not unfinished

    try:
        until(all_told, 10, "all to be told")
    except AssertionError:
        pytest.fail(str([(name, container[:12], bus.life(name, container)) for name, container in unfinished][:5]))
    time.sleep(3)  # what is told twice comes with a listing, which is real time here
    wrong = [(name, each) for name in names for each in containers if bus.life(name, each) != LIFE]
    assert not wrong, "; ".join(f"{name} {each[:12]}: {bus.story(name, each)}" for name, each in wrong)
    for name in names:
        for container in containers:
            times = [each.event.boottime_us for each in bus.of(name, container)]
            assert times == sorted(times)


def test_each_source_alone_and_all_together_tell_fifty_containers_of_docker(
    tmp_path: Path, engine: Dockerd, bus: Bus
) -> None:
    names = ["cgroup", "bundle", "docker", "containerd"]
    wanted = {name: hearing.of_engine(engine, name) for name in names}
    wanted |= {"together": hearing.of_engine(engine, ",".join(names)), "auto": hearing.of_engine(engine, "auto")}
    with hearing.agents(tmp_path, bus, **wanted):
        hearing.hearing(bus, list(wanted), lambda: engine.run(100))

        def live(index: int) -> list[str]:
            container = engine.run(150, name=f"web-{index}", **{"com.docker.compose.project": "shop"})
            engine.wait(container)
            engine.remove(container)
            return [container]

        containers = many(live, NUMBER)
        assert_whole(bus, list(wanted), containers)
        for name in ("docker", "together", "auto"):
            first = bus.of(name, containers[0])[0].event
            assert first.container_name == "web-0"
            assert (first.image, first.workload, first.pod) == ("tick:1", "tick", None)


def test_each_source_alone_and_all_together_tell_fifty_containers_of_pods(
    tmp_path: Path, kubelet: Containerd, bus: Bus
) -> None:
    names = ["cgroup", "bundle", "containerd"]
    wanted = {name: hearing.of_kubelet(kubelet, name) for name in names}
    wanted |= {"together": hearing.of_kubelet(kubelet, ",".join(names)), "auto": hearing.of_kubelet(kubelet, "auto")}
    with hearing.agents(tmp_path, bus, **wanted):
        lonely = kubelet.pod("shop", "first")
        hearing.hearing(bus, list(wanted), lambda: kubelet.run(lonely, f"c{len(lonely.containers)}", 100))
        kubelet.remove(lonely)
        pods = []

        def live(index: int) -> list[str]:
            labels = {"spazio.class": "batch"} if index % 2 else {}
            pod = kubelet.pod("shop", f"web-7d4b9c6f5-x2x9{'bcdfghjklmnpqrstvwxz2456789'[index]}", **labels)
            pods.append(pod)
            container = kubelet.run(pod, "app", 150)
            until(lambda: LIFE[2] in bus.life("together", container), 10, "its end")
            kubelet.remove(pod)
            return [pod.sandbox, container]

        containers = many(live, NUMBER // 2)
        assert_whole(bus, list(wanted), containers)
        for name in ("bundle", "containerd", "together", "auto"):
            for pod in pods:
                sandbox, inner = (bus.of(name, left)[-1].event for left in (pod.sandbox, *pod.containers))
                assert (inner.namespace, inner.name, inner.pod) == ("shop", pod.name, pod.uid), f"{name}: {inner}"
                assert (inner.container_name, inner.sandbox, sandbox.sandbox) == ("app", False, True), (
                    f"{name}: {sandbox}"
                )
                assert (sandbox.namespace, sandbox.name) == ("shop", pod.name), f"{name}: {sandbox}"
                assert inner.workload in ("shop/web", "batch")
            first = [bus.of(name, pod.containers[0])[0].event for pod in pods]
            print(json.dumps({"agent": name, "created_with_its_name": sum(left.name is not None for left in first)}))
        for pod in pods:
            assert [left.event.pod for left in bus.of("cgroup", pod.containers[0])] == [pod.uid] * 4
            named = bus.of("containerd", pod.containers[0])[-1].event.workload
            assert named == pod.labels.get("spazio.class", "shop/web")


def right_within(
    bus: Bus, names: Sequence[str], truth: Callable[[], set[str]], others: set[str], seconds: float
) -> float:
    """Wait until the running set of all agents is the truth; returns how long it took."""
    began = time.monotonic()

    def right() -> bool:
        real = truth()
        return all(bus.running(name) & (real | others) == real for name in names)

    try:
        until(right, seconds, "the running set")
    except AssertionError:
        real = truth()
        wrong = {name: (len(real - bus.running(name)), len(bus.running(name) & others - real)) for name in names}
        pytest.fail(f"(missing, too many) after {seconds} s: {wrong} of {len(real)}")
    return time.monotonic() - began


@pytest.mark.parametrize("ending", [Dockerd.end, Dockerd.kill], ids=["ended", "killed"])
def test_the_running_set_is_right_two_seconds_after_the_runtime_has_started_again(
    tmp_path: Path, engine: Dockerd, bus: Bus, ending: Callable[[Dockerd], None]
) -> None:
    names = ["cgroup", "bundle", "docker", "containerd"]
    wanted = {name: hearing.of_engine(engine, name) for name in names} | {"auto": hearing.of_engine(engine, "auto")}
    with hearing.agents(tmp_path, bus, **wanted) as agents:
        hearing.hearing(bus, list(wanted), lambda: engine.run(100))
        containers = {engine.run(600_000) for _ in range(10)}
        right_within(bus, list(wanted), engine.running, containers, 10)
        ending(engine)
        engine.start()
        took = right_within(bus, list(wanted), engine.running, containers, 2)
        ours = containers | {engine.run(600_000) for _ in range(3)}
        right_within(bus, list(wanted), engine.running, ours, 2)
        for container in sorted(containers)[:4]:
            engine.start_container(container)
        again = right_within(bus, list(wanted), engine.running, ours, 2)
        print(
            json.dumps({"ended": ending.__name__, "right_after_seconds": took, "and_after_starting_some_again": again})
        )
        assert len(agents["docker"].logged("containers.failed")) == 1
        assert len(engine.running()) == 7
        assert {name: sorted(bus.life(name, our).count("created") for our in ours) for name in wanted} == {
            name: [1] * 9 + [2] * 4 for name in wanted
        }


@pytest.mark.parametrize("sign", [SIGTERM, SIGKILL])
def test_the_running_set_is_right_two_seconds_after_the_agent_has_started_again(
    tmp_path: Path, engine: Dockerd, bus: Bus, sign: Signals
) -> None:
    names = ["cgroup", "bundle", "docker", "containerd", "auto"]
    wanted = {name: hearing.of_engine(engine, name) for name in names}
    with hearing.agents(tmp_path, bus, **wanted) as agents:
        hearing.hearing(bus, names, lambda: engine.run(100))
        before = [engine.run(600_000) for _ in range(8)]
        right_within(bus, names, engine.running, set(before), 10)
        for agent in agents.values():
            agent.end(sign=sign)
        for container in before[:3]:
            engine.remove(container)
        after = [engine.run(600_000) for _ in range(3)]
        ours = {*before, *after}
        for agent in agents.values():
            agent.start()
        started = len(agents) * 2
        until(lambda: sum(len(agent.logged("service.started")) for agent in agents.values()) == started, 30, "agents")
        took = right_within(bus, names, engine.running, ours, 2)
        print(json.dumps({"signal": sign.name, "right_after_seconds": took}))
        time.sleep(3)
        gone, alive = LIFE, LIFE[:2]
        expected = dict.fromkeys(before[:3], gone) | dict.fromkeys([*before[3:], *after], alive)
        for name in names:
            assert {container: bus.life(name, container) for container in expected} == expected


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


def test_nonsense_among_real_events_is_counted_said_once_and_harms_nothing(
    tmp_path: Path, engine: Dockerd, bus: Bus
) -> None:
    place = engine.folder / "meddler.sock"
    meddler = Meddler(place, engine.socket)
    bundles, containerd = engine.bundles, engine.containerd
    with hearing.agents(
        tmp_path, bus, met=hearing.options("docker", docker=place, containerd=containerd, bundles=bundles)
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


def test_sources_whose_sockets_and_folders_come_later_are_waited_for_and_said_once(
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


def test_a_runtime_that_hangs_is_given_up_said_once_and_found_again(tmp_path: Path, engine: Dockerd, bus: Bus) -> None:
    with hearing.agents(tmp_path, bus, hung=hearing.of_engine(engine, "docker")) as agents:
        hearing.hearing(bus, ["hung"], lambda: engine.run(100))
        engine.send(SIGSTOP)
        try:
            until(lambda: agents["hung"].logged("containers.failed"), 45, "the listing that is not answered")
            time.sleep(12)
        finally:
            engine.send(SIGCONT)
        container = engine.run(600_000)
        right_within(bus, ["hung"], engine.running, {container}, 10)
        assert len({str(row["reason"]) for row in agents["hung"].logged("containers.failed")}) == len(
            agents["hung"].logged("containers.failed")
        )
