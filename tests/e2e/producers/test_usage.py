"""Usage of pods and CPU quotas, by the real kernel: what we say against what it accounts."""

import random
import subprocess
import time

import numpy as np
import pytest

from schemas.messages.telemetry import PodUsageBlock
from tests.e2e.producers.accounts import agent
from tests.e2e.runtimes.groups import BUSY, Groups, python
from tests.e2e.runtimes.node_time import NodeTime
from tests.e2e.runtimes.runtime import remove_cgroups

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
