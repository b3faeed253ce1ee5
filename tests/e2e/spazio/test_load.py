"""Real load on this machine: the agent keeps its grid, and the number moves the right way."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from tests.e2e.pipeline import Up, until, up

pytestmark = [pytest.mark.slow, pytest.mark.alone]

_SPIN = "while True: pass"
_HOLD = """
import mmap, sys, time
held = mmap.mmap(-1, int(sys.argv[1]))
for start in range(0, len(held), 4096):
    held[start] = 1
print("held", flush=True)
time.sleep(600)
"""


@contextmanager
def hogs(number: int) -> Iterator[None]:
    """Keep that many CPUs busy."""
    spinning = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(number)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


@contextmanager
def memory(share: float) -> Iterator[None]:
    """Hold memory until that share of it is in use."""
    fields = dict(re.findall(r"(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text()))
    wanted = int((int(fields["MemAvailable"]) - (1 - share) * int(fields["MemTotal"])) * 1024)
    with subprocess.Popen([sys.executable, "-c", _HOLD, str(wanted)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            yield
        finally:
            holder.kill()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    # Reference pods of 1 GiB: on an idle machine CPU binds, and memory does long before it is full.
    # A flush each second, so that what is to be stored soon is.
    options = ("--estimate-pod-memory-bytes", str(1 << 30), "--history-flush-seconds", "1")
    with up(tmp_path_factory.mktemp("load") / "data", *options) as pipeline:
        until(pipeline.top, 10, "this host in the cache")
        yield pipeline


def lateness_p99(before: str, after: str) -> float:
    """Return an upper bound of the 99th percentile between two pages of metrics."""

    def buckets(page: str) -> dict[float, float]:
        result = re.findall(r'spazio_sample_lateness_seconds_bucket\{le="([^"]+)"\} ([0-9.e+]+)', page)
        return {float(bound.replace("+Inf", "inf")): float(count) for bound, count in result}

    first, last = buckets(before), buckets(after)
    counted = {bound: last[bound] - first[bound] for bound in last}
    return min(bound for bound, count in counted.items() if count >= 0.99 * counted[float("inf")])


def test_over_a_minute_of_busy_cores_no_block_and_no_sample_is_missing(running: Up) -> None:
    began = time.time()
    before = running.page("agent", "/metrics")[1]
    oldest = 0.0
    with hogs(os.cpu_count() or 1):
        while time.time() < began + 60:
            time.sleep(2)
            oldest = max(oldest, *(row["age_seconds"] for row in running.top()))
    after = running.page("agent", "/metrics")[1]
    time.sleep(4)  # past one flush of the history, in real time since everything here is real
    window = f"at_us BETWEEN {int(began * 1e6)} AND {int((began + 60) * 1e6)}"
    counted = running.sql(
        "SELECT max(seq) - min(seq) + 1 - count(DISTINCT seq) AS missing, count(*) - 10 * count(DISTINCT seq) AS odd, "
        f"count(*) FILTER (cpu_util IS NULL) AS empty, count(*) AS rows FROM samples WHERE seq IN "
        f"(SELECT seq FROM samples WHERE {window})"
    )[0]
    print(json.dumps({**counted, "oldest_seconds": oldest, "lateness_p99_below": lateness_p99(before, after)}))
    assert counted["missing"] == 0
    assert counted["odd"] == 0
    assert counted["empty"] <= 2
    assert counted["rows"] >= 580
    assert oldest < 5


def idle(running: Up) -> float:
    """Wait until the machine is quiet and return what is available then."""
    until(lambda: running.cached()["usage"]["cpu"] < 0.15, 60, "a quiet machine")
    time.sleep(5)
    return float(running.cached()["available"])


def test_busy_cores_lower_availability_and_bind_and_their_end_restores_it(running: Up) -> None:
    before = idle(running)
    with hogs(2 * (os.cpu_count() or 1)):
        until(lambda: running.cached()["available"] < 0.3 * before, 10, "less available")
        row = running.cached()
        assert row["binding"] == "cpu"
    # A quarter of a core is two pods, and what waits to be processed after a full machine takes so much for a while.
    until(lambda: running.cached()["available"] > 0.5 * before, 5, "half of it within five seconds")
    until(lambda: running.cached()["available"] > 0.75 * before, 30, "available again")


def test_full_memory_lowers_availability_and_binds_and_its_end_restores_it(running: Up) -> None:
    before = idle(running)
    with memory(0.9):
        until(lambda: running.cached()["binding"] == "memory", 10, "memory binds")
        assert running.cached()["available"] < before
        # It may have bound while the memory was still being filled.
        until(lambda: abs(running.cached()["usage"]["memory"] - 0.9) < 0.03, 5, "nine tenths of memory in use")
    until(lambda: running.cached()["binding"] != "memory", 5, "memory is free again within five seconds")
    until(lambda: running.cached()["available"] > 0.75 * before, 30, "available again")


def test_queries_a_second_process_and_the_sink_run_together_without_a_lock_error(running: Up) -> None:
    seconds = float(os.environ.get("TEST_TOGETHER_SECONDS", "15"))
    program = (
        "import duckdb, sys, time\n"
        "end = time.time() + float(sys.argv[2])\n"
        "count = 0\n"
        "while time.time() < end:\n"
        "    with duckdb.connect(sys.argv[1], read_only=True) as connection:\n"
        "        connection.execute('SELECT count(*), max(available) FROM availability').fetchone()\n"
        "    count += 1\n"
        "    time.sleep(0.2)\n"
        "print(count)\n"
    )
    command = [sys.executable, "-c", program, running.addresses["history"], str(seconds)]
    late = "SELECT epoch(now()) - max(at_us) / 1e6 AS seconds FROM samples"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as other:
        with duckdb.connect(running.addresses["history"], read_only=True) as own:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                assert own.execute("SELECT count(*) FROM samples").fetchone() is not None
                assert running.sql(late)[0]["seconds"] < 15
        output, errors = other.communicate(timeout=30)
    assert other.returncode == 0, errors
    assert int(output) > seconds / 2
    assert "Lock" not in running.log.read_text()


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("mount") is None, reason="mounting a small disk needs root")
def test_with_the_whole_data_folder_on_a_full_disk_it_degrades_says_so_and_recovers(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("this machine does not allow to mount a tmpfs")
    limits = ["--nats-telemetry-max-bytes", "8000000", "--nats-estimates-max-bytes", "8000000"]
    limits += ["--nats-events-max-bytes", "1000000"]
    try:
        with up(disk / "data", *limits, "--history-flush-seconds", "1") as running:
            until(running.top, 10, "this host in the cache")
            filler = disk / "filler"
            with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * 4096)
            until(lambda: running.page("history", "/readyz")[0] == 503, 20, "degraded")
            server_log = disk / "data" / "nats" / "server.log"
            until(lambda: "Critical write error" in server_log.read_text(), 20, "the server could not write")
            assert running.process.poll() is None
            filler.unlink()
            until(lambda: running.page("history", "/readyz")[0] == 200, 30, "history recovered")
            until(running.is_fresh, 30, "fresh numbers")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)
