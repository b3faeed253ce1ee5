"""The table of roles: what each credential may publish and hear, derived from the table of messages.

A role may do what its service needs and nothing else. Nodes are in an account of their own, from which the server
passes on exactly the subjects of what agents measure. So an answer to a node stays in that account: otherwise a node
could publish its own block with a reply subject that belongs to others, and the server would store the acknowledgement
there, since it does not check permissions of replies. All other roles but `process` and `admin` have an account each
for the same reason. Each role has an inbox of its own, so that none hears the answers to another.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from schemas import channel, request
from schemas.channel import AGENT_KINDS, CHANNELS, TELEMETRY_KINDS, Store
from schemas.subject import Names, description, token

NODE = "node"
REGION = "region"
READER = "reader"
ADMIN = "admin"
LOCAL = "local"

INBOX = "_INBOX"
ACROSS = "_R_."  # what the server names as the reply of a request from another account
API_APART = "$JS.spazio.API."  # in the account of a role; other clients ask so too if given the domain "spazio"
FLOW = "flow"  # behind the prefix: requests for the ledgers of all services; one token more: the answers
_LONGEST_INBOX_TOKEN = 64  # a longer one is hashed, so that subject and reply fit into one line of the protocol
_LONGEST_TOKEN = 240  # a credential holds the token five times and has to fit into one line of the protocol


class Grant(NamedTuple):
    """What a credential may do.

    Attributes:
        publish: Subjects that it may publish to, with wildcards.
        subscribe: Subjects that it may subscribe to; the first is its inbox.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Role:
    """A role.

    Attributes:
        name: Its name, which is also that of its credential's file.
        purpose: Who uses it, and for what.
        grant: Returns what it may do under a prefix.
        within_nodes: It belongs to the account of nodes.
        apart: It has an account of its own, which imports from that of the streams what it may publish and hear.
        tools: Other NATS tools use it too, so requests to the JetStream API keep their subjects in its account.
        unbound: It may create consumers of any name on streams of leases too, and use those of others.
    """

    name: str
    purpose: str
    grant: Callable[[Names], Grant]
    within_nodes: bool = False
    apart: bool = False
    tools: bool = False
    unbound: bool = False

    def allowed(self, names: Names) -> Grant:
        """Return what it may do under a prefix, by the subjects of its account."""
        grant = self.grant(names)
        return grant._replace(publish=tuple(map(self.subject, grant.publish)))

    def subject(self, subject: str) -> str:
        """Return the subject that stands in its account for one of the account that has the streams."""
        return apart(subject) if self.apart and not self.tools else subject


def apart(subject: str) -> str:
    """Return the subject that stands for one of the main account's in the account of a role.

    Requests to the JetStream API have another one, since each account answers `$JS.API` itself.
    """
    return API_APART + subject[len(request.API) :] if subject.startswith(request.API) else subject


def node(names: Names, name: str) -> Grant:
    """Return what the agent of one node may do: publish what it measures there, and hear the global model.

    Raises:
        ValueError: The name is too long for a credential.
    """
    own = token(name)
    if len(own) > _LONGEST_TOKEN:
        raise ValueError(
            f"node name {name[:40]}… is {len(own)} bytes as a subject token, and a credential holds at most "
            f"{_LONGEST_TOKEN}: choose a shorter one with --sample-node"
        )
    published = tuple(names.of(kind, own) for kind in AGENT_KINDS)  # no facts: those are Kubernetes' word
    return Grant(published, (f"{node_inbox(name)}.>", names.model))


def node_inbox(name: str) -> str:
    """Return the prefix of a node's inboxes."""
    own = token(name)
    short = own if len(own) <= _LONGEST_INBOX_TOKEN else hashlib.blake2b(own.encode(), digest_size=16).hexdigest()
    return f"{INBOX}_{NODE}.{short}"


def region(names: Names, nodes: Iterable[str]) -> Grant:
    """Return what the leaf server of a region may do: publish what its nodes measure, and pass on what they hear.

    Raises:
        ValueError: The name of a node is too long for a credential.
    """
    grants = [node(names, name) for name in nodes]
    published = tuple(subject for grant in grants for subject in grant.publish)
    return Grant(published, (_inbox(REGION), *(grant.subscribe[0] for grant in grants), names.model))


def store_of(kind: str) -> Store:
    """Return the store of a kind that is kept in one."""
    (store,) = {row.store for row in CHANNELS if row.kind == kind}
    return store


def _inbox(role: str) -> str:
    return f"{INBOX}_{role}.>"


