"""Usage of pods and CPU quotas, by the real kernel: what we say against what it accounts."""

import asyncio
import io
import json
import random
import shutil
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import nats
import numpy as np
import pytest

from processors.estimation import resource
from producers import file, inventory, throttle
from producers.pods import usage
from producers.pods.census import Census
from producers.pods.ticker import Ticker
from producers.sampler import Sampler
from schemas import codec
from schemas.messages.telemetry import PodUsageBlock, SampleBlock
from schemas.sections.measurement import Sample
from tests.e2e.pipeline import up
from tests.e2e.producers.node_time import NodeTime, cpus
from tests.e2e.runtimes.groups import BUSY, Groups, groups, python
from tests.e2e.runtimes.runtime import Dockerd, dockerd, remove_cgroups

pytestmark = [pytest.mark.slow, pytest.mark.alone]

HOLDS_AND_READS = """
import os, sys, tempfile, time
held = bytearray(os.urandom(1 << 20) * 120)
with tempfile.TemporaryFile(dir="/var/tmp") as file:
    for _ in range(80):
        file.write(os.urandom(1 << 20))
        time.sleep(0.2)
    while True:
        file.seek(0)
        while file.read(1 << 20):
            time.sleep(0.01)
"""
NOW_AND_THEN = """
import random, time
while True:
    end = time.perf_counter() + random.uniform(0.01, 0.05)
    while time.perf_counter() < end:
        pass
    time.sleep(random.uniform(0.03, 0.12))
"""


class Agent:
    """What the agent measures, without a bus."""

    def __init__(self) -> None:
        self.pods: list[PodUsageBlock] = []
        self.samples: list[SampleBlock] = []
        sample = Sample()
        census = Census(sample.cgroup, sample.proc)
        self.reader = usage.Reader(
            census,
            sample.cgroup,
            sample.proc,
            node="n",
            boot="b",
            identify=lambda _: None,
            descriptors=file.allow_descriptors(),
        )
        self._threads = (
            Ticker(self.reader, lambda _, payload: self.pods.append(codec.decode(PodUsageBlock, payload))),
            Sampler(
                inventory.default(sample, census, self.reader),
                node="n",
                boot="b",
                interval_seconds=0.1,
                emit=lambda _, payload: self.samples.append(codec.decode(SampleBlock, payload)),
            ),
        )

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        for thread in self._threads:
            thread.stop()

    def cores(self, pod: str, since: float, until: float) -> float:
        """Return the mean CPU use of a pod between two moments of the wall clock, from the blocks that cover them."""
        seconds = covered = 0.0
        for block in self.pods:
            end, span = block.at_us / 1e6, block.span_us / 1e6
            part = min(end, until) - max(end - span, since)
            if part > 0 and pod in block.pods and (used := block.cpu_cores[block.pods.index(pod)]) is not None:
                seconds += used * part
                covered += part
        assert covered > 0.9 * (until - since)
        return seconds / covered

    def cpu(self, *, quotas: bool) -> float:
        """Return the mean of the CPU metric over the samples taken until now."""
        rows = np.concatenate(
            [np.array(block.values, dtype=float).reshape(-1, len(block.metrics)) for block in self.samples]
        )
        columns = {name: index for index, name in enumerate(self.samples[0].metrics)}
        made = resource.update(rows[None], columns, features=("cpu",), slowdown=2, memory="memory_util", quotas=quotas)
        return float(np.nanmean(made))


@contextmanager
def agent() -> Iterator[Agent]:
    running = Agent()
    running.start()
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture
def cgroups() -> Iterator[Groups]:
    with groups() as made:
        yield made


def test_usage_of_containers_and_of_the_whole_node_is_what_the_kernel_accounts(cgroups: Groups) -> None:
    busy, large = cgroups.run(BUSY, quota=0.6), cgroups.run(python(HOLDS_AND_READS))
    cgroups.run(python(NOW_AND_THEN))
    node = NodeTime()
    node.start()
    with agent() as running:
        until = time.time() + 20
        while not (running.pods and {busy, large} <= set(running.pods[-1].pods)) and time.time() < until:
            time.sleep(0.1)
        time.sleep(3)
        first = {container: cgroups.cpu_seconds(container) for container in (busy, large)}
        since, gaps = time.time(), []
        before = seen = len(running.pods)
        while time.time() < since + 30:
            time.sleep(0.005)
            if len(running.pods) > seen:
                seen, block = len(running.pods), running.pods[-1]
                messages, true = block.memory_bytes[block.pods.index(large)], cgroups.working_set(large)
                gaps.append(abs((messages or 0) - true) / true)
        last, until = {container: cgroups.cpu_seconds(container) for container in (busy, large)}, time.time()
        time.sleep(1.2)
    for container in (busy, large):
        expected = (last[container] - first[container]) / (until - since)
        assert running.cores(container, since, until) == pytest.approx(expected, rel=0.02, abs=0.002)
    assert len(gaps) >= 28
    assert float(np.mean(gaps)) < 0.02
    print(f"working set: mean error {np.mean(gaps):.4f}, largest {max(gaps):.4f}")
    node.stop()
    compare_whole(running.pods[before:], node)


