"""Messages that processors publish: what was learned, and how many more pods fit."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.messages.base import Count, Message, Microseconds, NodeName, NonNegative, Part, Ratio, Text

# Workload classes in one message: a cluster has more workloads, but few take most of it.
MAXIMUM_CLASSES = 64

# Far beyond what a cluster can add up to; sums of such sums stay finite.
Sum = Annotated[float, Field(ge=-1e60, le=1e60)]


class ClassSum(Part):
    """Pods of one workload class, and what they use, over the nodes of a partition or of the cluster."""

    pods: Annotated[float, Field(ge=0, le=1e12, description="running pods, each as far as its node has evidence")]
    cpu: Annotated[float, Field(ge=0, le=1e60, description="cores that they use")]
    memory: Annotated[float, Field(ge=0, le=1e60, description="bytes that they use")]
    soaking: Annotated[
        float | None, Field(ge=0, le=1e12, description="those of the pods whose threads are always runnable")
    ] = None
    running: Annotated[float | None, Field(ge=0, le=1e12, description="running pods, each as a whole")] = None
    started: Annotated[float | None, Field(ge=0, le=1e12, description="starts, with a memory of an hour")] = None
    recent: Annotated[float | None, Field(ge=0, le=1e12, description="starts, with a memory of 5 s")] = None


class ClassRoom(Part):
    """How many more pods of one workload class fit on a node."""

    available: Annotated[NonNegative, Field(description="more pods of the class that fit, if nothing else comes")]
    lower: Annotated[NonNegative, Field(description="one-sided 90 % lower bound of available")]
    binding: Annotated[str, Field(min_length=1, description="what runs out first; pods: the node's pod limit")]
    pods: Annotated[Count, Field(description="running pods of the class")]
    cpu: Annotated[NonNegative, Field(description="share of the CPU that pods may have which one of the class takes")]
    memory: Annotated[NonNegative, Field(description="share of such memory that one pod of the class takes")]
    kind: Annotated[
        Literal["serving", "soaking"] | None,
        Field(description="soaking: its threads are always runnable; serving: it works and sleeps; null: not told"),
    ] = None
    prior: Annotated[
        Ratio | None, Field(description="share of what a pod takes that is assumed, since nobody in the cluster saw it")
    ] = None


class Blocks(Part):
    """What was wrong with a node's blocks, counted since the node is known."""

    doubled: Annotated[Count, Field(description="blocks left out because they had come before")]
    late: Annotated[Count, Field(description="blocks left out because newer ones had been folded")]
    missing: Annotated[Count, Field(description="seconds between blocks of one boot of which none has come")]
    jumps: Annotated[Count, Field(description="times that the wall clock has jumped against the boot clock")]


class Model(Message):
    """A learned workload: the second moment of usage above the idle baseline, in absolute units.

    `moment` is the upper triangle, row by row, of `sum over nodes of D C D`, where C is a node's mean-normalised
    second moment and D its sizes (cores, bytes, 1 for ratios). `cost` and `pods` are sums too, over nodes by how much
    evidence of their own they have: usage that pods take per feature, and running pods; their quotient is the
    cluster's mean cost of a pod. What a node only assumes is not in them, so no assumption comes back as evidence.
    """

    TITLE: ClassVar[str] = "Learned workload of the cluster, of one partition, or of one node"

    scope: Literal["global", "partition", "local"]
    at_us: Annotated[Microseconds, Field(description="event second that the sums are of")]
    features: Annotated[list[str], Field(min_length=1, max_length=64)]
    moment: list[Sum]
    nodes: Annotated[Count, Field(description="nodes in the sums")]
    pods: Annotated[float, Field(ge=0, le=1e12, description="running pods, each as far as its node has evidence")]
    cost: list[Sum]
    classes: Annotated[
        dict[Text, ClassSum] | None, Field(max_length=MAXIMUM_CLASSES, description="usage by workload class")
    ] = None
    repeats: Annotated[
        float | None, Field(ge=0, le=1e12, description="starts of pods of the same class as the one before, faded")
    ] = None
    transitions: Annotated[float | None, Field(ge=0, le=1e12, description="starts that had one before, faded")] = None
    node: NodeName | None = None
    partition: Count | None = None

    @model_validator(mode="after")
    def _triangle(self) -> Self:
        size = len(self.features)
        if len(self.moment) != size * (size + 1) // 2 or len(self.cost) != size:
            raise ValueError(f"{size} features need {size * (size + 1) // 2} moments and {size} costs")
        return self


