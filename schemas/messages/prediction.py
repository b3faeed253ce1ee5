"""Messages of predictions: peaks and what they leave, PRONTO's reject signal, forecasts of workloads."""

from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from schemas.messages.base import Amount, Count, Message, MessagePart, Microseconds, NodeName, NonNegative, Ratio, Text

# Priority classes of pods; beside them the whole node, and what is in no pod.
Priority = Literal["prod", "mid", "batch", "free", "none"]
Group = Literal["node", Priority, "system"]
Resource = Literal["cpu", "memory"]
Formula = Literal["reclaim", "mixed", "shipped"]
PRIORITIES: tuple[str, ...] = get_args(Priority)
GROUPS: tuple[str, ...] = get_args(Group)
FORMULAS: tuple[str, ...] = get_args(Formula)
MAXIMUM_WORKLOADS = 1000


class Resources(MessagePart):
    """An amount of each resource."""

    cpu: Annotated[Amount, Field(description="cores")]
    memory: Annotated[Amount, Field(description="bytes")]


class Accuracy(MessagePart):
    """Accuracy of a model's predictions of this node whose horizon has passed; older ones count less."""

    violations: Annotated[
        Ratio, Field(description="share of predictions that usage exceeded; the greater one of cpu and memory")
    ]
    severity: Annotated[NonNegative, Field(description="mean excess as a share of the peak; 0 without an excess")]
    savings: Annotated[
        float, Field(ge=-1e6, le=1, description="mean share of the node's capacity that the prediction left free")
    ]
    settled: Annotated[NonNegative, Field(description="predictions behind these numbers, weighted by age")]


class Prediction(Message):
    """The expected peaks of a node, and what they leave to pods of lower tiers.

    A peak is of everything that runs now, over the horizon. Groups are the whole node, the priority classes of its
    pods, and usage outside pods; a model without a prediction for a group is absent there.
    """

    TITLE: ClassVar[str] = "Predicted peaks of one node, and what can be reclaimed"

    node: NodeName
    at_us: Annotated[Microseconds, Field(description="time of the last sample behind these numbers")]
    horizon_seconds: Annotated[NonNegative, Field(description="time over which the peaks are predicted")]
    model: Annotated[Text, Field(description="the model that the settings choose")]
    peak: Annotated[Resources, Field(description="the chosen model's prediction for the whole node")]
    violation: Annotated[
        Ratio | None, Field(description="probability, as the model states it, that its peak is exceeded")
    ] = None
    assumed: Annotated[
        list[Resource] | None,
        Field(description="resources that the chosen model cannot predict yet: their peak is the whole machine"),
    ] = None
    peaks: Annotated[
        dict[Group, dict[Text, Resources]],
        Field(description="by group and model"),
    ]
    capacity: Annotated[Resources, Field(description="what Kubernetes declares allocatable, else the node's size")]
    requested: Annotated[Resources, Field(description="requests of the prod pods")]
    unpredicted: Annotated[Resources, Field(description="requests of prod pods that are too young to predict")]
    reclaimable: Annotated[Resources, Field(description="what prod pods requested and will not need")]
    formula: Annotated[
        Literal["reclaim", "mixed", "shipped"], Field(description="the Mid-tier formula that the settings choose")
    ]
    mid: Annotated[dict[Formula, Resources], Field(description="Mid-tier allocatable by formula")]
    batch: Annotated[Resources, Field(description="Batch-tier allocatable, for reference")]
    accuracy: Annotated[
        dict[Text, Accuracy] | None, Field(description="by model; absent before a horizon has passed")
    ] = None
    windows: Annotated[Count, Field(description="histogram updates of the node so far")]
    reason: Annotated[
        Literal["report", "change", "force"],
        Field(description="report: it was due; change: it changed much; force: the last one was long ago"),
    ]


class Reject(Message):
    """PRONTO's signal whether a node should take no new job now: spikes along its leading directions."""

    TITLE: ClassVar[str] = "PRONTO's reject signal of one node"

    node: NodeName
    at_us: Annotated[Microseconds, Field(description="time of the last sample behind these numbers")]
    seq: Annotated[Count, Field(description="seq of the block behind these numbers")]
    reject: Annotated[bool, Field(description="score is above the threshold")]
    score: Annotated[Ratio, Field(description="share of the directions' weight that spikes now")]
    threshold: Ratio
    rank: Annotated[Count, Field(description="directions that are followed")]
    spikes: Annotated[
        list[Literal[-1, 0, 1]], Field(max_length=64, description="per direction, strongest first: down, none, up")
    ]
    weights: Annotated[list[Ratio], Field(max_length=64, description="share of each direction's singular value")]
    since_us: Annotated[Microseconds, Field(description="when reject last changed")]
    subspace: Annotated[
        Literal["local", "global"] | None,
        Field(description="whose directions these are: the node's own, or those of all nodes; absent: its own"),
    ] = None


