"""Messages that processors publish: what was learned, and how many more pods fit."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.messages.base import Count, Message, MessagePart, Microseconds, NodeName, NonNegative, Ratio, Text

# Workload classes in one message: a cluster has more workloads, but few take most of it.
MAXIMUM_CLASSES = 64

# Share of a cost that is assumed; above it, what such pods take counts as unknown.
MOSTLY_ASSUMED = 0.7

# Far beyond what a cluster can add up to; sums of such sums stay finite.
Sum = Annotated[float, Field(ge=-1e60, le=1e60)]
Beyond = Annotated[float, Field(ge=0, le=1e60)]
Pair = Annotated[list[Beyond], Field(min_length=2, max_length=2)]


class ClassSum(MessagePart):
    """Pods of one workload class, and what they use, over the nodes of a partition or of the cluster."""

    pods: Annotated[float, Field(ge=0, le=1e12, description="running pods, each weighted by its node's evidence")]
    cpu: Annotated[float, Field(ge=0, le=1e60, description="cores that they use")]
    memory: Annotated[float, Field(ge=0, le=1e60, description="bytes that they use")]
    soaking: Annotated[
        float | None, Field(ge=0, le=1e12, description="those of the pods whose threads are always runnable")
    ] = None
    running: Annotated[float | None, Field(ge=0, le=1e12, description="running pods, each as a whole")] = None
    started: Annotated[float | None, Field(ge=0, le=1e12, description="starts, with a memory of an hour")] = None
    recent: Annotated[float | None, Field(ge=0, le=1e12, description="starts, with a memory of 5 s")] = None
    nodes: Annotated[Count | None, Field(description="nodes with evidence of what a pod of the class takes")] = None
    votes: Annotated[
        float | None,
        Field(ge=0, le=1e12, description="sum over nodes of how likely the next pod is of the class by their starts"),
    ] = None
    coming: Annotated[
        float | None, Field(ge=0, le=1e12, description="the same over nodes on which pods were started lately")
    ] = None
    largest: Annotated[float | None, Field(ge=0, le=1, description="largest part of `coming` that one node has")] = None
    above: Annotated[
        Pair | None,
        Field(
            description="of a partition: cores and bytes that the node furthest above the mean adds beyond what counts"
        ),
    ] = None
    below: Annotated[
        Pair | None,
        Field(description="of a partition: cores and bytes that the node furthest below the mean lacks of what counts"),
    ] = None


# Columns of the history that map classes to one field of their sums. They came after the table's list of classes, whose
# fields are the same in all files; `nodes` is the model's own column.
CLASS_COLUMNS: Mapping[str, str] = {
    "soaking": "soaking",
    "running": "running",
    "started": "started",
    "recent": "recent",
    "votes": "votes",
    "coming": "coming",
    "largest": "largest",
    "class_nodes": "nodes",
}


class ClassRoom(MessagePart):
    """How many more pods of one workload class fit on a node."""

    available: Annotated[NonNegative, Field(description="more pods of the class that fit if no others come")]
    lower: Annotated[NonNegative, Field(description="one-sided 90 % lower bound of available")]
    binding: Annotated[
        str,
        Field(min_length=1, description="what runs out first; disk: pods wait for it; pods: the node's pod limit"),
    ]
    pods: Annotated[Count, Field(description="running pods of the class")]
    cpu: Annotated[NonNegative, Field(description="share of the CPU that pods may have which one of the class takes")]
    memory: Annotated[
        NonNegative, Field(description="share of the memory that pods may have which one of the class takes")
    ]
    kind: Annotated[
        Literal["serving", "soaking"] | None,
        Field(description="soaking: its threads are always runnable; serving: it works and sleeps; null: not known"),
    ] = None
    prior: Annotated[
        Ratio | None, Field(description="share of a pod's cost that is assumed, not measured in the cluster")
    ] = None


class Blocks(MessagePart):
    """Faults of a node's blocks, counted since its first block."""

    doubled: Annotated[Count, Field(description="blocks left out because they were duplicates")]
    late: Annotated[Count, Field(description="blocks left out because newer ones had been folded")]
    missing: Annotated[
        Count,
        Field(description="seconds between blocks of one boot without a folded block: lost, or left out in overload"),
    ]
    jumps: Annotated[Count, Field(description="jumps of the wall clock against the boot clock")]
    shared: Annotated[
        bool | None, Field(description="true: two hosts seem to send under this name; absent: they do not")
    ] = None


