"""Messages about placement: what the extender has decided and why, and what it holds for pods on their way."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.messages.base import Count, Message, Microseconds, NodeName, NonNegative, Part, Text

# Nodes that a decision tells of; the counts tell of all.
MOST_RANKED = 10

Outcome = Literal["placed", "rejected", "passed"]


class Ranked(Part):
    """One node that the pod could go to."""

    node: NodeName
    score: Annotated[float, Field(ge=0, le=100, description="weighted mean of the strategies' scores")]
    scores: Annotated[dict[Text, float], Field(description="by strategy, 0 to 100")]
    room: Annotated[
        float | None, Field(description="pods of this kind that fit, before reservations; absent: unknown")
    ] = None
    reserved: Annotated[NonNegative, Field(description="of them held for pods that telemetry does not show yet")]
    state: Annotated[Literal["fresh", "stale", "unknown"], Field(description="how old the telemetry behind it is")]


class Refusal(Part):
    """One node that the pod could not go to."""

    node: NodeName
    reason: Text
    needs: Annotated[list[Text], Field(default_factory=list, max_length=8, description="what would have to change")]


class Decision(Message):
    """What was decided for one pod, once for each attempt to place it."""

    TITLE: ClassVar[str] = "Where a pod goes, or why it goes nowhere"

    namespace: Text
    name: Text
    pod: Annotated[Text, Field(description="UID")]
    at_us: Annotated[Microseconds, Field(description="when it was decided")]
    outcome: Annotated[
        Outcome,
        Field(description="placed: on `node`, or in graded mode on one that passed; rejected; passed: not judged"),
    ]
    node: Annotated[NodeName | None, Field(description="node that holds a place for the pod")] = None
    mode: Literal["argmax", "graded"]
    guaranteed: Annotated[bool, Field(description="the node had room for it, and the place is held")]
    note: Annotated[Text | None, Field(description="why it was not judged, or not guaranteed")] = None
    workload: Annotated[Text, Field(description="workload class")]
    strategies: Annotated[dict[Text, NonNegative], Field(description="weights of what was asked")]
    nodes: Annotated[Count, Field(description="nodes that the scheduler asked about")]
    feasible: Annotated[Count, Field(description="of them those that passed")]
    refused: Annotated[dict[Text, Count], Field(description="nodes by why they did not pass")]
    ranked: Annotated[list[Ranked], Field(max_length=MOST_RANKED, description="the best of those that passed")]
    refusals: Annotated[
        list[Refusal], Field(max_length=MOST_RANKED, description="those closest to passing, of those that did not")
    ]
    seconds: Annotated[NonNegative, Field(description="time that the answer took")]


class Held(Part):
    """A place that is held for one pod."""

    namespace: Text
    name: Text
    workload: Text
    at_us: Annotated[Microseconds, Field(description="when it was decided")]
    until_us: Annotated[Microseconds, Field(description="when it lapses unless the pod is bound")]
    requests: Annotated[dict[Text, NonNegative], Field(max_length=256, description="as the scheduler counts them")]


class Reservations(Message):
    """The places that are held on one node for pods that were decided and are not bound yet."""

    TITLE: ClassVar[str] = "Places held on one node"

    node: NodeName
    pods: Annotated[dict[Text, Held], Field(description="by UID")]
