"""CPU quotas on the real kernel: containers held back, and how full their node looks."""

import asyncio
import os
import random
import threading
import time
from pathlib import Path
from typing import Any

import nats
import numpy as np
import pytest

from producers import throttle
from schemas import codec
from schemas.messages.telemetry import PodUsageBlock
from tests.e2e.pipeline import up
from tests.e2e.producers.accounts import agent
from tests.e2e.runtimes.groups import BUSY, Groups
from tests.e2e.runtimes.node_time import cpus

pytestmark = [pytest.mark.slow, pytest.mark.alone]


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
    messages, raw, true, throttled = observed(6)
    print(f"sampled {messages:.3f}, raw {raw:.3f}, true {true:.3f}, throttled {throttled:.3f}")
    assert messages == pytest.approx(true, abs=0.08)
    assert abs(messages - true) <= max(0.04, abs(raw - true))


def test_busy_containers_without_a_quota_read_as_ever(cgroups: Groups) -> None:
    cgroups.run(BUSY, processes=4)
    messages, raw, _, throttled = observed(5)
    assert throttled < 0.02
    assert messages == pytest.approx(raw, abs=0.01)
    assert messages > 0.9


def test_a_node_with_a_container_held_back_by_its_quota_does_not_look_full(cgroups: Groups, tmp_path: Path) -> None:
    # On one CPU always: the kernel's pressure is a mean over CPUs, so half of it is lost with each move.
    pinned = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0))), *BUSY]
    with up(tmp_path / "data") as running:
        container = cgroups.run(pinned, quota=0.3)
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
    assert all(0 < (block.cpu_cores[index] or 0) < 0.36 for block, index in messages)
    throttled = [block.throttled[index] for block, index in messages]
    waited = [block.cpu_pressure[index] for block, index in messages]
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
