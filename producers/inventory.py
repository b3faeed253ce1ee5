"""The list of all sources of a node agent; add new sources here."""

from pathlib import Path

from producers import cpu, disk, load, memory, network, pressure, throttle
from producers.pods import pod_count
from producers.pods.census import Census
from producers.source import Source
from schemas.sections.measurement import Sample


def default(sample: Sample, census: Census | None = None, newest: throttle.Newest | None = None) -> list[Source]:
    """Return all sources of a Linux node, which read from the mounts that settings name.

    Args:
        sample: Settings.
        census: Census of the node's pods; default: a new one.
        newest: Provider of the share of CPU pressure that quotas cause; None: the share is unknown.
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
    """Return the identifier of this boot of the kernel, with which sequence numbers restart.

    Raises:
        OSError: It cannot be read.
    """
    return (proc / "sys/kernel/random/boot_id").read_text().strip()
