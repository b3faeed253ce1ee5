"""What pods wait for I/O where the kernel does not say it by pod, from the states of their threads."""

import os
import shutil
from pathlib import Path

import pytest

from producers.pods.blocked import Blocked
from producers.pods.census import Pod
from tests.support import machine

SECOND = 1_000_000_000


class Host:
    """A host of pods whose threads have states, and which waits for a share of the time."""

    def __init__(self, folder: Path) -> None:
        self.tree, self.proc = folder / "cgroup", folder / "proc"
        (self.proc / "pressure").mkdir(parents=True)
        (self.proc / "self").symlink_to(str(os.getpid()))
        self._waited, self._now = 0, 0
        self.blocked, self.pods = Blocked(self.tree, self.proc), list[Pod]()

    def start(self, name: str, *threads: int) -> None:
        (self.tree / name).mkdir(parents=True)
        (self.tree / name / "tasks").write_text("".join(f"{thread}\n" for thread in threads))
        self.pods.append(Pod(name, (name,), (name,), 1))
        self.set("S", *threads)

    def set(self, state: str, *threads: int) -> None:
        for thread in threads:
            (self.proc / str(thread)).mkdir(exist_ok=True)
            (self.proc / str(thread) / "stat").write_text(f"{thread} (a) b) D) {state} 1 1 0\n")

    def second(self, share: float) -> dict[str, float]:
        self._waited, self._now = self._waited + round(share * 1e6), self._now + SECOND
        text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={self._waited}\n"
        (self.proc / "pressure" / "io").write_text(text + text.replace("some", "full"))
        return self.blocked.shares(self.pods, self._now)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_the_share_is_that_of_looks_at_which_a_thread_waited(host: Host) -> None:
    host.start("writer", 10)
    host.start("idle", 20, 21, 22)
    assert host.second(0) == {"writer": 0.0, "idle": 0.0}
    assert host.second(0.5) == {}  # nothing has been looked at yet
    for look in range(20):
        host.set("D" if look % 4 else "R", 10)
        host.blocked.sample()
    assert host.second(0.5) == {"writer": 0.75, "idle": 0.0}


def test_a_pod_of_many_threads_waits_while_one_of_them_does(host: Host) -> None:
    host.start("busy", *range(100, 200))
    host.set("D", *range(100, 110))
    host.second(0)
    host.second(0.9)
    for _ in range(7):  # more than all of them
        host.blocked.sample()
    assert host.second(0.9) == {"busy": 1.0}


def test_a_node_that_does_not_wait_looks_at_nothing(host: Host) -> None:
    host.start("writer", 10)
    host.set("D", 10)
    host.second(0)
    host.second(0.5)
    host.blocked.sample()
    assert host.second(0.001) == {"writer": 1.0}
    assert not host.blocked.active
    assert host.second(0.001) == {"writer": 0.0}


def test_threads_that_end_and_pods_that_go_are_left_out(host: Host) -> None:
    host.start("writer", 10)
    host.start("gone", 20)
    host.set("D", 10, 20)
    host.second(0)
    host.second(0.5)
    (host.proc / "20" / "stat").unlink()
    host.blocked.sample()
    (host.tree / "gone" / "tasks").unlink()
    assert host.second(0.5) == {"writer": 1.0}  # the other was not looked at
    host.pods.pop()
    host.blocked.sample()
    assert host.second(0.5) == {"writer": 1.0}


def test_where_no_thread_is_to_be_looked_at_nothing_is_known_and_nothing_is_done(host: Host) -> None:
    host.start("writer", 10)
    (host.tree / "writer" / "tasks").unlink()
    host.second(0)
    assert host.second(0.5) == host.second(0.5) == {}
    assert not host.blocked.active
    assert host.second(0.0) == {"writer": 0.0}


def test_it_rests_once_the_kernel_accounts_it_by_pod(host: Host) -> None:
    host.start("writer", 10)
    host.second(0)
    host.second(0.5)
    assert host.blocked.active
    host.blocked.stop()
    assert not host.blocked.active


def test_a_kernel_that_does_not_say_whether_the_node_waits_says_nothing_of_pods(host: Host) -> None:
    host.start("writer", 10)
    assert host.blocked.shares(host.pods, SECOND) == {}
    assert not host.blocked.active


def test_on_a_hybrid_host_pods_that_the_kernel_accounts_are_not_looked_at_and_the_others_are(tmp_path: Path) -> None:
    host = machine.Host(tmp_path, "hybrid")
    (host.proc / "self").symlink_to(str(os.getpid()))
    (host.proc / "10").mkdir()
    (host.proc / "10/stat").write_text("10 (a) D 1 1 0\n")
    both, alone = (f"docker/{machine.container(n)}" for n in (1, 2))
    rig, rows = machine.Rig(host), {}
    for second in range(4):
        (host.proc / "pressure/io").write_text(f"some avg10=0.00 total={second * 500_000}\n")
        host.set(both, cpu=second / 4, pressures=(0, 0, second / 8))
        host.set(alone, cpu=second / 2)
        if not second:
            (host.root / "pids" / alone / "tasks").write_text("10\n")
        shutil.rmtree(host.root / "unified" / alone)
        if block := rig.read():
            rows = machine.lines(block)
        if rig.reader.is_sampling:
            rig.reader.sample()
    assert [rows[machine.container(1)][name] for name in ("cpu_cores", "io_pressure")] == [0.25, 0.125]
    line = rows[machine.container(2)]
    assert [line[name] for name in ("cpu_cores", "memory_bytes", "cpu_pressure")] == [0.5, 80 << 20, None]
    assert line["io_pressure"] == 1


def test_nothing_is_said_in_a_pid_namespace_of_its_own_where_threads_have_other_numbers(tmp_path: Path) -> None:
    proc = Host(tmp_path).proc
    (proc / "self").unlink()
    (proc / "self").symlink_to(str(os.getpid() + 1))
    hidden = Blocked(tmp_path / "cgroup", proc)
    for text in ("total=0", "total=500000", "total=500001"):
        (proc / "pressure" / "io").write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 {text}\n")
        assert hidden.shares([Pod("writer", ("writer",), ("writer",), 1)], SECOND) == {}
        assert not hidden.active
