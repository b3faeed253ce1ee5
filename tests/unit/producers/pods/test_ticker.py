"""When usage is read, on virtual time."""

import random
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from producers import clock as grid
from producers.pods.ticker import Ticker
from schemas import codec
from schemas.messages.telemetry import PodUsageBlock
from tests.support.machine import Host, Rig, container, lines


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path, "v2")


def failures() -> float:
    return REGISTRY.get_sample_value("spazio_source_failures_total", {"source": "usage"}) or 0.0


class Ticking:
    """A ticker on virtual time."""

    def __init__(self, host: Host) -> None:
        self.rig = Rig(host)
        self.blocks: list[tuple[int, float]] = []
        self.decoded: list[PodUsageBlock] = []
        self.lateness = 0.0  # of the thread, in seconds
        self.ticker = Ticker(self.rig.reader, self.emit, clock=host, wait=self.wait)

    def wait(self, seconds: float) -> None:
        self.rig.host.sleep(seconds + self.lateness)

    def emit(self, seq: int, payload: bytes) -> None:
        self.decoded.append(codec.decode(PodUsageBlock, payload))
        assert self.decoded[-1].seq == seq
        self.blocks.append((seq, self.rig.host.now / grid.SECOND))


def test_a_reading_comes_shortly_before_the_last_tick_of_each_second(host: Host) -> None:
    ticking = Ticking(host)
    for _ in range(4):
        ticking.ticker.turn()
    assert [seq for seq, _ in ticking.blocks] == [101, 102, 103]
    assert [at % 1 for _, at in ticking.blocks] == pytest.approx([0.85] * 3)


def test_a_late_reading_has_the_second_in_which_it_was_due_and_the_next_is_reported_too(host: Host) -> None:
    path, ticking = f"docker/{container(1)}", Ticking(host)
    used = 0.0
    for late in (0, 0.2, 0, 1.3, 0.1, 0):
        used += 0.25
        host.set(path, cpu=used)
        ticking.lateness = late
        ticking.ticker.turn()
    assert [seq for seq, _ in ticking.blocks] == [101, 102, 104, 105, 106]
    assert [at for _, at in ticking.blocks] == pytest.approx([102.05, 102.85, 105.15, 105.95, 106.85])
    spent = [lines(block)[container(1)]["cpu_cores"] * block.span_us / 1e6 for block in ticking.decoded]
    assert spent == pytest.approx([0.25] * 5, abs=1e-4), "nothing that a pod used is missing"


def test_a_reading_after_a_suspension_has_the_second_of_its_time(host: Host) -> None:
    ticking = Ticking(host)
    for ticking.lateness in (0, 3600.05, 0):
        ticking.ticker.turn()
    assert [seq for seq, _ in ticking.blocks] == [3701, 3702]


def test_threads_are_looked_at_in_between_while_a_pod_with_a_quota_runs(host: Host) -> None:
    random.seed(1)
    host.set(f"docker/{container(1)}", quota=True)
    ticking = Ticking(host)
    ticking.ticker.turn()
    host.set(f"docker/{container(1)}", cpu=0.1, quota=True)
    ticking.ticker.turn()
    assert len(ticking.blocks) == 1
    looks = 0
    while len(ticking.blocks) < 2:
        ticking.ticker.turn()
        looks = max(looks, len(ticking.rig.reader._excess))
    assert 14 <= looks <= 34
    assert ticking.blocks[1][1] == pytest.approx(102.85)
    ticking.ticker.turn()
    assert [seq for seq, _ in ticking.blocks] == [101, 102, 103], "it does not run any more"


def test_a_look_at_threads_that_ends_after_a_reading_was_due_costs_no_reading(host: Host) -> None:
    random.seed(1)
    path, ticking = f"docker/{container(1)}", Ticking(host)
    ticking.lateness = 0.04
    for turn in range(120):
        host.set(path, cpu=turn / 100, quota=True)
        ticking.ticker.turn()
    assert len(ticking.blocks) > 8
    assert {block.span_us // 100_000 for block in ticking.decoded} <= {9, 10}


def test_a_failure_is_counted_and_reported_once_and_the_next_second_is_tried(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    before = failures()
    ticking = Ticking(host)
    content = (host.proc / "meminfo").read_text()
    (host.proc / "meminfo").write_text("nothing of use\n")
    for _ in range(3):
        ticking.ticker.turn()
    (host.proc / "meminfo").write_text(content)
    for _ in range(2):
        ticking.ticker.turn()
    assert [record.message for record in caplog.records] == ["usage.failed", "usage.recovered"]
    assert failures() == before + 3
    assert len(ticking.blocks) == 1


def test_a_ticker_ends_when_it_is_stopped(host: Host) -> None:
    ticker = Ticker(Rig(host).reader, lambda seq, payload: None)
    ticker.start()
    ticker.stop()
    assert not ticker._thread.is_alive()
