"""The section of the governor, which limits Mid and Batch pods of one node."""

from typing import Self

from pydantic import Field, model_validator

from schemas.sections.section import Fraction, OptionalLocation, Seconds, Section


class Govern(Section):
    """How `spazio govern` limits pods of the lower tiers."""

    interval_seconds: float = Field(
        1,
        ge=0.1,
        le=60,
        description="Seconds between two measurements, after each of which limits are set again. The default is how "
        "long a burst of production meets the limits of before.",
    )
    reserve: Fraction = Field(
        0.2,
        description="Share of the node's CPU that stays free beyond what production uses, 0 to 1, so that production "
        "can grow at once. Lower tiers share the rest. The default leaves a core of five.",
    )
    floor: float = Field(
        0.02,
        gt=0,
        le=1,
        description="Share of the node's CPU below which the limit of all Mid pods, and that of all Batch pods, never "
        "falls, so that they make some progress. Each pod gets at least 10 millicores, the kernel's minimum.",
    )
    pressure_high: Fraction = Field(
        0.2,
        description="Share of time that threads of production wait for a CPU, 0 to 1, from which limits are halved "
        "each second down to `govern.floor`.",
    )
    pressure_low: Fraction = Field(
        0.1,
        description="Share of time that threads of production wait for a CPU below which limits rise again. Between "
        "this and `govern.pressure_high` they stay, so that they do not swing.",
    )
    release: float = Field(
        0.02,
        gt=0,
        le=1,
        description="Share of the node's CPU by which limits rise per second, at most. The default returns a whole "
        "node in 50 s; limits fall at once.",
    )
    memory_reserve: Fraction = Field(
        0.1,
        description="Share of the node's memory that lower tiers leave available. Where cgroups are version 2, "
        "memory.high keeps their pods from using it. Version 1 has no such limit.",
    )
    memory_low: Fraction = Field(
        0.05,
        description="Share of the node's memory that is available, below which a pod is evicted if `govern.evict` is "
        "on. Keep it above the kubelet's own threshold (100 MiB by default), which evicts production too.",
    )
    evict: bool = Field(
        False,
        description="Evict pods of the lower tiers through the Kubernetes API, Batch before Mid and the newest first, "
        "where limits do not suffice. Off by default: eviction ends work that a limit only slows.",
    )
    evict_after_seconds: Seconds = Field(
        30,
        description="Seconds for which production waits as much as `govern.pressure_high` while lower tiers are at "
        "their floor, before a pod is evicted. Shortage of memory is not waited for.",
    )
    evict_seconds: Seconds = Field(
        60,
        description="Seconds between two evictions on a node, at least. The default is longer than most pods take to "
        "end, so that the effect of one is seen before the next.",
    )
    facts_seconds: Seconds = Field(
        60,
        description="Seconds after which the facts of a pod are read from the bus again; its labels may have changed.",
    )
    journal: OptionalLocation = Field(
        None,
        description="File with the values that cgroups had before, from which they are restored at the end, and by the "
        "next start after a crash. Empty: govern.json in the data folder. It must outlive the container.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.pressure_low > self.pressure_high:
            raise ValueError("pressure_low is above pressure_high; limits would rise and fall at once")
        if self.memory_low > self.memory_reserve:
            raise ValueError("memory_low is above memory_reserve; pods would be evicted before they are limited")
        return self
