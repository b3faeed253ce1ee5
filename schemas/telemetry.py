"""Messages that node agents publish: blocks of samples, and container events."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.message import Count, Message, Microseconds, NodeName

MAXIMUM_SAMPLES = 100
MAXIMUM_US = 60_000_000

Boot = Annotated[str, Field(min_length=1, max_length=64, description="boot id of the node's kernel")]


class Block(Message):
    """Samples of one node in one flat list: row-major, samples by metrics; fast to decode and still readable."""

    node: NodeName
    boot: Boot
    seq: Annotated[Count, Field(description="whole second of CLOCK_BOOTTIME at which the block begins")]
    at_us: Annotated[int, Field(ge=0, le=2**53 - 1 - MAXIMUM_US, description="time of the first sample")]
    step_us: Annotated[int, Field(gt=0, le=60_000_000, description="time from one sample to the next")]
    metrics: Annotated[list[str], Field(min_length=1, max_length=64, description="column names")]
    values: Annotated[list[float | None], Field(min_length=1, max_length=6400, description="null: not known")]

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        columns = len(self.metrics)
        if len(self.values) % columns:
            raise ValueError(f"{len(self.values)} values do not fill rows of {columns} metrics")
        if len(set(self.metrics)) != columns:
            raise ValueError("a metric is named twice")
        if self.samples > MAXIMUM_SAMPLES or self.samples * self.step_us > MAXIMUM_US:
            raise ValueError(f"a block has at most {MAXIMUM_SAMPLES} samples over {MAXIMUM_US // 1_000_000} s")
        return self

    @property
    def samples(self) -> int:
        """Number of samples (rows)."""
        return len(self.values) // len(self.metrics)


class SampleBlock(Block):
    """One second of one node's measurements, as the agent read them."""

    TITLE: ClassVar[str] = "Raw samples of one node, ten a second"

    cpus: Annotated[int, Field(gt=0, le=65_536, description="CPUs online")]
    memory_bytes: Annotated[Count, Field(gt=0, description="MemTotal")]


class SmoothedBlock(Block):
    """The same second after smoothing: short spikes are gone, steps are kept."""

    TITLE: ClassVar[str] = "Smoothed samples of one node"


class ContainerEvent(Message):
    """Something happened to one container of a node."""

    TITLE: ClassVar[str] = "A container was created, started, has exited or was deleted"

    node: NodeName
    boot: Boot
    at_us: Microseconds
    boottime_us: Annotated[Microseconds, Field(description="CLOCK_BOOTTIME of the event")]
    event: Literal["created", "started", "exited", "deleted"]
    container: Annotated[str, Field(min_length=1, max_length=256)]
    sources: Annotated[list[str], Field(min_length=1, description="who reported it, first reporter first")]
    pod: str | None = None
    namespace: str | None = None
    name: str | None = None
    workload: str | None = None
