"""Messages that node agents publish: blocks of samples, and container events."""

import math
import struct
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import Field, model_validator

from schemas.messages.base import Amount, Count, Message, MessagePart, Microseconds, NodeName, Ratio, Text
from schemas.workload import Kind

MAXIMUM_SAMPLES = 100
MAXIMUM_US = 60_000_000
MAXIMUM_PODS = 2048
MAXIMUM_FEATURES = 16
OLD_SECONDS = 600  # greater ages of a pod are reported as this

# Columns of a `PodUsageBlock`, beside `pods`.
POD_COLUMNS = (
    "namespaces",
    "names",
    "workloads",
    "containers",
    "cpu_cores",
    "memory_bytes",
    "cpu_pressure",
    "memory_pressure",
    "io_pressure",
    "throttled",
)

Value = TypeVar("Value")
# A list that is refused at its first wrong value: to name thousands of them takes longer than to fold a hundred blocks.
Column = Annotated[list[Value], Field(fail_fast=True)]

MetricName = Annotated[str, Field(max_length=64)]
Boot = Annotated[str, Field(min_length=1, max_length=64, description="boot id of the node's kernel")]


def pack(values: Sequence[float | None]) -> bytes:
    """Return numbers as doubles; NaN: not known.

    As objects, the numbers of hundreds of messages that wait are all cache misses when their turn comes.
    """
    try:
        return struct.pack(f"{len(values)}d", *values)
    except struct.error:
        return struct.pack(f"{len(values)}d", *(math.nan if value is None else value for value in values))


class Block(Message):
    """Samples of one node in one flat list: row-major, samples by metrics; fast to decode and still readable."""

    node: NodeName
    boot: Boot
    seq: Annotated[Count, Field(description="whole second of CLOCK_BOOTTIME at which the block begins")]
    at_us: Annotated[int, Field(ge=0, le=2**53 - 1 - MAXIMUM_US, description="time of the first sample")]
    step_us: Annotated[int, Field(gt=0, le=60_000_000, description="time from one sample to the next")]
    metrics: Annotated[Column[MetricName], Field(min_length=1, max_length=64, description="column names")]
    values: Annotated[Column[float | None], Field(min_length=1, max_length=6400, description="null: not known")]

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        columns, values = len(self.metrics), len(self.values)
        if values % columns:
            raise ValueError(f"{values} values do not fill rows of {columns} metrics")
        if len(set(self.metrics)) != columns:
            raise ValueError("a metric is named twice")
        samples = values // columns
        if samples > MAXIMUM_SAMPLES or samples * self.step_us > MAXIMUM_US:
            raise ValueError(f"a block has at most {MAXIMUM_SAMPLES} samples over {MAXIMUM_US // 1_000_000} s")
        return self

    @property
    def samples(self) -> int:
        """Number of samples (rows)."""
        return len(self.values) // len(self.metrics)

    def packed(self) -> bytes:
        """Return the values as doubles; NaN: not known."""
        return pack(self.values)


class SampleBlock(Block):
    """One second of one node's measurements, as the agent read them."""

    TITLE: ClassVar[str] = "Raw samples of one node, ten a second"

    cpus: Annotated[int, Field(gt=0, le=65_536, description="CPUs online")]
    memory_bytes: Annotated[Count, Field(gt=0, description="MemTotal")]


class SmoothedBlock(Block):
    """The same second after smoothing: short spikes are gone, steps are kept."""

    TITLE: ClassVar[str] = "Smoothed samples of one node"


class Size(MessagePart):
    """How large a node is, and whether its kernel reports CPU pressure."""

    cpus: Annotated[int, Field(gt=0, le=65_536, description="CPUs online")]
    memory_bytes: Annotated[Count, Field(gt=0, description="MemTotal")]
    pressure: Annotated[bool, Field(description="the kernel reports CPU pressure")]