class Model(Message):
    """A learned workload: the second moment of usage above the idle baseline, in absolute units.

    `moment` is the upper triangle, row by row, of `sum over nodes of D C D`, where C is a node's mean-normalised
    second moment and D its sizes (cores, bytes, 1 for ratios). `cost` and `pods` are sums over nodes too, weighted by
    each node's own evidence: pods' usage per feature, and running pods. Their quotient is the cluster's mean cost of
    a pod, by usage of pods where it is reported. A local model has the regression's. Assumptions of a node are not in
    the sums, so no assumption returns as evidence.
    """

    TITLE: ClassVar[str] = "Learned workload of the cluster, of one partition, or of one node"

    scope: Literal["global", "partition", "local"]
    at_us: Annotated[Microseconds, Field(description="event second that the sums are of")]
    features: Annotated[list[str], Field(min_length=1, max_length=64)]
    moment: list[Sum]
    nodes: Annotated[Count, Field(description="nodes in the sums")]
    pods: Annotated[float, Field(ge=0, le=1e12, description="running pods, each weighted by its node's evidence")]
    cost: list[Sum]
    classes: Annotated[
        dict[Text, ClassSum] | None, Field(max_length=MAXIMUM_CLASSES, description="usage by workload class")
    ] = None
    repeats: Annotated[
        float | None, Field(ge=0, le=1e12, description="starts of pods of the same class as the one before, faded")
    ] = None
    transitions: Annotated[float | None, Field(ge=0, le=1e12, description="starts after an earlier one, faded")] = None
    costed: Annotated[Count | None, Field(description="nodes with evidence of what a pod takes")] = None
    voting: Annotated[Count | None, Field(description="nodes on which pods were started, or ran before")] = None
    voted: Annotated[
        float | None, Field(ge=0, le=1e12, description="sum of votes, also of those for classes that are not listed")
    ] = None
    voiced: Annotated[
        float | None, Field(ge=0, le=1e12, description="sum of `coming`, also of classes that are not listed")
    ] = None
    others: Annotated[
        float | None, Field(ge=0, le=1e12, description="nodes that vote for classes that the mix lacks")
    ] = None
    above: Annotated[
        list[Beyond] | None,
        Field(
            description="of a partition: part of `cost` that the node furthest above the mean adds beyond what counts"
        ),
    ] = None
    below: Annotated[
        list[Beyond] | None,
        Field(description="of a partition: what the node furthest below the mean lacks in `cost` of what counts"),
    ] = None
    ratios: Annotated[
        Literal[True] | None, Field(description="usage is in ratios of each node (reference variant), not in its units")
    ] = None
    node: NodeName | None = None
    partition: Count | None = None

    @model_validator(mode="after")
    def _triangle(self) -> Self:
        size = len(self.features)
        if len(self.moment) != size * (size + 1) // 2 or len(self.cost) != size:
            raise ValueError(f"{size} features need {size * (size + 1) // 2} moments and {size} costs")
        for name in ("above", "below"):
            beyond = getattr(self, name)
            if beyond is not None and len(beyond) != size:
                raise ValueError(f"{size} features need as many numbers in {name}")
        return self


