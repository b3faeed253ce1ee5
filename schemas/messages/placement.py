"""Messages about placement: the extender's decisions with their reasons, and its reservations."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.messages.base import Count, Message, MessagePart, Microseconds, NodeName, NonNegative, Text

# Nodes that a decision lists; its counts include all.
MOST_RANKED = 10

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