def _bucket(names: Names, store: Store) -> str:
    return f"$KV.{names.store(store.name)}.>"


def _objects(names: Names) -> str:
    return f"$O.{names.checkpoints}.>"


def _checkpoints_of(names: Names, name: str) -> tuple[str, ...]:
    """Return the subjects of the two objects that hold the checkpoints of a name."""
    descriptions = (description(names.checkpoints, f"{name}.{turn}") for turn in (0, 1))
    return (f"$O.{names.checkpoints}.C.{name}.>", *descriptions)


def _dead(names: Names) -> str:
    return names.of("dead", ">")


def _telemetry(names: Names) -> tuple[str, ...]:
    return tuple(names.of(kind, "*") for kind in TELEMETRY_KINDS)


def _region(names: Names) -> Grant:
    measured = tuple(names.of(kind, "*") for kind in AGENT_KINDS)
    return Grant(measured, (_inbox(REGION), f"{INBOX}_{NODE}.>", f"{INBOX}.>", names.model))


def _process(names: Names) -> Grant:
    requests = request.api(
        *(f"STREAM.{verb}.*" for verb in ("INFO", "CREATE", "UPDATE", "MSG.GET")),
        f"STREAM.PURGE.{request.stored_name(request.CHECKPOINTS, names)}",
        *(f"CONSUMER.{verb}.>" for verb in ("CREATE", "INFO", "DELETE", "MSG.NEXT", "RESET", "UNPIN")),
        "DIRECT.GET.>",
    )
    published = (*channel.published(names, "process"), names.model, names.subspace, _dead(names), _objects(names))
    heard = (_inbox("process"), "$SRV.>", names.of("process", "*"), names.model)
    # Inboxes of all who may ask which parts it does. The right to answer any request would have the server take note of
    # the reply subject of each message that it delivers, which took an eighth of its CPU time.
    answered = (_inbox("process"), _inbox(ADMIN), f"{INBOX}.>", f"{ACROSS}>")
    return Grant((*published, "$SRV.>", *answered, *requests), heard)


def _cache(names: Names) -> Grant:
    requests = request.reading(names, (channel.ESTIMATES, channel.AVAILABILITY))
    written = (_bucket(names, channel.AVAILABILITY), names.of("cache", "cursor"), _dead(names))
    return Grant((*written, *requests), (_inbox("cache"),))


def _history(names: Names) -> Grant:
    stores = (channel.TELEMETRY, channel.ESTIMATES, store_of("decision"))
    published = (*channel.published(names, "history"), _dead(names))
    return Grant((*published, *request.reading(names, stores)), (_inbox("history"),))


def _estimates_reader(role: str) -> Callable[[Names], Grant]:
    def grant(names: Names) -> Grant:
        published = (*channel.published(names, role), _dead(names))
        return Grant((*published, *request.reading(names, (channel.ESTIMATES,))), (_inbox(role),))

    return grant


def _extender(names: Names) -> Grant:
    buckets = (channel.AVAILABILITY, channel.RESERVATIONS, channel.NODES, channel.PODS)
    stores = (*buckets, channel.TELEMETRY, channel.ESTIMATES)
    written = (_bucket(names, channel.RESERVATIONS), names.of("decision", "*", "*"), _dead(names))
    requests = request.reading(names, stores)
    return Grant((*written, *channel.published(names, "extender"), *requests), (_inbox("extender"),))


def _watch(names: Names) -> Grant:
    kept = request.stored_name(request.CHECKPOINTS, names)
    stores = (channel.TELEMETRY, channel.NODES, channel.PODS, request.CHECKPOINTS)
    requests = (*request.reading(names, stores), *request.api(f"STREAM.PURGE.{kept}"))
    facts = tuple(names.of(kind, "*") for kind in ("nodefacts", "podfacts"))
    buckets = (_bucket(names, channel.NODES), _bucket(names, channel.PODS))
    return Grant((*facts, *buckets, *_checkpoints_of(names, "watch"), _dead(names), *requests), (_inbox("watch"),))


def _govern(names: Names) -> Grant:
    return Grant(request.api(f"DIRECT.GET.{request.stored_name(channel.PODS, names)}.>"), (_inbox("govern"),))


def _load(names: Names) -> Grant:
    requests = request.reading(names, (channel.TELEMETRY, channel.NODES, channel.PODS))
    return Grant((*_telemetry(names), *requests), (_inbox("load"),))


