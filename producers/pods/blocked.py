"""Share of time that some thread of a pod waits for I/O, sampled where the kernel does not account it by pod.

Control groups of version 1 have no pressure, and count disk requests only where a limit is set. But the kernel says of
each thread whether it sleeps uninterruptibly, which is almost always a wait for a disk. While the node as a whole waits
for I/O, threads are looked at in turn at random times; a node that does not wait costs one read a second. Of n looks
the share has a standard deviation of at most 1 / sqrt(4n); those who use it smooth it.
"""

import os
import random
from collections.abc import Sequence
from pathlib import Path

from producers import pressure
from producers.file import KernelFile
from producers.pods.census import Pod
from producers.source import rate

_WAITING = 0.02  # share of time: less limits no pod
_LOOKS = 32  # threads at a time, about 15 us each
_MOST = 4096  # threads that are listed


class Blocked:
    """Looks at threads of pods.

    Args:
        tree: The cgroup tree that pods' paths are below.
        proc: Mount of `/proc`.
    """

    def __init__(self, tree: Path, proc: Path) -> None:
        self._tree, self._proc = os.fspath(tree), os.fspath(proc)
        self._pressure = KernelFile(proc / "pressure/io")
        self._before: tuple[int, int] | None = None
        self._visible = _visible(proc)
        self._threads: list[tuple[str, int]] = []
        self._next = 0
        self._seen: dict[str, int] = {}
        self._looked: dict[str, int] = {}
        self._number: dict[str, int] = {}

    @property
    def active(self) -> bool:
        """Whether there are threads to look at: the node waits for I/O."""
        return bool(self._threads)

    def sample(self) -> None:
        """Look at some threads; call it at random times."""
        for key, thread in self._chosen():
            state = self._state(thread)
            if state is not None:
                self._looked[key] = self._looked.get(key, 0) + 1
                self._seen[key] = self._seen.get(key, 0) + (state == b"D")

    def shares(self, pods: Sequence[Pod], now: int) -> dict[str, float]:
        """Return the shares by pod since the call before, as far as they are known, and begin again.

        While the node waits they are those of pods that were looked at, else 0; none are known where the kernel does
        not say whether it waits, or in another PID namespace, where the numbers of threads are others.

        Args:
            pods: Running pods.
            now: CLOCK_MONOTONIC in nanoseconds.
        """
        waited = self._waited(now) if self._visible else None
        waits = waited is not None and waited >= _WAITING
        keys = {pod.key for pod in pods}
        shares = {} if waited is None or waits else dict.fromkeys(keys, 0.0)
        for key, looked in self._looked.items():
            if key in keys:
                shares[key] = min(1.0, self._seen[key] / looked * self._number[key])
        self._list(pods if waits else ())
        return shares

    def stop(self) -> None:
        """Look at nothing until the next call of `shares`."""
        self._list(())

    def _waited(self, now: int) -> float | None:
        """Return the share of time that some thread of the node has waited since the call before."""
        try:
            total = pressure.parse(self._pressure.read())[0]
        except OSError:
            return None
        before, self._before = self._before, (total, now)
        return 0.0 if before is None else rate(before[0], total, (now - before[1]) / 1000)

    def _list(self, pods: Sequence[Pod]) -> None:
        threads = [(pod.key, thread) for pod in pods for path in pod.containers for thread in self._tasks(path)]
        random.shuffle(threads)
        self._threads, self._next = threads[:_MOST], 0
        self._seen, self._looked, self._number = {}, {}, {}
        for key, _ in self._threads:
            self._number[key] = self._number.get(key, 0) + 1

    def _tasks(self, path: str) -> list[int]:
        try:
            return [int(line) for line in _read(f"{self._tree}/{path}/tasks").split()]
        except (OSError, ValueError):  # it ended
            return []

    def _chosen(self) -> list[tuple[str, int]]:
        first, self._next = self._next, self._next + _LOOKS
        chosen = self._threads[first : self._next]
        if self._next >= len(self._threads):
            self._next = 0
        return chosen

    def _state(self, thread: int) -> bytes | None:
        """Return the state of a thread; None: it has ended."""
        try:
            content = _read(f"{self._proc}/{thread}/stat")
        except OSError:
            return None
        return content[content.rindex(b")") + 2 :][:1]


def _visible(proc: Path) -> bool:
    """Return whether control groups list threads by the numbers that they have in `proc`."""
    try:
        return (proc / "self").readlink() == Path(str(os.getpid()))
    except OSError:
        return False


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 # a third of the time of Path's
        return file.read()
