"""Decisions as rows: one for each attempt to place a pod; ranked and refused nodes are lists in the row."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from schemas.messages.placement import Decision, Ranked
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