class Subspace(Message):
    """Directions in which nodes' usage varies around each node's own mean, and how strongly; of many nodes together.

    With U the directions as columns and S the strengths, U S^2 U' is the sum over nodes of the decayed scatter of the
    metrics, as far as each node follows it.
    """

    TITLE: ClassVar[str] = "Leading directions of usage of the cluster, or of one partition"

    scope: Literal["global", "partition"]
    at_us: Annotated[Microseconds, Field(description="event second that the directions are of")]
    metrics: Annotated[list[Text], Field(min_length=1, max_length=64, description="coordinates of a direction")]
    sigma: Annotated[
        list[Annotated[float, Field(ge=0, le=1e60)]],
        Field(max_length=64, description="singular values, strongest first"),
    ]
    basis: Annotated[
        list[Annotated[float, Field(ge=-1.001, le=1.001)]],
        Field(max_length=4096, description="one unit vector a singular value, one behind the other"),
    ]
    nodes: Annotated[Count, Field(description="nodes whose directions are in it")]
    partition: Count | None = None

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        if len(self.sigma) > len(self.metrics) or len(self.basis) != len(self.sigma) * len(self.metrics):
            raise ValueError(
                f"{len(self.sigma)} directions of {len(self.metrics)} metrics are not {len(self.basis)} numbers"
            )
        return self


class WorkloadSums(Message):
    """What the pods of each workload used on the nodes of one partition: one list per quantity.

    A partition whose workloads exceed one message publishes several of the same time, numbered by `chunk`.
    """

    TITLE: ClassVar[str] = "Usage by workload of one partition"

    partition: Count
    at_us: Annotated[Microseconds, Field(description="event time that the sums are of")]
    chunk: Count = 0
    namespaces: Annotated[list[Text], Field(max_length=MAXIMUM_WORKLOADS)]
    kinds: Annotated[list[Text], Field(description="kind of the pods' owner")]
    workloads: Annotated[list[Text], Field(description="name of the pods' owner")]
    pods: Annotated[list[Count], Field(description="running pods")]
    ready: Annotated[list[Count], Field(description="ready pods")]
    cpu: Annotated[list[Amount], Field(description="cores that they use")]
    memory: Annotated[list[Amount], Field(description="bytes that they use")]
    requested_cpu: Annotated[list[Amount], Field(description="cores that they request")]
    requested_memory: Annotated[list[Amount], Field(description="bytes that they request")]
    initialized: Annotated[list[Count], Field(description="ready pods whose initialization time is known")]
    initialization_seconds: Annotated[list[Amount], Field(description="sum of those times")]
    nodes: Annotated[list[Count] | None, Field(description="nodes that they are on")] = None
    measured: Annotated[list[Count] | None, Field(description="pods behind cpu and memory")] = None
    greatest_cpu: Annotated[
        list[Amount] | None, Field(description="cores of the pods on the node whose pods use most CPU, each")
    ] = None
    greatest_cpu_pods: Annotated[list[Count] | None, Field(description="how many these are")] = None
    greatest_memory: Annotated[
        list[Amount] | None, Field(description="bytes of the pods on the node whose pods use most memory, each")
    ] = None
    greatest_memory_pods: Annotated[list[Count] | None, Field(description="how many these are")] = None

    @model_validator(mode="after")
    def _rectangular(self) -> Self:
        lists = {name: value for name, value in self if isinstance(value, list)}
        for name, value in lists.items():
            if len(value) != len(self.workloads):
                raise ValueError(f"{name} has {len(value)} entries for {len(self.workloads)} workloads")
        return self


class ForecastAccuracy(MessagePart):
    """Accuracy of a model's forecasts of this workload whose horizon has passed; older ones count less."""

    violations: Annotated[
        Ratio, Field(description="share of forecasts that usage then exceeded; the greater one of cpu and memory")
    ]
    severity: Annotated[
        Ratio, Field(description="mean share of what was used then that was not forecast; the greater one of both")
    ]
    overprovision: Annotated[
        Ratio, Field(description="mean share of the forecast that was not used then; the greater one of both")
    ]
    settled: Annotated[NonNegative, Field(description="forecasts behind these numbers, weighted by age")]


class Forecast(Message):
    """What the pods of a workload will use once a pod that is created now is ready, and how many that takes."""

    TITLE: ClassVar[str] = "Forecast of one workload's usage, for predictive scaling"

    namespace: Text
    kind: Annotated[Text, Field(description="kind of the pods' owner")]
    workload: Annotated[Text, Field(description="name of the pods' owner")]
    at_us: Annotated[Microseconds, Field(description="event time that the numbers are of")]
    pods: Annotated[Count, Field(description="running pods")]
    ready: Annotated[Count, Field(description="ready pods")]
    initialization_seconds: Annotated[NonNegative, Field(description="mean time from creation to ready")]
    horizon_seconds: Annotated[NonNegative, Field(description="how far ahead the forecast looks")]
    observations: Annotated[Count, Field(description="points behind the forecast")]
    requested: Annotated[Resources, Field(description="requests of its pods")]
    current: Annotated[Resources, Field(description="what its pods use now")]
    model: Annotated[Text, Field(description="the model that the settings choose")]
    forecast: Annotated[Resources, Field(description="what the chosen model forecasts")]
    forecasts: Annotated[dict[Text, Resources], Field(description="by model")]
    target: Annotated[Ratio, Field(description="target utilisation of the requests")]
    desired: Annotated[Count, Field(description="pods that the forecast needs at that utilisation")]
    raises: Annotated[bool, Field(description="the forecast is above current use: scale up ahead of it")]
    accuracy: Annotated[
        dict[Text, ForecastAccuracy] | None, Field(description="by model; absent before a horizon has passed")
    ] = None
