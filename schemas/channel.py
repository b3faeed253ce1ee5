"""The table of messages: every kind, the subject or key that carries it, and the stream or bucket that keeps it.

One row is one channel. Whatever has to know all kinds is derived from the rows: the codec, the generated documents,
subjects of the streams, key-value buckets, what a partition decodes, and the check of the table in `docs/bus.md`. A
new kind is one row here, the code that makes it, and the code that stores it. Functions take the rows as an argument,
so that a test can try another table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.messages.base import Message
from schemas.messages.estimate import Availability, Cursor, Model
from schemas.messages.facts import NodeFacts, PodFacts
from schemas.messages.market import Markets
from schemas.messages.placement import Decision, Reservations, Shortage, Trust
from schemas.messages.prediction import Forecast, Prediction, Reject, Subspace, WorkloadSums
from schemas.messages.telemetry import ContainerEvent, EdgeBlock, PodUsageBlock, SampleBlock, SmoothedBlock
from schemas.subject import Names


@dataclass(frozen=True, slots=True)
class Store:
    """A stream or a key-value bucket.

    Attributes:
        name: Its name without the prefix: `NODES` is the bucket `SPAZIO_NODES`.
        contents: What it holds, as its description on the server.
        bucket: It is a key-value bucket, which keeps the newest value of each key.
    """

    name: str
    contents: str
    bucket: bool = False


@dataclass(frozen=True, slots=True)
class Token:
    """A variable part of a subject or key.

    Attributes:
        name: Its name in an address: `{node}`.
        description: What stands there.
        several: It covers one or more tokens and ends the subject; else it is exactly one.
    """

    name: str
    description: str
    several: bool = False

    @property
    def wildcard(self) -> str:
        """What matches it in a filter."""
        return ">" if self.several else "*"


TELEMETRY = Store(
    "TELEMETRY", "everything measured, by partition of its node, and the model and directions of all nodes"
)
ESTIMATES = Store("ESTIMATES", "everything estimated, with the cursors that say from what")
EVENTS = Store("EVENTS", "placement decisions")
DEAD = Store("DEAD", "dead letters: messages that could not be used, with the reason")
AVAILABILITY = Store("AVAILABILITY", "scheduler cache: newest availability of each node", bucket=True)
NODES = Store("NODES", "newest facts of each node", bucket=True)
PODS = Store("PODS", "newest facts of each pod that the API server has", bucket=True)
RESERVATIONS = Store("RESERVATIONS", "places held for pods on their way, by node", bucket=True)

EDGE = "edge"  # kind of what an agent sends that computes its own part
CONTAINERS = "containers"  # kind of container events

NODE = Token("node", "node name as one token: a dot as _, any other byte outside A-Z a-z 0-9 - as =XX in hex")
PARTITION = Token("partition", "number of a partition of nodes, from 0")
FOLD = Token("fold", "name of a fold: the number of a partition, outlook- and that number for predictions, or forecast")
NAMESPACE = Token("namespace", "namespace as one token")
WORKLOAD = Token("workload", "kind and name of what owns the pods, as one token: Deployment/web")
POD = Token("pod", "name of the pod as one token")
UID = Token("uid", "UID of the pod")
REPLICA = Token("replica", "name of an extender's replica as one token")
SUBJECT = Token("subject", "subject of the message; several tokens; long: see the header Spazio-Subject", several=True)


@dataclass(frozen=True, slots=True)
class Channel:
    """One kind of message under one kind of subject or key.

    Attributes:
        kind: Kind of message; first token of a subject, behind the prefix.
        message: Type of the payload; None: bytes as they came.
        store: Stream or bucket that keeps it.
        cadence: When it is published. Of a bucket: what its keys are, `{bucket}` being its name.
        tokens: What follows the kind in the subject, or makes up the key; text stands for itself.
        alias: Name in AsyncAPI, where the kind has another channel of its own name.
        publisher: Role of the service that publishes it, of what the stream of estimates keeps.
        by_agent: A node's agent publishes it, so that the node's credential may; only of messages by node.
        beside: Subject, without the prefix, of what a bucket's stream keeps beside its keys; empty: it is a key.
    """

    kind: str
    message: type[Message] | None
    store: Store
    cadence: str
    tokens: tuple[str | Token, ...] = (NODE,)
    alias: str = ""
    publisher: str = "process"
    by_agent: bool = False
    beside: str = ""

    @property
    def name(self) -> str:
        """Name of the channel in AsyncAPI."""
        return self.alias or self.kind

    @property
    def variables(self) -> tuple[Token, ...]:
        """Variable tokens, in order."""
        return tuple(token for token in self.tokens if isinstance(token, Token))

    @property
    def by_node(self) -> bool:
        """Each subject is that of one node, the one that its messages are of."""
        return self.tokens == (NODE,) and not self.store.bucket

    def address(self, names: Names) -> str:
        """Return the subject, with `{name}` for each variable token."""
        if self.beside:
            return names.of(self.beside)
        tokens = [token if isinstance(token, str) else f"{{{token.name}}}" for token in self.tokens]
        if self.store.bucket:
            return ".".join(("$KV", names.store(self.store.name), *tokens))
        return names.of(self.kind, *tokens)

    def filter(self, names: Names) -> str:
        """Return the subject that matches every message of the channel, as published; not for a bucket."""
        return names.of(self.kind, *(token if isinstance(token, str) else token.wildcard for token in self.tokens))

    def description(self, names: Names) -> str:
        """Return a sentence on when messages come and where they are kept."""
        kept = names.store(self.store.name)
        if self.store.bucket:
            return self.cadence.replace("{bucket}", kept)
        stored = f", under {names.part('{partition}', self.kind, '{node}')}"
        return f"{self.cadence}. Kept in {kept}{stored if self.store is TELEMETRY and self.by_node else ''}"


Channels = Sequence[Channel]

_BY_PARTITION = ("partition", PARTITION)

CHANNELS: tuple[Channel, ...] = (
    Channel("samples", SampleBlock, TELEMETRY, "Once a second", by_agent=True),
    Channel(CONTAINERS, ContainerEvent, TELEMETRY, "At once on an event", by_agent=True),
    Channel("pods", PodUsageBlock, TELEMETRY, "Once a second", by_agent=True),
    Channel(EDGE, EdgeBlock, TELEMETRY, "Once a second, instead of samples", by_agent=True),
    Channel("nodefacts", NodeFacts, TELEMETRY, "On a change"),
    Channel("podfacts", PodFacts, TELEMETRY, "On a change; {node} is - while the pod is bound to none"),
    Channel("smoothed", SmoothedBlock, ESTIMATES, "Once a second, unless off"),
    Channel(
        "availability",
        Availability,
        ESTIMATES,
        "At once on a change, at most once a second, else every few seconds",
    ),
    Channel("model", Model, TELEMETRY, "The global model, once a second", ()),
    Channel(
        "model", Model, ESTIMATES, "Sums over the nodes of a partition, once a second", _BY_PARTITION, "model_partition"
    ),
    Channel("model", Model, ESTIMATES, "One node's model, once a second, if on", ("local", NODE), "model_local"),
    Channel("prediction", Prediction, ESTIMATES, "Once a minute where it has changed, at once where by much"),
    Channel("reject", Reject, ESTIMATES, "At once on a change, else every few seconds"),
    Channel("subspace", Subspace, TELEMETRY, "Directions of all nodes, every 5 s, if federated", ()),
    Channel(
        "subspace",
        Subspace,
        ESTIMATES,
        "Directions of the nodes of a partition, every 5 s, if federated",
        _BY_PARTITION,
        "subspace_partition",
    ),
    Channel("workloads", WorkloadSums, ESTIMATES, "Sums over the nodes of a partition, every 15 s", _BY_PARTITION),
    Channel("forecast", Forecast, ESTIMATES, "Every 15 s for each workload", (NAMESPACE, WORKLOAD)),
    Channel(
        "market", Markets, ESTIMATES, "By the history sink, at its start and every ten minutes", (), publisher="history"
    ),
    Channel(
        "shortage",
        Shortage,
        ESTIMATES,
        "By each extender, every few seconds while pods or nodes are in it",
        (REPLICA,),
        publisher="extender",
    ),
    Channel("trust", Trust, ESTIMATES, "By each extender, once a minute", (REPLICA,), publisher="extender"),
    Channel("dead", None, DEAD, "On bad input", (SUBJECT,)),
    Channel("decision", Decision, EVENTS, "On each attempt to place a pod", (NAMESPACE, POD)),
    Channel(
        "availability",
        Availability,
        AVAILABILITY,
        "Scheduler cache: key-value bucket {bucket}, key {node}; too old is absent",
        alias="availability_cache",
    ),
    Channel("nodefacts", NodeFacts, NODES, "Key-value bucket {bucket}, key {node}", alias="nodes_bucket"),
    Channel(
        "podfacts",
        PodFacts,
        PODS,
        "Key-value bucket {bucket}, key {uid}: pods that the API server has",
        (UID,),
        "pods_bucket",
    ),
    Channel(
        "reservations",
        Reservations,
        RESERVATIONS,
        "Key-value bucket {bucket}, key {node}: places held for pods that are not bound yet",
        alias="reservations_bucket",
    ),
    Channel("cursor", Cursor, ESTIMATES, "With the rows of each fold, in one batch", (FOLD,)),
    Channel(
        "cursor",
        Cursor,
        AVAILABILITY,
        "With the rows of the scheduler cache, in one batch; in the stream of the bucket {bucket}, beside its keys",
        (),
        "cache_cursor",
        beside="cache.cursor",
    ),
)


def messages(channels: Channels = CHANNELS) -> dict[str, type[Message]]:
    """Return the message type of each kind that has one."""
    return {channel.kind: channel.message for channel in channels if channel.message is not None}


def stores(channels: Channels = CHANNELS) -> tuple[Store, ...]:
    """Return the streams and buckets, in the order in which the rows name them."""
    return tuple(dict.fromkeys(channel.store for channel in channels))


def of_store(store: Store, channels: Channels = CHANNELS) -> list[Channel]:
    """Return the rows of what a stream or bucket keeps."""
    return [channel for channel in channels if channel.store == store]


def published(names: Names, publisher: str, channels: Channels = CHANNELS) -> tuple[str, ...]:
    """Return the subjects, with wildcards, of what a role publishes into the stream of estimates."""
    return tuple(row.filter(names) for row in of_store(ESTIMATES, channels) if row.publisher == publisher)


def kinds_by_node(channels: Channels = CHANNELS) -> frozenset[str]:
    """Return the kinds whose every subject is that of one node."""
    streamed = [channel for channel in channels if not channel.store.bucket]
    return frozenset(channel.kind for channel in streamed) - {
        channel.kind for channel in streamed if not channel.by_node
    }


def telemetry_kinds(channels: Channels = CHANNELS) -> tuple[str, ...]:
    """Return the kinds that the telemetry stream stores by partition of their node."""
    return tuple(channel.kind for channel in of_store(TELEMETRY, channels) if channel.by_node)


def agent_kinds(channels: Channels = CHANNELS) -> tuple[str, ...]:
    """Return the kinds that the agent of a node publishes; what Kubernetes says of nodes and pods is not among them."""
    return tuple(channel.kind for channel in channels if channel.by_agent and channel.by_node)


TELEMETRY_KINDS = telemetry_kinds()
AGENT_KINDS = agent_kinds()
