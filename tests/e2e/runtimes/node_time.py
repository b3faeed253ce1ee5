"""What CPU time the node spends, by `/proc/stat` alone: what pods and system together are compared with."""

import threading
import time
from pathlib import Path

import numpy as np

TICK_SECONDS = 0.01  # in which /proc/stat counts, whatever the kernel ticks in


class NodeTime(threading.Thread):
    """Reads what CPU time the node has spent every 50 ms, so that it is known at any moment in between.

    That is the time of all CPUs less what they were idle, which the kernel measures by the clock, while it lays what
    they were busy by the tick. Steal is left out: nothing on the node has used it, and no cgroup accounts for it.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.cpus = cpus()
        self._moments: list[float] = []
        self._unused: list[float] = []
        self._ending = threading.Event()

    def run(self) -> None:
        with Path("/proc/stat").open() as stat:
            while not self._ending.wait(0.05):
                stat.seek(0)
                before = time.time()
                _, _, _, idle, waiting, _, _, steal = (int(word) for word in stat.read().split(None, 9)[1:9])
                self._moments.append((before + time.time()) / 2)
                self._unused.append((idle + waiting + steal) * TICK_SECONDS)

    def stop(self) -> None:
        self._ending.set()
        self.join()

    def cores(self, since: float, until: float) -> tuple[float, float]:
        """Return the mean use between two moments, and by how much that may be wrong.

        Three numbers are cut to whole ticks at both ends. Between two readings h seconds apart a line is drawn, while
        anything from no CPU to all may have been used first and the rest thereafter: at most a quarter of all h cpus.
        """
        assert self._moments[0] <= since < until <= self._moments[-1]
        unused = np.diff(np.interp([since, until], self._moments, self._unused))[0]
        indices = np.searchsorted(self._moments, [since, until])
        gaps = sum(self._moments[index] - self._moments[index - 1] for index in indices)
        doubt = 2 * 3 * TICK_SECONDS + self.cpus * gaps / 4
        return self.cpus - unused / (until - since), doubt / (until - since)


def cpus() -> int:
    return len([line for line in Path("/proc/stat").read_text().splitlines() if line[3:4].isdigit()])
