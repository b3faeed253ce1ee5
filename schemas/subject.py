"""Names on the bus: subjects, streams and buckets, and how a node name becomes one subject token.

NATS splits subjects at dots, while a Kubernetes node name may hold dots; so a dot is written `_` and every other
byte outside `[A-Za-z0-9-]` as `=XX`. The code reverses, also for a machine called `my_host`.
"""

import base64
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TypeVar

_PLAIN = re.compile(r"[A-Za-z0-9-]")
_ESCAPE = re.compile(rb"=([0-9A-F]{2})")
_TOKEN = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+")
_SUBJECT = re.compile(r"[!-)+,\-/-=?-~]+(?:\.[!-)+,\-/-=?-~]+)*")
_NAME = re.compile(r"[^\s\x00-\x1f\x7f]{1,253}")

PARTITIONS = 8
PARTITIONS_MAX = 256

# The server allows 4,096 bytes (`max_control_line`) for the whole line `HPUB <subject> <reply> <sizes>`, and it ends
# the connection of a client that exceeds it. The 512 bytes kept free hold a reply subject, the sizes, and what a leaf
# node adds. The longest node name, 253 characters of four bytes, makes a token of 3,036 bytes and stays possible.
MAXIMUM_SUBJECT_BYTES = 4096 - 512

# The same names come every second. Also strangers' names come here, before a message is refused. So that an entry takes
# a few hundred bytes, results of long names are not kept; they are only slower, as are names beyond the limit.
_NAMES_REMEMBERED = 1 << 16
_ASCII_REMEMBERED, _OTHERS_REMEMBERED = 80, 20  # characters; others than ASCII take up to four bytes, and 12 encoded

Answer = TypeVar("Answer")


def _remember(function: Callable[[str], Answer]) -> Callable[[str], Answer]:
    """Keep the results of short names."""
    cached = lru_cache(_NAMES_REMEMBERED)(function)

    @wraps(function)
    def remembering(name: str) -> Answer:
        short = len(name) <= (_ASCII_REMEMBERED if name.isascii() else _OTHERS_REMEMBERED)
        return cached(name) if short else function(name)

    return remembering


@_remember
def token(name: str) -> str:
    """Encode a name as one subject token.

    >>> token("ip-10-0-0-7.eu-west-1.compute.internal"), token("my_host")
    ('ip-10-0-0-7_eu-west-1_compute_internal', 'my=5Fhost')
    """
    return "".join(
        char if _PLAIN.match(char) else "_" if char == "." else "".join(f"={byte:02X}" for byte in char.encode())
        for char in name
    )


def name(encoded: str) -> str:
    """Decode a subject token; the inverse of `token`.

    Raises:
        ValueError: `encoded` is not a token that `token` can make.
    """
    if not _TOKEN.fullmatch(encoded):
        raise ValueError(f"subject token {encoded!r} is not an encoded name")
    raw = encoded.replace("_", ".").encode()
    decoded = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), raw).decode()
    if token(decoded) != encoded:
        raise ValueError(f"subject token {encoded!r} is not the encoding of {decoded!r}")
    return decoded


@_remember
def is_node_name(value: str) -> bool:
    """Return whether a node may have this name: 1 to 253 characters, no white space, no control characters."""
    return _NAME.fullmatch(value) is not None


