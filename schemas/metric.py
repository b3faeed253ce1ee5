"""The metrics table: every number that a node agent measures, in one place.

A `SampleBlock` names its columns, so an agent may send any subset in any order; this table says what each
column means and which values are possible. Everything on the wire is in base units: a ratio, a count, bytes.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured quantity.

    Attributes:
        name: Column name on the wire and in the history.
        unit: `ratio`, `bytes/s`, or what is counted.
        high: Largest accepted value; the smallest is 0 for every metric.
        source: File it is read from.
        meaning: One line for people.
    """

    name: str
    unit: str
    high: float
    source: str
    meaning: str


METRICS: tuple[Metric, ...] = (
    Metric("cpu_util", "ratio", 1.0, "/proc/stat", "share of CPU time not idle and not waiting for I/O"),
    Metric("cpu_pressure", "ratio", 1.0, "/proc/pressure/cpu", "share of time some thread waited for a CPU"),
    Metric(
        "cpu_throttled",
        "ratio",
        1.0,
        "cgroup tree",
        "share of cpu_pressure that CPU quotas cause, not a lack of CPU",
    ),
    Metric("memory_util", "ratio", 1.0, "/proc/meminfo", "1 - MemAvailable / MemTotal"),
    Metric("memory_used", "ratio", 1.0, "/proc/meminfo", "1 - (MemFree + Buffers + Cached) / MemTotal"),
    Metric(
        "memory_pressure",
        "ratio",
        1.0,
        "/proc/pressure/memory",
        "share of time some thread waited for memory",
    ),
    Metric("memory_stall", "ratio", 1.0, "/proc/pressure/memory", "share of time every thread waited for memory"),
    Metric("io_pressure", "ratio", 1.0, "/proc/pressure/io", "share of time some thread waited for I/O"),
    Metric("io_stall", "ratio", 1.0, "/proc/pressure/io", "share of time every thread waited for I/O"),
    Metric("disk_util", "ratio", 1.0, "/proc/diskstats", "share of time the busiest disk had requests in flight"),
    Metric("disk_bytes", "bytes/s", 1e15, "/proc/diskstats", "bytes read and written by all disks"),
    Metric("net_bytes", "bytes/s", 1e15, "/proc/net/dev", "bytes received and sent, without loopback"),
    Metric("procs_running", "threads", 1e6, "/proc/stat", "runnable threads, including the reader"),
    Metric("load1", "threads", 1e6, "/proc/loadavg", "one-minute load average"),
    Metric("pods", "pods", 1e6, "cgroup tree", "running pods; a container without a pod counts as one"),
)

BY_NAME: dict[str, Metric] = {metric.name: metric for metric in METRICS}
NAMES: tuple[str, ...] = tuple(BY_NAME)


def out_of_range(name: str, value: float) -> str:
    """Return why a block with this value of a metric is refused.

    >>> out_of_range("cpu_util", 1.0000001)
    'values: cpu_util is 1.0000001; it is a ratio from 0 to 1'
    """
    limits = BY_NAME[name]
    return f"values: {name} is {value}; it is a {limits.unit} from 0 to {limits.high:g}"
