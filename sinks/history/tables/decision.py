"""Decisions as rows, with ranked and refused nodes as lists, and what became of promises, with namespaces as a list."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from schemas.messages.placement import Decision, Ranked, Trust
from sinks.history import column
from sinks.history.column import AMOUNTS, Schema

_RANKED = pl.Struct(
    {
        "node": pl.String,
        "score": pl.Float64,
        "scores": pl.List(pl.Struct({"strategy": pl.String, "score": pl.Float64})),
        "room": pl.Float64,
        "reserved": pl.Float64,
        "state": pl.String,
    }
)

DECISION: Schema = {
    "namespace": pl.String,
    "name": pl.String,
    "pod": pl.String,
    "at_us": pl.Int64,
    "outcome": pl.String,
    "node": pl.String,
    "mode": pl.String,
    "guaranteed": pl.Boolean,
    "note": pl.String,
    "workload": pl.String,
    "strategies": AMOUNTS,
    "nodes": pl.Int64,
    "feasible": pl.Int64,
    "refused": pl.Map(pl.String, pl.Int64),
    "ranked": pl.List(_RANKED),
    "refusals": pl.List(pl.Struct({"node": pl.String, "reason": pl.String, "needs": pl.List(pl.String)})),
    "seconds": pl.Float64,
    "bound": pl.String,
    "breaks": pl.List(pl.String),
}

_LEFT, _SPARE = ("measured", "requested"), ("nodes", "cores", "price")
_PROMISES = pl.Struct(
    {
        "namespace": pl.String,
        "settled": pl.Int64,
        "broken": pl.Int64,
        "loose": pl.Int64,
        "evidence": pl.Int64,
        "against": pl.Int64,
        "promoted": pl.Boolean,
    }
)
TRUST: Schema = {
    "replica": pl.String,
    "at_us": pl.Int64,
    "mode": pl.String,
    "risk": pl.Float64,
    "nodes": pl.Int64,
    "cores": pl.Float64,
    "price": pl.Float64,
    **{f"{left}_{what}": pl.Float64 for left in _LEFT for what in _SPARE},
    "promises": pl.List(_PROMISES),
}


def decisions(messages: Sequence[Decision]) -> pl.DataFrame:
    """Return one row per message."""
    ranked = [[_ranked(each) for each in message.ranked] for message in messages]
    refusals = [[(each.node, each.reason, each.needs) for each in message.refusals] for message in messages]
    return column.frame(messages, DECISION, ranked=ranked, refusals=refusals)


def _ranked(node: Ranked) -> tuple[Any, ...]:
    return node.node, node.score, [*node.scores.items()], node.room, node.reserved, node.state


def identity(message: Decision) -> tuple[object, ...]:
    """Return a key that only copies of one decision share."""
    return message.pod, message.at_us


def trusts(messages: Sequence[Trust]) -> pl.DataFrame:
    """Return one row per message."""
    spread: dict[str, list[Any]] = {
        f"{left}_{what}": [getattr(getattr(message, left), what) for message in messages]
        for left in _LEFT
        for what in _SPARE
    }
    promises = [
        [tuple(getattr(each, field.name) for field in _PROMISES.fields) for each in message.promises]
        for message in messages
    ]
    return column.frame(messages, TRUST, promises=promises, **spread)


def trust_identity(message: Trust) -> tuple[object, ...]:
    """Return a key that only copies of one message share."""
    return message.replica, message.at_us
