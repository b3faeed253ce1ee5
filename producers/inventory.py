"""Everything that a node agent measures, put together; the one list to extend for a new source."""

from pathlib import Path

from producers import cpu, disk, load, memory, network, pressure, throttle
from producers.pods import pod_count
from producers.pods.census import Census
from producers.source import Source
from schemas.sections.measurement import Sample


def default(sample: Sample, census: Census | None = None, newest: throttle.Newest | None = None) -> list[Source]:
    """Return all sources of a Linux node, reading from the mounts that settings name.

    Args:
        sample: Settings.
        census: Who knows the pods; default: a new one.
        newest: Who knows what CPU pressure is owed to quotas; None: nobody.
    """
    proc = sample.proc
    return [
        cpu.Cpu(proc),
        pressure.Pressure(proc, "cpu"),
        throttle.Throttle(newest),
        memory.Memory(proc),
        pressure.Pressure(proc, "memory"),
        pressure.Pressure(proc, "io"),
        disk.Disk(proc),
        network.Network(proc),
        load.Load(proc),
        pod_count.Pods(census or Census(sample.cgroup, proc)),
    ]


def boot_id(proc: Path) -> str:
    """Return the identifier of this boot of the kernel, with which sequence numbers start again.

    Raises:
        OSError: It cannot be read.
    """
    return (proc / "sys/kernel/random/boot_id").read_text().strip()