def _dashboard(names: Names) -> Grant:
    requests = [f"CONSUMER.CREATE.{request.stored_name(store, names)}.*" for store in request.LEASED]
    free = [request.stored_name(store, names) for store in (*_free(), request.CHECKPOINTS)]
    requests += [f"CONSUMER.CREATE.{kept}" for kept in free]
    return Grant(
        (*_looking(names), request.NEXT, request.DELETE, *request.api(*requests)),
        (_inbox("dashboard"), names.of(">"), "$KV.>"),
    )


def _reader(names: Names) -> Grant:
    free = [request.stored_name(store, names) for store in _free()]
    leased = [request.stored_name(store, names) for store in request.LEASED]
    nameless = [*free, request.stored_name(request.CHECKPOINTS, names)]
    # Clients give consumers names and filters. On the streams of leases only the names of slots lead anywhere.
    named = (*(f"{kept}.>" for kept in free), *(f"{kept}.{rest}" for kept in leased for rest in ("*", "*.>")))
    requests = request.api(*(f"CONSUMER.CREATE.{each}" for each in (*nameless, *named)))
    return Grant((*_tools(names), *requests, request.DELETE), _hearing(names))


def _tools(names: Names) -> tuple[str, ...]:
    return (*_looking(names), request.NEXT, "$JS.FC.>", "$JS.ACK.>")


def _hearing(names: Names) -> tuple[str, ...]:
    return (_inbox(READER), f"{INBOX}.>", names.of(">"), "$KV.>")


def _free() -> list[Store]:
    return [store for store in channel.stores() if store not in request.LEASED]


def _looking(names: Names) -> tuple[str, ...]:
    """Return the requests by which everything is seen, without a consumer."""
    requests = request.api(
        "INFO",
        *("STREAM.INFO.*", "STREAM.NAMES", "STREAM.LIST", "STREAM.MSG.GET.*", "DIRECT.GET.>"),
        *("CONSUMER.INFO.*.*", "CONSUMER.NAMES.*", "CONSUMER.LIST.*"),
    )
    return (*requests, "$SRV.PING", "$SRV.PING.>", "$SRV.INFO.>", "$SRV.STATS.>", names.of(FLOW))


def _local(names: Names) -> Grant:
    named = [f"CONSUMER.CREATE.{request.stored_name(store, names)}.>" for store in _free()]
    requests = request.api("CONSUMER.CREATE.*", *named, "CONSUMER.CREATE.*.*.>")
    return Grant((*_telemetry(names), *_tools(names), *requests), _hearing(names))


def _service(grant: Callable[[Names], Grant]) -> Callable[[Names], Grant]:
    """Return what a service may do that also answers requests for its ledger."""

    def granted(names: Names) -> Grant:
        own = grant(names)
        return own._replace(publish=(*own.publish, names.of(FLOW, "*")), subscribe=(*own.subscribe, names.of(FLOW)))

    return granted


def _admin(_: Names) -> Grant:
    return Grant((">",), (_inbox(ADMIN), ">"))


ROLES: tuple[Role, ...] = (
    Role("process", "processors: fold telemetry, publish estimates, create streams and buckets", _service(_process)),
    Role("cache", "cache sink: writes the scheduler cache", _service(_cache), apart=True),
    Role("history", "history sink: reads the streams, publishes past prices of nodes", _service(_history), apart=True),
    Role("metrics", "metrics sink: reads estimates", _service(_estimates_reader("metrics")), apart=True),
    Role("extender", "extender: writes reservations, decisions and accounts", _service(_extender), apart=True),
    Role("kubernetes", "Kubernetes sink: reads estimates", _service(_estimates_reader("kubernetes")), apart=True),
    Role("dashboard", "dashboard: reads everything and writes nothing", _service(_dashboard), apart=True),
    Role("watch", "cluster watch: publishes facts of nodes and pods", _service(_watch), apart=True),
    Role("govern", "governor of a node: reads facts of pods by UID", _govern, apart=True),
    Role("load", "simulated nodes: telemetry of any node", _service(_load), apart=True),
    Role(READER, "people and programs that read everything and write nothing", _reader, apart=True, tools=True),
    Role(ADMIN, "everything within the account: doctor, backup, repairs", _admin),
    Role(REGION, "leaf server of a region: what agents measure on any node, nothing else", _region, within_nodes=True),
)

# What `spazio up` gives to other programs of its own user: to read everything, and to publish what `spazio load` does.
LOCAL_ROLE = Role(LOCAL, "other programs on the machine of `spazio up`", _local, apart=True, tools=True, unbound=True)
