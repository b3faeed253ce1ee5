"""The tables of the history: their messages, and the conversion of messages to columns."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from schemas import channel, codec
from schemas.messages.base import Message
from schemas.subject import kind_of
from sinks.history.column import Schema
from sinks.history.tables import decision, estimate, facts, pod, prediction, sample

_BY_NODE = channel.kinds_by_node()

# What is kept of a message until it is written: the message, or its fields with the numbers packed.
Numbered = sample.Packed | pod.Packed
Kept = Message | Numbered


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        name: Name of its folder and of its view.
        kind: Kind of message in the subject.
        schema: Columns of its files.
        frame: Turns what is kept of messages into a frame of that schema.
        rows: Number of rows of a message, of what is kept of it.
        keep: Returns what of a message is kept until it is written, or raises `Refused`; None: all of it.
        numbered: Each message is a node's block of a second, with `boot` and `seq`.
        identity: Key that only copies of one message share; None: `seq` is the key, or there are no copies.
    """

    name: str
    kind: str
    schema: Schema
    frame: Callable[[Sequence[Any]], pl.DataFrame]
    rows: Callable[[Any], int] = lambda _: 1
    keep: Callable[[Any], Kept] | None = None
    numbered: bool = False
    identity: Callable[[Any], Hashable] | None = None

    @property
    def message(self) -> type[Message]:
        """What it holds."""
        return codec.MESSAGES[self.kind]

    @property
    def by_node(self) -> bool:
        """The last token of the subject is the node of the message."""
        return self.kind in _BY_NODE

    @property
    def columns(self) -> Schema:
        """Columns of its files: those of the schema, and each message's sequence in its stream."""
        return {**self.schema, "sequence": pl.Int64}


TABLES: tuple[Table, ...] = (
    Table("samples", "samples", sample.SAMPLE, sample.raw_rows, sample.rows, sample.raw, numbered=True),
    Table("smoothed", "smoothed", sample.SMOOTHED, sample.smoothed_rows, sample.rows, sample.smoothed, numbered=True),
    Table("containers", "containers", pod.CONTAINER, pod.containers, identity=pod.event_identity),
    Table("pods", "pods", pod.POD, pod.pods, pod.rows, pod.packed, numbered=True),
    Table("availability", "availability", estimate.AVAILABILITY, estimate.availabilities),
    Table("models", "model", estimate.MODEL, estimate.models),
    Table("predictions", "prediction", prediction.PREDICTION, prediction.predictions),
    Table("rejects", "reject", prediction.REJECT, prediction.rejects),
    Table("subspaces", "subspace", prediction.SUBSPACE, prediction.subspaces),
    Table("forecasts", "forecast", prediction.FORECAST, prediction.forecasts),
    Table("decisions", "decision", decision.DECISION, decision.decisions, identity=decision.identity),
    Table("trust", "trust", decision.TRUST, decision.trusts, identity=decision.trust_identity),
    Table("nodes", "nodefacts", facts.NODE, facts.nodes, identity=facts.node_identity),
    Table("podfacts", "podfacts", facts.POD, facts.pods, identity=facts.pod_identity),
)
_BY_KIND = {table.kind: table for table in TABLES}
KINDS = frozenset(_BY_KIND)


def of_subject(subject: str) -> Table | None:
    """Return the table for messages with this subject; None: there is none.

    >>> of_subject("spazio.part.3.samples.n1").name, of_subject("spazio.model").name, of_subject("spazio.cursor.3")
    ('samples', 'models', None)
    """
    return _BY_KIND.get(kind_of(subject))


def decode(subject: str, payload: bytes) -> Kept | None:
    """Read a message that is stored under a subject, and return what is kept of it; None: no table is for it.

    Raises:
        schemas.codec.Refused: The payload is not what its subject says, or has a value out of its metric's range.
    """
    table = of_subject(subject)
    if table is None:
        return None
    message = (
        codec.decode_from(table.message, payload, subject) if table.by_node else codec.decode(table.message, payload)
    )
    return message if table.keep is None else table.keep(message)