def test_pods_and_system_together_are_the_node_beside_bursts(cgroups: Groups) -> None:
    for quota in (0.3, 0.2, None):
        cgroups.run(BUSY if quota else python(NOW_AND_THEN), quota=quota)
    node, pods = NodeTime(), list[str]()
    node.start()
    with agent() as running:
        time.sleep(2.2)
        running.pods.clear()
        end = time.monotonic() + 30
        while time.monotonic() < end:  # programs that are gone before anybody can read what they used
            subprocess.run(["sh", "-c", "i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); done"], check=True)
            pods.append(cgroups.run(["sh", "-c", "i=0; while [ $i -lt 30000 ]; do i=$((i + 1)); done"]))
            time.sleep(random.uniform(0, 0.1))
            if len(pods) > 20:  # it has come and gone by now
                remove_cgroups(f"{cgroups.top}/{pods.pop(0)}")
    time.sleep(0.2)
    node.stop()
    compare_whole(running.pods, node)


def compare_whole(blocks: list[PodUsageBlock], node: NodeTime) -> None:
    """Check that pods and system together used what the node spent while the blocks were measured."""
    first, last = blocks[0], blocks[-1]
    true, doubt = node.cores((first.at_us - first.span_us) / 1e6, last.at_us / 1e6)
    spans = [block.span_us for block in blocks]
    cores = [sum(filter(None, block.cpu_cores)) + (block.system_cpu_cores or 0) for block in blocks]
    whole = sum(each * span for each, span in zip(cores, spans, strict=True)) / sum(spans)
    print(f"pods and system {whole:.4f} cores, /proc/stat {true:.4f} (to {doubt:.4f}), {sum(spans) / 1e6:.2f} s")
    assert whole == pytest.approx(true, rel=0.03, abs=doubt)