class Availability(Message):
    """How many more pods fit on a node, which resource runs out first, and how sure that is."""

    TITLE: ClassVar[str] = "How many more pods fit on one node"

    node: NodeName
    at_us: Annotated[Microseconds, Field(description="time of the last sample behind these numbers")]
    seq: Annotated[Count, Field(description="seq of the block behind these numbers")]
    available: Annotated[NonNegative, Field(description="more pods that fit")]
    lower: Annotated[NonNegative, Field(description="one-sided 90 % lower bound of available")]
    upper: Annotated[NonNegative, Field(description="one-sided 90 % upper bound of available")]
    signal: Annotated[NonNegative, Field(description="capacity signal: expected workloads that still fit")]
    cost: Annotated[NonNegative, Field(description="share of the binding resource that one pod takes")]
    capacity: Annotated[NonNegative, Field(description="share of the binding resource that pods may take in all")]
    pods: Annotated[Count, Field(description="running pods")]
    binding: Annotated[str, Field(min_length=1, description="what runs out first; pods: the node's pod limit")]
    mode: Annotated[
        Literal["signal", "capacity"],
        Field(description="from fresh usage, or from learned capacity and pod count"),
    ]
    churn: Annotated[
        bool, Field(description="containers are starting or ending; estimators hold still, half a minute at most")
    ]
    prior: Annotated[Ratio, Field(description="share of the cost that is assumed, not this node's evidence")]
    usage: Annotated[dict[str, Ratio], Field(description="smoothed usage per feature")]
    explained: Annotated[Ratio, Field(description="share of the model's energy in its first direction")]
    gap: Annotated[Ratio, Field(description="second over first eigenvalue of the model; near 1: no single direction")]
    free: Annotated[
        dict[str, Ratio] | None, Field(description="share of cpu and of memory that pods may still take, headroom off")
    ] = None
    limits: Annotated[
        dict[str, NonNegative] | None,
        Field(description="cpu, memory: cores that serving pods may demand, and bytes, of which `free` is a share"),
    ] = None
    mix: Annotated[
        dict[Text, Ratio] | None,
        Field(
            max_length=MAXIMUM_CLASSES,
            description="how likely the next pod is of each workload class, - for pods of unknown class: what "
            "`available` counts; absent: reference pods, or mean pods where nobody tells what pods use",
        ),
    ] = None
    classes: Annotated[
        dict[Text, ClassRoom] | None, Field(max_length=MAXIMUM_CLASSES, description="room by workload class")
    ] = None
    blocks: Annotated[Blocks | None, Field(description="faults of the node's blocks; absent: there were none")] = None
    clock: Annotated[
        float | None,
        Field(
            ge=-1e12,
            le=1e12,
            description="seconds by which the node's wall clock is off, so that it is not believed: after a jump, "
            "`at_us` is carried on by the boot clock; absent: it is believed",
        ),
    ] = None
    since_us: Annotated[Microseconds, Field(description="since when binding and mode are what they are")]


class Cursor(Message):
    """How far a consumer has folded its input; stored in one atomic batch with the rows that came of it."""

    TITLE: ClassVar[str] = "Input sequence that the stored rows cover"

    stream: Annotated[str, Field(description="name of the input stream")]
    created: Annotated[str, Field(description="creation time of that stream: another stream, another count")]
    sequence: Count