def is_subject(text: str) -> bool:
    """Return whether a message can be published on it: printable ASCII without an empty token or a wildcard.

    >>> [is_subject(text) for text in ("spazio.samples.n1", "$KV.NODES.a=2Fb", "a..b", "a.*", "a b", "é")]
    [True, True, False, False, False, False]
    """
    return _SUBJECT.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Names:
    """Every subject, stream and bucket under one prefix; a replay uses a prefix of its own."""

    prefix: str = "spazio"

    def of(self, kind: str, *tokens: str) -> str:
        """Return the subject `<prefix>.<kind>.<tokens>`; tokens are already encoded, or wildcards."""
        return ".".join((self.prefix, kind, *tokens))

    def node(self, kind: str, node: str) -> str:
        """Return the subject of one node's messages of a kind."""
        return self.of(kind, token(node))

    def part(self, partition: int | str, kind: str = "*", node: str = "*") -> str:
        """Return the subject under which the telemetry stream stores a partition's messages."""
        return self.of("part", str(partition), kind, node)

    def partition(self, number: int) -> str:
        """Return the filter for all that the telemetry stream stores of a partition."""
        return self.of("part", str(number), ">")

    def dead(self, subject: str) -> str:
        """Return the dead-letter subject of a message that was received on `subject`."""
        return self.of("dead", subject)

    @property
    def model(self) -> str:
        """Subject of the global model."""
        return self.of("model")

    @property
    def subspace(self) -> str:
        """Subject of the directions of all nodes."""
        return self.of("subspace")

    def store(self, suffix: str) -> str:
        """Return the stream, bucket or object store of this name under the prefix."""
        return f"{self.prefix.upper()}_{suffix}"

    @property
    def telemetry(self) -> str:
        """Stream of all measurements, and of the model and directions of all nodes."""
        return self.store("TELEMETRY")

    @property
    def estimates(self) -> str:
        """Stream of everything that processors publish, with their cursors."""
        return self.store("ESTIMATES")

    @property
    def events(self) -> str:
        """Stream of placement decisions."""
        return self.store("EVENTS")

    @property
    def dead_letters(self) -> str:
        """Stream of dead letters."""
        return self.store("DEAD")

    @property
    def availability_bucket(self) -> str:
        """Bucket of the newest `Availability` of each node: the scheduler cache."""
        return self.store("AVAILABILITY")

    @property
    def nodes_bucket(self) -> str:
        """Bucket of the newest `NodeFacts` of each node."""
        return self.store("NODES")

    @property
    def pods_bucket(self) -> str:
        """Bucket of the newest `PodFacts` of each pod that the API server has, by UID."""
        return self.store("PODS")

    @property
    def reservations_bucket(self) -> str:
        """Bucket of the `Reservations` on each node."""
        return self.store("RESERVATIONS")

    @property
    def checkpoints(self) -> str:
        """Object store of processor state."""
        return self.store("CHECKPOINTS")


def description(bucket: str, name: str) -> str:
    """Return the subject of the description of an object in an object store.

    >>> description("CHECKPOINTS", "watch.0")
    '$O.CHECKPOINTS.M.d2F0Y2guMA=='
    """
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


@lru_cache(_NAMES_REMEMBERED)
def partition(encoded: str, partitions: int) -> int:
    """Return the partition in which the server stores telemetry of an encoded node: FNV-1a of 32 bits, modulo.

    >>> partition("a", 7), partition("node-1", 7), partition("n2", 7)
    (5, 6, 4)
    """
    value = 0x811C9DC5
    for byte in encoded.encode(errors="surrogateescape"):
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value % partitions


def kind_and_node(subject: str) -> tuple[str, str]:
    """Return the kind and the encoded node of a telemetry subject, as published or as stored by partition.

    >>> kind_and_node("spazio.part.7.samples.n1"), kind_and_node("spazio.samples.n1")
    (('samples', 'n1'), ('samples', 'n1'))
    """
    kind, node = subject.rsplit(".", 2)[-2:]
    return kind, node


def kind_of(subject: str) -> str:
    """Return the kind in any subject of the contract, as published or as stored by partition.

    >>> kind_of("spazio.part.7.samples.n1"), kind_of("spazio.forecast.shop.web"), kind_of("spazio.model")
    ('samples', 'forecast', 'model')
    """
    tokens = subject.split(".", 4)
    return tokens[3] if tokens[1] == "part" and len(tokens) > 3 else tokens[1]


def matches(pattern: str, subject: str) -> bool:
    """Tell whether a subject falls under a pattern with wildcards.

    >>> matches("spazio.*.n1", "spazio.pods.n1"), matches("spazio.>", "spazio"), matches("a.>", "a.b.c")
    (True, False, True)
    """
    wanted, given = pattern.split("."), subject.split(".")
    for index, each in enumerate(wanted):
        if each == ">":
            return len(given) > index
        if index >= len(given) or each not in ("*", given[index]):
            return False
    return len(wanted) == len(given)
