"""Usage of containers against what Docker accounts."""

import io
import json
import shutil
import statistics
import tarfile
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tests.e2e.producers.accounts import agent
from tests.e2e.runtimes.runtime import Dockerd, dockerd

pytestmark = [pytest.mark.slow, pytest.mark.alone]


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


def test_a_container_that_syncs_what_it_writes_waits_for_io(engine: Dockerd) -> None:
    idle = start(engine, "while :; do /bin/busybox sleep 1; done")
    writer = start(
        engine, "while :; do /bin/busybox dd if=/dev/zero of=/big bs=64k count=16 conv=fsync,notrunc 2>/dev/null; done"
    )
    with agent() as running:
        time.sleep(15)
    blocks = [dict(zip(block.pods, block.io_pressure, strict=True)) for block in running.pods[3:]]
    waits = {pod: [shares.get(pod) for shares in blocks] for pod in (writer, idle)}
    print(waits)
    assert len(blocks) > 8
    assert statistics.mean(share or 0.0 for share in waits[writer]) > 0.05
    assert max(share or 0.0 for share in waits[idle]) < 0.02
