"""How soon the bus knows: before a container's first instruction, and how long after its end.

A container notes CLOCK_BOOTTIME first thing and last thing in a file; the same clock is read when its events reach
a subscriber. Figures are printed, for they say more than that a bound holds.
"""

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.pipeline import until
from tests.e2e.producers import hearing
from tests.e2e.producers.hearing import Bus
from tests.e2e.runtimes.cri import Containerd
from tests.e2e.runtimes.runtime import CGROUPS, Dockerd, Times

pytestmark = [pytest.mark.slow, pytest.mark.alone]

NUMBER = 25
ALIVE_MS = 150
SOURCES = ("cgroup", "bundle", "docker", "containerd")
MILLISECOND = 1_000_000


class Run(NamedTuple):
    """A container that has run, and what it noted."""

    container: str
    times: Times


class Figures(NamedTuple):
    """What one agent reported of many containers; milliseconds from their first or last instruction to the event."""

    before: float
    created_p50: float
    created_worst: float
    exited_p50: float
    exited_p95: float


@contextmanager
def saturated() -> Iterator[None]:
    """Keep every CPU busy four times over."""
    spin = [sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(spin) for _ in range(4 * (os.cpu_count() or 1))]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that so large a share of them does not exceed."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def figures(bus: Bus, name: str, runs: Sequence[Run]) -> Figures:
    """Compare what a subscriber heard of an agent with what containers noted; what was not heard counts as late."""
    created, exited = [], []
    for container, times in runs:
        at = {each.event.event: each.at for each in reversed(bus.of(name, container))}
        assert times.began is not None
        assert times.ended is not None
        created.append((at.get("created", math.inf) - times.began) / MILLISECOND)
        exited.append((at.get("exited", math.inf) - times.ended) / MILLISECOND)
    return Figures(
        before=sum(late < 0 for late in created) / len(created),
        created_p50=percentile(created, 0.5),
        created_worst=max(created),
        exited_p50=percentile(exited, 0.5),
        exited_p95=percentile(exited, 0.95),
    )


def measure(bus: Bus, names: Sequence[str], title: str, run: Callable[[str], Run]) -> dict[str, Figures]:
    """Run containers one after the other, and return what each agent reported of them."""
    runs = [run(f"{title}-{index}") for index in range(NUMBER)]
    time.sleep(1)  # for the last events, of real daemons
    result = {name: figures(bus, name, runs) for name in names}
    for name, first in result.items():
        rounded = {key: round(value, 2) for key, value in first._asdict().items()}
        print(json.dumps({"run": title, "agent": name, "containers": len(runs), **rounded}))
    return result


def of_docker(engine: Dockerd) -> Callable[[str], Run]:
    def run(name: str) -> Run:
        container = engine.run(ALIVE_MS, name=name)
        engine.wait(container)
        engine.remove(container)
        return Run(container, Times(engine.out / name))

    return run


def of_pods(kubelet: Containerd) -> Callable[[str], Run]:
    def run(name: str) -> Run:
        pod = kubelet.pod("shop", name)
        container = kubelet.run(pod, "app", ALIVE_MS, name)
        until(lambda: Times(kubelet.out / name).ended, 30, "its end")
        kubelet.remove(pod)
        return Run(container, Times(kubelet.out / name))

    return run


def has_version_2() -> bool:
    return any((CGROUPS / hierarchy / "cgroup.procs").exists() for hierarchy in ("unified", ".")) and (
        (CGROUPS / "unified").is_dir() or (CGROUPS / "cgroup.controllers").exists()
    )


def check_times(result: Figures) -> None:
    assert result.before >= 0.95
    if has_version_2():
        assert result.exited_p95 <= 20


def test_docker_containers_are_reported_before_they_run_and_soon_after_their_end(
    tmp_path: Path, engine: Dockerd, bus: Bus
) -> None:
    with hearing.agents(tmp_path, bus, auto=hearing.of_engine(engine, "auto")):
        hearing.hearing(bus, ["auto"], lambda: engine.run(100))
        check_times(measure(bus, ["auto"], "docker", of_docker(engine))["auto"])


def test_containers_of_pods_are_reported_before_they_run_and_soon_after_their_end(
    tmp_path: Path, kubelet: Containerd, bus: Bus
) -> None:
    with hearing.agents(tmp_path, bus, auto=hearing.of_kubelet(kubelet, "auto")):
        lonely = kubelet.pod("shop", "first")
        hearing.hearing(bus, ["auto"], lambda: kubelet.run(lonely, f"c{len(lonely.containers)}", 100))
        check_times(measure(bus, ["auto"], "pods", of_pods(kubelet))["auto"])


def test_each_source_by_itself_tells_docker_containers_and_its_figures_are_reported(
    tmp_path: Path, engine: Dockerd, bus: Bus
) -> None:
    """Four agents with one source each hear the same containers."""
    with hearing.agents(tmp_path, bus, **{name: hearing.of_engine(engine, name) for name in SOURCES}):
        hearing.hearing(bus, SOURCES, lambda: engine.run(100))
        result = measure(bus, SOURCES, "alone", of_docker(engine))
    assert {name: each.before for name, each in result.items() if each.before < 0.95} == {}


def test_when_all_cpus_are_saturated_bundle_and_docker_still_tell_before_a_container_runs(
    tmp_path: Path, engine: Dockerd, bus: Bus
) -> None:
    names = [*SOURCES, "auto"]
    with hearing.agents(tmp_path, bus, **{name: hearing.of_engine(engine, name) for name in names}):
        hearing.hearing(bus, names, lambda: engine.run(100))
        with saturated():
            result = measure(bus, names, "saturated", of_docker(engine))
    assert result["auto"].before >= 0.95
    assert max(result["bundle"].before, result["docker"].before) >= 0.95


def test_when_all_cpus_are_saturated_bundle_still_tells_before_a_container_of_a_pod_runs(
    tmp_path: Path, kubelet: Containerd, bus: Bus
) -> None:
    names = ["cgroup", "bundle", "containerd", "auto"]
    with hearing.agents(tmp_path, bus, **{name: hearing.of_kubelet(kubelet, name) for name in names}):
        lonely = kubelet.pod("shop", "second")
        hearing.hearing(bus, names, lambda: kubelet.run(lonely, f"c{len(lonely.containers)}", 100))
        with saturated():
            result = measure(bus, names, "saturated-pods", of_pods(kubelet))
    assert result["auto"].before >= 0.95
    assert result["bundle"].before >= 0.95
