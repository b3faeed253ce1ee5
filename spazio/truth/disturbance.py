"""CPU time that something other than the experiment takes, which would pass for slowdown by its pods.

It is what all CPUs were busy with (`/proc/stat`, where time stolen by the hypervisor counts), less what the pods'
control groups and the processes of the pipeline took. A step in which much is left over is measured once more.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from producers import cpu
from producers.file import KernelFile

SHARE = 0.075  # of the CPUs; the kernel works for others by itself, too, and less than that
_TICKS = os.sysconf("SC_CLK_TCK")


class Outside:
    """CPU time outside an experiment.

    Args:
        proc: Mount point of `/proc`.
        groups: Folders of the control group that all pods are in.
        pipeline: PID of the process whose descendants are the pipeline.
    """

    def __init__(self, proc: Path, groups: Sequence[Path], pipeline: int) -> None:
        self._proc, self._groups, self._pipeline = proc, groups, pipeline
        self._stat = KernelFile(proc / "stat")

    def seconds(self) -> float:
        """Return the CPU time so far, in seconds; only differences have a meaning.

        Raises:
            OSError: A file cannot be read.
        """
        busy = cpu.parse(self._stat.read()).busy / _TICKS
        return busy - _of_groups(self._groups) - sum(self._processes())

    def _processes(self) -> Iterator[float]:
        """Yield the CPU time of this process, and that of each of the pipeline's with children that have ended."""
        fields = dict(_processes(self._proc))
        yield _sum(fields[os.getpid()][11:13])
        ours = {self._pipeline}
        while more := {pid for pid, values in fields.items() if int(values[1]) in ours} - ours:
            ours |= more
        for pid in ours & fields.keys():
            yield _sum(fields[pid][11:15])


def _processes(proc: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield each PID with the fields of its `stat` after the name (proc_pid_stat(5): state, parent, and so on)."""
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield int(folder.name), (folder / "stat").read_text().rpartition(")")[2].split()


def _sum(ticks: Sequence[str]) -> float:
    return sum(map(int, ticks)) / _TICKS


def _of_groups(folders: Sequence[Path]) -> float:
    """Return the CPU time in seconds of a control group, in version 1 or 2."""
    for folder in folders:
        if (folder / "cpuacct.usage").exists():
            return int((folder / "cpuacct.usage").read_text()) / 1e9
        if (folder / "cpu.stat").exists():
            counters = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
            if "usage_usec" in counters:
                return int(counters["usage_usec"]) / 1e6
    return 0.0