class Looks(threading.Thread):
    """Looks at the runnable threads hundreds of times a second: the truth that twenty looks are compared with."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.excess: list[float] = []
        self.ending = False

    def run(self) -> None:
        count = cpus()
        with Path("/proc/loadavg").open() as loads:
            while not self.ending:
                time.sleep(random.uniform(0.0005, 0.0065))
                loads.seek(0)
                self.excess.append(throttle.excess(int(loads.read().split()[3].partition("/")[0]) - 1, count))


def observed(seconds: float) -> tuple[float, float, float, float]:
    """Return the CPU metric as sampled, as it would be without quotas, by the truth; and the throttled share.

    The truth is the mean number of threads that want to run beyond the CPUs, but no more than all pressure.
    """
    with agent() as running:
        time.sleep(3)
        running.samples.clear()
        looks = Looks()
        looks.start()
        time.sleep(seconds)
        looks.ending = True
        looks.join()
    name = running.samples[0].metrics.index("cpu_util"), running.samples[0].metrics.index("cpu_throttled")
    rows = np.concatenate([np.array(b.values, dtype=float).reshape(-1, len(b.metrics)) for b in running.samples])
    raw = running.cpu(quotas=False)
    true = min(raw, (float(np.nanmean(rows[:, name[0]])) + float(np.mean(looks.excess))) / 2)
    return running.cpu(quotas=True), raw, true, float(np.nanmean(rows[:, name[1]]))


@pytest.mark.parametrize(
    ("limited", "free", "quota"),
    [
        pytest.param(1, 0, 0.3, id="one with 0.3 CPU"),
        pytest.param(2, 0, 0.3, id="two with 0.3 CPU"),
        pytest.param(10, 0, 0.05, id="ten with 0.05 CPU"),
        pytest.param(1, 1, 0.3, id="one beside a busy one"),
        pytest.param(1, 2, 0.3, id="one beside two busy ones"),
        pytest.param(10, 4, 0.05, id="ten beside four busy ones"),
    ],
)
def test_containers_held_back_by_quotas_leave_the_cpu_near_its_real_use(
    cgroups: Groups, limited: int, free: int, quota: float
) -> None:
    for _ in range(limited):
        cgroups.run(BUSY, quota=quota)
    for _ in range(free):
        cgroups.run(BUSY)
    messages, raw, true, throttled = observed(12)
    print(f"sampled {messages:.3f}, raw {raw:.3f}, true {true:.3f}, throttled {throttled:.3f}")
    assert messages == pytest.approx(true, abs=0.08)
    assert abs(messages - true) <= max(0.04, abs(raw - true))


def test_busy_containers_without_a_quota_read_as_ever(cgroups: Groups) -> None:
    cgroups.run(BUSY, processes=4)
    messages, raw, _, throttled = observed(8)
    assert throttled < 0.02
    assert messages == pytest.approx(raw, abs=0.01)
    assert messages > 0.9


def test_a_node_with_a_container_held_back_by_its_quota_does_not_look_full(cgroups: Groups, tmp_path: Path) -> None:
    with up(tmp_path / "data") as running:
        container = cgroups.run(BUSY, quota=0.3)
        time.sleep(6)
        since, rows = time.time(), []
        while time.time() < since + 15:
            rows.append(running.cached()["usage"]["cpu"])
            time.sleep(1)
        until_us = time.time() * 1e6
        time.sleep(7)
        (row,) = running.sql(
            "SELECT avg(cpu_util) AS util, avg(cpu_pressure) AS pressure, avg(cpu_throttled) AS throttled FROM samples"
            f" WHERE at_us BETWEEN {since * 1e6:.0f} AND {until_us:.0f}"
        )
        heard = asyncio.run(next_usages(running.addresses, 12))
    real = (row["util"] + row["pressure"] * (1 - row["throttled"])) / 2
    print(f"sampled {np.mean(rows):.3f}, real {real:.3f}, raw {(row['util'] + row['pressure']) / 2:.3f}")
    assert float(np.mean(rows)) == pytest.approx(real, abs=0.08)
    messages = [(block, block.pods.index(container)) for block in heard]
    assert all(0 < (block.cpu_cores[place] or 0) < 0.36 for block, place in messages)
    throttled = [block.throttled[place] for block, place in messages]
    waited = [block.cpu_pressure[place] for block, place in messages]
    # Both are read one after the other, and the kernel settles waiting now and then: seconds by themselves say little.
    held_back = [share for share in throttled if share is not None]
    assert len(held_back) == len(throttled)
    if None not in waited:
        assert np.mean(held_back) <= np.mean([share or 0.0 for share in waited]) + 0.1


async def next_usages(addresses: dict[str, Any], count: int) -> list[PodUsageBlock]:
    client = await nats.connect(addresses["nats"], user_credentials=addresses["credentials"])
    heard = await client.subscribe("spazio.pods.*")
    blocks = [codec.decode(PodUsageBlock, (await heard.next_msg(timeout=5)).data) for _ in range(count)]
    await client.close()
    return blocks


@pytest.fixture
def engine() -> Iterator[Dockerd]:
    with dockerd() as running:
        yield running


def start(engine: Dockerd, program: str) -> str:
    """Run a shell program in a container of an image that holds busybox alone."""
    path = shutil.which("busybox")
    if path is None:
        pytest.skip("no busybox, and so no workload for the container (Debian: apt-get install busybox-static)")
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        tar.add(path, arcname="bin/busybox")
    engine.ask("POST", "/images/create?fromSrc=-&repo=busybox&tag=1", content.getvalue())
    settings = {
        "Image": "busybox:1",
        "Entrypoint": ["/bin/busybox", "sh", "-c", program],
        "HostConfig": {"NetworkMode": "none"},
    }
    container = str(json.loads(engine.ask("POST", "/containers/create", settings))["Id"])
    engine.start_container(container)
    return container


def accounted(engine: Dockerd, container: str) -> tuple[float, float, int]:
    """Return the time of the day, CPU seconds and working set, as the engine tells them."""
    document = json.loads(engine.ask("GET", f"/containers/{container}/stats?stream=false&one-shot=true"))
    stats: dict[str, Any] = document["memory_stats"]["stats"]
    inactive = stats.get("total_inactive_file", stats.get("inactive_file", 0))
    at = datetime.fromisoformat(document["read"][:26] + "+00:00").timestamp()
    return at, document["cpu_stats"]["cpu_usage"]["total_usage"] / 1e9, document["memory_stats"]["usage"] - inactive


def test_usage_agrees_with_what_docker_accounts(engine: Dockerd) -> None:
    busy = start(engine, "while :; do :; done")
    large = start(
        engine,
        "b=/bin/busybox; x=$($b head -c 60000000 /dev/zero | $b tr '\\0' x); $b dd if=/dev/zero of=/big"
        " bs=1M count=60; while :; do $b cat /big >/dev/null; $b sleep 0.2; done",
    )
    with agent() as running:
        time.sleep(6)
        first = {container: accounted(engine, container) for container in (busy, large)}
        time.sleep(30)
        last = {container: accounted(engine, container) for container in (busy, large)}
        time.sleep(1.2)
    for container in (busy, large):
        (since, used, _), (until, total, working_set) = first[container], last[container]
        expected = (total - used) / (until - since)
        cores = running.cores(container, since, until)
        near = min(running.pods, key=lambda block: abs(block.at_us / 1e6 - until))
        messages = near.memory_bytes[near.pods.index(container)]
        print(f"{cores:.4f} cores for {expected:.4f}, {messages} bytes for {working_set}")
        assert cores == pytest.approx(expected, rel=0.02, abs=0.002)
        assert messages == pytest.approx(working_set, rel=0.02, abs=1 << 20)