class Availability(Message):
    """How many more pods fit on a node, which resource runs out first, and how certain that is."""

    TITLE: ClassVar[str] = "How many more pods fit on one node"

    node: NodeName
    at_us: Annotated[Microseconds, Field(description="time of the last sample behind these numbers")]
    seq: Annotated[Count, Field(description="seq of the block behind these numbers")]
    available: Annotated[NonNegative, Field(description="more pods that fit")]
    lower: Annotated[NonNegative, Field(description="one-sided 90 % lower bound of available")]
    upper: Annotated[NonNegative, Field(description="one-sided 90 % upper bound of available")]
    signal: Annotated[NonNegative, Field(description="capacity signal: expected workloads that still fit")]
    cost: Annotated[NonNegative, Field(description="share of the binding resource that one pod takes")]
    capacity: Annotated[NonNegative, Field(description="share of the binding resource that all pods may take together")]
    pods: Annotated[Count, Field(description="running pods")]
    binding: Annotated[
        str,
        Field(min_length=1, description="what runs out first; disk: pods wait for it; pods: the node's pod limit"),
    ]
    mode: Annotated[
        Literal["signal", "capacity"],
        Field(description="from fresh usage, or from learned capacity and pod count"),
    ]
    churn: Annotated[
        bool, Field(description="containers are starting or ending; estimators do not learn, for half a minute at most")
    ]
    prior: Annotated[Ratio, Field(description="share of the cost that is assumed, not this node's evidence")]
    usage: Annotated[
        dict[str, Ratio],
        Field(
            description="smoothed usage per feature; `cpu` is the saturation: CPUs in use and wanted, as a share of "
            "what the allowed slowdown admits"
        ),
    ]
    explained: Annotated[Ratio, Field(description="share of the model's energy in its first direction")]
    gap: Annotated[Ratio, Field(description="second over first eigenvalue of the model; near 1: no single direction")]
    free: Annotated[
        dict[str, Ratio] | None, Field(description="share of cpu and of memory that pods may still take, less headroom")
    ] = None
    limits: Annotated[
        dict[str, NonNegative] | None,
        Field(description="cpu, memory: cores that serving pods may demand, and bytes, of which `free` is a share"),
    ] = None
    mix: Annotated[
        dict[Text, Ratio] | None,
        Field(
            max_length=MAXIMUM_CLASSES,
            description="probability of each workload class for the next pod, - for pods of unknown class and of "
            "classes beyond estimate.classes: what "
            "`available` counts; what is missing to 1 is the mean pod of the cluster; absent: reference pods, or mean "
            "pods where pods' usage is unknown",
        ),
    ] = None
    classes: Annotated[
        dict[Text, ClassRoom] | None, Field(max_length=MAXIMUM_CLASSES, description="capacity by workload class")
    ] = None
    blocks: Annotated[Blocks | None, Field(description="faults of the node's blocks; absent: there were none")] = None
    clock: Annotated[
        float | None,
        Field(
            ge=-1e12,
            le=1e12,
            description="seconds by which the node's wall clock is off, and is not used: after a jump `at_us` "
            "follows the boot clock; absent: the clock is right",
        ),
    ] = None
    outvoted: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=600)]] | None,
        Field(
            max_length=MAXIMUM_CLASSES + 1,
            description="what the node says that its facts or other nodes contradict: `size`, or `class` and the name "
            "of a workload class whose cost is far from that elsewhere; absent: nothing",
        ),
    ] = None
    since_us: Annotated[Microseconds, Field(description="when binding or mode last changed")]
    cpu_used: Annotated[
        Ratio | None, Field(description="share of the CPUs in use, mean of the second; absent: not known")
    ] = None
    excess: Annotated[
        NonNegative | None,
        Field(description="share by which pods demand more than the policy admits, headroom aside; absent: not known"),
    ] = None


class Cursor(Message):
    """How far a consumer has folded its input; stored in one atomic batch with the resulting rows."""

    TITLE: ClassVar[str] = "Input sequence that the stored rows cover"

    stream: Annotated[str, Field(description="name of the input stream")]
    created: Annotated[
        str, Field(description="creation time of that stream; sequences of another stream do not compare")
    ]
    sequence: Count
    stored_us: Annotated[
        Count | None,
        Field(
            description="when the server stored the input message of that sequence; if the stream has another message "
            "there, the server has come back with less than it had"
        ),
    ] = None
    partial: Annotated[
        Count | None, Field(description="rows of the next message that are stored too, if one batch cannot hold all")
    ] = None
