"""Messages about placement: the extender's decisions with their reasons, its reservations, and what lacks room."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from schemas.messages.base import Count, Message, MessagePart, Microseconds, NodeName, NonNegative, Ratio, Text

# Nodes that a decision lists; its counts include all.
MOST_RANKED = 10
# Kinds of waiting pods, and nodes of a list, that a shortage names; Kubernetes supports no larger clusters.
MOST_WAITING, MOST_NODES = 64, 5000
MOST_NAMESPACES, MOST_EVIDENCE = 500, 500

Mode = Literal["argmax", "graded", "shadow"]
Outcome = Literal["placed", "rejected", "passed"]


class Ranked(MessagePart):
    """One node that the pod could go to."""

    node: NodeName
    score: Annotated[float, Field(ge=0, le=100, description="weighted mean of the strategies' scores")]
    scores: Annotated[dict[Text, float], Field(description="by strategy, 0 to 100")]
    room: Annotated[
        float | None, Field(description="pods of this kind that fit, before reservations; absent: unknown")
    ] = None
    reserved: Annotated[NonNegative, Field(description="of them reserved for pods that telemetry does not show yet")]
    state: Annotated[Literal["fresh", "stale", "unknown"], Field(description="age of the telemetry behind it")]


class Refusal(MessagePart):
    """One node that the pod could not go to."""

    node: NodeName
    reason: Text
    needs: Annotated[list[Text], Field(default_factory=list, max_length=8, description="what would have to change")]


class Decision(Message):
    """The decision for one pod, once for each attempt to place it."""

    TITLE: ClassVar[str] = "Where a pod goes, or why it goes nowhere"

    namespace: Text
    name: Text
    pod: Annotated[Text, Field(description="UID")]
    at_us: Annotated[Microseconds, Field(description="when it was decided")]
    outcome: Annotated[
        Outcome,
        Field(description="placed: on `node`, or in graded mode on a feasible one; rejected; passed: not evaluated"),
    ]
    node: Annotated[
        NodeName | None, Field(description="node with a reservation for the pod; in shadow mode, that would have one")
    ] = None
    mode: Mode
    guaranteed: Annotated[bool, Field(description="the node had room for the pod, and the reservation is stored")]
    note: Annotated[Text | None, Field(description="why it was not evaluated, or not guaranteed")] = None
    workload: Annotated[Text, Field(description="workload class")]
    strategies: Annotated[dict[Text, NonNegative], Field(description="weights of the strategies in use")]
    nodes: Annotated[Count, Field(description="nodes that the scheduler asked about")]
    feasible: Annotated[Count, Field(description="feasible ones among them")]
    refused: Annotated[dict[Text, Count], Field(description="refused nodes by reason")]
    ranked: Annotated[list[Ranked], Field(max_length=MOST_RANKED, description="the best feasible nodes")]
    refusals: Annotated[
        list[Refusal], Field(max_length=MOST_RANKED, description="the refused nodes that were closest to feasible")
    ]
    seconds: Annotated[NonNegative, Field(description="time that the answer took")]
    bound: Annotated[NodeName | None, Field(description="shadow mode: node that the scheduler chose without us")] = None
    breaks: Annotated[
        list[Text] | None, Field(description="shadow mode: why the policy refuses that node; empty: it does not")
    ] = None


class Held(MessagePart):
    """A reservation for one pod."""

    namespace: Text
    name: Text
    workload: Text
    at_us: Annotated[Microseconds, Field(description="when it was decided")]
    until_us: Annotated[Microseconds, Field(description="when it expires unless the pod is bound")]
    requests: Annotated[dict[Text, NonNegative], Field(max_length=256, description="as the scheduler counts them")]


class Reservations(Message):
    """The reservations on one node for pods that were decided and are not bound yet."""

    TITLE: ClassVar[str] = "Places held on one node"

    node: NodeName
    pods: Annotated[dict[Text, Held], Field(description="by UID")]


class WaitingPodKind(MessagePart):
    """Pods of one workload class with equal requests that were refused for lack of room."""

    workload: Annotated[Text, Field(description="workload class")]
    pods: Annotated[Count, Field(description="pods that wait")]
    since_us: Annotated[Microseconds, Field(description="when the first of them was refused")]


class Shortage(Message):
    """What one replica of the extender has no room for, and where."""

    TITLE: ClassVar[str] = "Pods that wait for room, nodes without it, and nodes whose pods would fit nowhere else"

    replica: Annotated[Text, Field(description="name of the extender's replica")]
    at_us: Microseconds
    until_us: Annotated[Microseconds, Field(description="from when it counts as absent, unless a newer one came")]
    pods: Annotated[Count, Field(description="pods that wait")]
    waiting: Annotated[
        list[WaitingPodKind], Field(max_length=MOST_WAITING, description="the kinds that have waited longest")
    ]
    full: Annotated[
        list[NodeName],
        Field(
            max_length=MOST_NODES,
            description="nodes that refused pods that wait, by measured room, and still have room for none of them",
        ),
    ]
    stranded: Annotated[
        list[NodeName],
        Field(max_length=MOST_NODES, description="nodes whose pods would not all fit on other nodes by measured room"),
    ]


class Spare(MessagePart):
    """What a cluster would not need if its pods filled its nodes; of each node the share that is left."""

    nodes: NonNegative
    cores: NonNegative
    price: Annotated[NonNegative | None, Field(description="per hour; absent: no node has a price")] = None


class Promises(MessagePart):
    """What became of pods of one namespace that came to nodes with room for them."""

    namespace: Text
    settled: Annotated[
        Count, Field(description="promises settled since the message before, on nodes with little room left")
    ]
    broken: Annotated[Count, Field(description="of them those after which the node was beyond the policy")]
    loose: Annotated[Count, Field(description="kept since then, but with much room left: no evidence")]
    evidence: Annotated[Count, Field(le=MOST_EVIDENCE, description="newest settled promises, by which it is promoted")]
    against: Annotated[Count, Field(description="of them the broken ones")]
    promoted: Annotated[bool, Field(description="pods of the namespace are placed, although the mode is shadow")]

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.broken > self.settled or self.against > self.evidence:
            raise ValueError("more promises are broken than have settled")
        return self


class Trust(Message):
    """What an extender has promised and whether it held, and what measured room leaves beside what requests leave."""

    TITLE: ClassVar[str] = "How often nodes kept what was promised of them, and what measured room saves"

    replica: Annotated[Text, Field(description="name of the extender's replica")]
    at_us: Microseconds
    mode: Mode
    risk: Annotated[Ratio, Field(description="share of broken promises that is accepted")]
    nodes: Annotated[Count, Field(description="nodes that report, whose pods are known, and that take pods")]
    cores: Annotated[NonNegative, Field(description="their allocatable cores")]
    price: Annotated[NonNegative | None, Field(description="their price per hour; absent: no node has a price")] = None
    measured: Annotated[Spare, Field(description="what measured room surely leaves: by its lower bound, in whole pods")]
    requested: Annotated[Spare, Field(description="what requests leave, as kube-scheduler and autoscalers count")]
    promises: Annotated[
        list[Promises],
        Field(max_length=MOST_NAMESPACES, description="by namespace; those not heard of for longest are left out"),
    ]
