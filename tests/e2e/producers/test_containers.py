"""Real runtimes and real agents: each source alone and all together tell of every container, in order and once."""

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals

import pytest

from tests.e2e.pipeline import until
from tests.e2e.producers import hearing
from tests.e2e.producers.hearing import LIFE, Bus
from tests.e2e.producers.many import assert_whole, right_within
from tests.e2e.runtimes.cri import Containerd
from tests.e2e.runtimes.runtime import Dockerd

pytestmark = [pytest.mark.slow, pytest.mark.alone]
NUMBER = 50
AT_ONCE = 4


def many(run: Callable[[int], Sequence[str]], number: int) -> list[str]:
    """Do something so many times, a few at once; returns all containers that came of it."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return [container for containers in pool.map(run, range(number)) for container in containers]


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
