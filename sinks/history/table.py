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


@dataclass(frozen=True, slots=True)
class Table:
    """One table.

    Attributes:
        name: Name of its folder and of its view.
        kind: Kind of message in the subject.
        schema: Columns of its files.
        frame: Turns messages into a frame of that schema.
        rows: Number of rows of a message.
        identity: Key that only copies of one message share; None: a block's seq is the key, or there are no copies.
        check: Raises `Refused` for a message of the schema that is refused all the same; None: there is none.
    """

    name: str
    kind: str
    schema: Schema
    frame: Callable[[Sequence[Any]], pl.DataFrame]
    rows: Callable[[Any], int] = lambda _: 1
    identity: Callable[[Any], Hashable] | None = None
    check: Callable[[Any], None] | None = None

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
    Table("samples", "samples", sample.SAMPLE, sample.samples, sample.rows, check=sample.check),
    Table("smoothed", "smoothed", sample.SMOOTHED, sample.smoothed, sample.rows),
    Table("containers", "containers", pod.CONTAINER, pod.containers, identity=pod.event_identity),
    Table("pods", "pods", pod.POD, pod.pods, pod.rows),
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


def decode(subject: str, payload: bytes) -> Message | None:
    """Read a message that is stored under a subject; None: no table is for it.

    Raises:
        schemas.codec.Refused: The payload is not what its subject says, or has a value out of its metric's range.
    """
    table = of_subject(subject)
    if table is None:
        return None
    message = (
        codec.decode_from(table.message, payload, subject) if table.by_node else codec.decode(table.message, payload)
    )
    if table.check is not None:
        table.check(message)
    return message