class EdgeBlock(Message):
    """One second of a node that smooths and models itself: the last values, and at intervals its size and local model.

    It replaces the `SampleBlock` of the same second. `usage` is in the order of the features cpu, memory,
    memory_pressure, io_pressure, disk, and so are the rows of `moment`: the upper triangle, row by row, of the mean
    second moment of usage above the idle baseline. Both may end before the last feature; a feature that the node does
    not model has a null, and zeros. An absent field keeps its last value; the moment continues with the last values
    instead of all samples of the second. The first block of a process has every field.
    """

    TITLE: ClassVar[str] = "Last values and local model of one node, once a second instead of samples"

    node: NodeName
    boot: Boot
    seq: Annotated[Count, Field(description="whole second of CLOCK_BOOTTIME at which the block begins")]
    at_us: Annotated[
        int | None,
        Field(
            ge=0,
            le=2**53 - 1 - MAXIMUM_US,
            description="time of the first sample; null: it follows from `seq` since the last one",
        ),
    ] = None
    step_us: Annotated[int, Field(ge=10_000, le=1_000_000, description="time from one sample to the next")] = 100_000
    usage: Annotated[
        Column[Ratio | None], Field(max_length=MAXIMUM_FEATURES, description="last smoothed ratios; null: not known")
    ]
    pods: Annotated[Count | None, Field(description="running pods; null: not known")] = None
    waiting: Annotated[Amount, Field(description="cores demanded beyond those used, mean of the second")] = 0.0
    cores: Annotated[Amount | None, Field(description="cores in use, mean of the second; null: as in `usage`")] = None
    size: Size | None = None
    moment: Column[Annotated[float, Field(ge=-1, le=1)]] | None = None

    @model_validator(mode="after")
    def _triangular(self) -> Self:
        triangles = [rows * (rows + 1) // 2 for rows in range(1, MAXIMUM_FEATURES + 1)]
        if self.moment is not None and len(self.moment) not in triangles:
            raise ValueError(f"moment has {len(self.moment)} values; a triangle has 1, 3, 6, 10 …")
        if self.size is not None and (self.moment is None or self.at_us is None):
            raise ValueError("size goes with at_us and moment")
        return self


class ContainerEvent(Message):
    """An event of one container of a node; published once, from the first source that reports it.

    `created` comes before the container's first instruction. A container that runs again after it exited is
    created again. If no source knows a container's identity yet, a later event has it, or none.
    """

    TITLE: ClassVar[str] = "A container was created, started, has exited or was deleted"

    node: NodeName
    boot: Boot
    at_us: Annotated[Microseconds, Field(description="wall-clock time of the event")]
    boottime_us: Annotated[Microseconds, Field(description="CLOCK_BOOTTIME of the event; never steps")]
    event: Literal["created", "started", "exited", "deleted"]
    container: Annotated[Text, Field(description="the runtime's id of the container")]
    sources: Annotated[
        Column[Text],
        Field(
            min_length=1, max_length=16, description="sources that have reported this container, the first one first"
        ),
    ]
    container_name: Annotated[Text | None, Field(description="name within its pod, or the runtime's")] = None
    image: Text | None = None
    sandbox: Annotated[bool | None, Field(description="true: a pod's pause container; null: not known")] = None
    pod: Annotated[Text | None, Field(description="UID of its pod")] = None
    namespace: Annotated[Text | None, Field(description="namespace of its pod")] = None
    name: Annotated[Text | None, Field(description="name of its pod")] = None
    workload: Annotated[Text | None, Field(description="workload class")] = None
    kind: Annotated[Kind | None, Field(description="kind that its label spazio.kind declares")] = None


class PodUsageBlock(Message):
    """What each pod of a node used over one second: one list per quantity, all in the order of `pods`.

    A container outside any pod is a pod of its own, by its container id. Usage is what the kernel accounts to the
    pod's control group, so it includes the pause container's.
    """

    TITLE: ClassVar[str] = "Usage of every pod of one node, once a second"
    REPEATED: ClassVar[tuple[str, str] | None] = ("pods", "containers")

    node: NodeName
    boot: Boot
    seq: Annotated[Count, Field(description="whole second of CLOCK_BOOTTIME in which the reading was due")]
    at_us: Annotated[Microseconds, Field(description="time of the reading")]
    span_us: Annotated[int, Field(gt=0, le=MAXIMUM_US, description="time since the reading before")]
    system_cpu_cores: Annotated[Amount | None, Field(description="CPU used outside pods")] = None
    system_memory_bytes: Annotated[
        Amount | None,
        Field(
            description="memory in use that is in no pod's working set: of MemTotal - MemAvailable, or, beside pods of "
            "a kubelet, which evicts by it, of MemTotal - MemFree - Inactive(file)"
        ),
    ] = None
    pods: Annotated[Column[Text], Field(max_length=MAXIMUM_PODS, description="UID of the pod, or id of the container")]
    namespaces: Column[Text | None]
    names: Column[Text | None]
    workloads: Annotated[Column[Text | None], Field(description="workload class")]
    containers: Annotated[Column[Count], Field(description="running containers, pause containers left out")]
    cpu_cores: Annotated[Column[Amount | None], Field(description="CPU time over wall time")]
    memory_bytes: Annotated[Column[Amount | None], Field(description="working set: usage - inactive file pages")]
    cpu_pressure: Annotated[Column[Ratio | None], Field(description="share of time some thread waited for a CPU")]
    memory_pressure: Annotated[Column[Ratio | None], Field(description="share of time some thread waited for memory")]
    io_pressure: Annotated[Column[Ratio | None], Field(description="share of time some thread waited for I/O")]
    throttled: Annotated[Column[Ratio | None], Field(description="share of time throttled by its own CPU quota")]
    ages: Annotated[
        Column[Count] | None,
        Field(description="seconds for which the pod is known to run, at most 600; null: not known"),
    ] = None
    kinds: Annotated[
        Column[Kind | None] | None,
        Field(description="kinds that containers' labels declare; absent: no pod of the node declares one"),
    ] = None

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        for column in POD_COLUMNS:
            if len(getattr(self, column)) != len(self.pods):
                raise ValueError(f"{column} has {len(getattr(self, column))} entries for {len(self.pods)} pods")
        if self.ages is not None and len(self.ages) != len(self.pods):
            raise ValueError(f"ages has {len(self.ages)} entries for {len(self.pods)} pods")
        if self.kinds is not None and len(self.kinds) != len(self.pods):
            raise ValueError(f"kinds has {len(self.kinds)} entries for {len(self.pods)} pods")
        if len(set(self.pods)) != len(self.pods):
            raise ValueError("a pod is listed twice")
        return self
