"""Messages of the cluster watch: what Kubernetes knows of nodes and pods.

A message is the complete state of one object, not a change of it; the newest wins, by `version`. A last message of a
deleted object has `deleted`. Amounts are in base units: cores, bytes, and counts for everything else.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.messages.base import Amount, Count, Message, MessagePart, Microseconds, NodeName, NonNegative, Text
from schemas.workload import Kind

# In `PodFacts.node` and in its subject: the scheduler has not bound the pod yet. No node can have this name.
UNBOUND = "-"

Amounts = Annotated[dict[Text, Amount], Field(max_length=256)]
Labels = Annotated[dict[Text, Annotated[str, Field(max_length=4096)]], Field(max_length=1024)]


class Taint(MessagePart):
    """Why pods avoid a node."""

    key: Text
    value: str = ""
    effect: Text


class NodeFacts(Message):
    """One node as the API server has it."""

    TITLE: ClassVar[str] = "What Kubernetes knows of one node"

    node: NodeName
    uid: Text
    version: Annotated[Count, Field(description="resourceVersion; a higher one is newer")]
    at_us: Annotated[Microseconds, Field(description="when the watch learned of it")]
    deleted: bool = False
    created_us: Microseconds
    ready: Annotated[bool, Field(description="condition Ready is True")]
    unschedulable: bool
    allocatable: Annotated[Amounts, Field(description="cpu in cores; memory, ephemeral-storage in bytes; pods; others")]
    capacity: Amounts
    labels: Labels
    annotations: Annotated[Labels, Field(description="those whose key begins with spazio")]
    taints: Annotated[list[Taint], Field(max_length=256)]
    price: Annotated[NonNegative | None, Field(description="price per hour, from its label or annotation")] = None
    type: Annotated[Text | None, Field(description="label node.kubernetes.io/instance-type")] = None
    zone: Annotated[Text | None, Field(description="label topology.kubernetes.io/zone")] = None
    kubelet: Annotated[Text | None, Field(description="version of the kubelet")] = None


class PodFacts(Message):
    """One pod as the API server has it."""

    TITLE: ClassVar[str] = "What Kubernetes knows of one pod"

    node: Annotated[NodeName, Field(description="node that it is bound to; -: it is not bound")]
    pod: Annotated[
        Text, Field(description="UID; of a static pod the one of its kubelet, which its mirror has as an annotation")
    ]
    namespace: Text
    name: Text
    version: Annotated[Count, Field(description="resourceVersion; a higher one is newer")]
    at_us: Annotated[Microseconds, Field(description="when the watch learned of it")]
    deleted: bool = False
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]
    terminating: Annotated[bool, Field(description="it has a deletion timestamp")] = False
    created_us: Microseconds
    scheduled_us: Annotated[Microseconds | None, Field(description="condition PodScheduled became True")] = None
    started_us: Annotated[Microseconds | None, Field(description="status.startTime: when the kubelet accepted it")] = (
        None
    )
    ready_us: Annotated[Microseconds | None, Field(description="condition Ready last became True")] = None
    initialization_seconds: Annotated[
        NonNegative | None,
        Field(description="from creation to the first time that it was ready, if the watch can tell"),
    ] = None
    requests: Annotated[Amounts, Field(description="as the scheduler counts them, with init containers and overhead")]
    limits: Amounts
    labels: Labels
    annotations: Annotated[Labels, Field(description="those whose key begins with spazio")]
    owner_kind: Annotated[Text | None, Field(description="kind of the controller; a ReplicaSet's Deployment")] = None
    owner: Annotated[Text | None, Field(description="name of that controller")] = None
    workload: Annotated[Text, Field(description="workload class: label spazio.class, else namespace/owner")]
    kind: Annotated[
        Kind | None, Field(description="kind that label or annotation spazio.kind (or spazio.io/kind) declares")
    ] = None
    priority: Annotated[int | None, Field(ge=-(2**31), lt=2**31)] = None
    priority_class: Text | None = None
    qos: Literal["Guaranteed", "Burstable", "BestEffort"] | None = None
    scheduler: Text | None = None
