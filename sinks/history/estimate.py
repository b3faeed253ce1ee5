"""Availability and models as rows: what is said of each workload class is a list in the row of its message."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from schemas.estimate import Availability, Model
from schemas.message import Part
from schemas.section import FEATURES
from sinks.history import column
from sinks.history.column import Schema

_ROOM = pl.Struct(
    {
        "class": pl.String,
        "available": pl.Float64,
        "lower": pl.Float64,
        "binding": pl.String,
        "pods": pl.Int64,
        "cpu": pl.Float64,
        "memory": pl.Float64,
    }
)
_SUM = pl.Struct({"class": pl.String, "pods": pl.Float64, "cpu": pl.Float64, "memory": pl.Float64})

AVAILABILITY: Schema = {
    "node": pl.String,
    "at_us": pl.Int64,
    "seq": pl.Int64,
    **dict.fromkeys(("available", "lower", "upper", "signal", "cost", "capacity"), pl.Float64),
    "pods": pl.Int64,
    "binding": pl.String,
    "mode": pl.String,
    "churn": pl.Boolean,
    **dict.fromkeys(("prior", "explained", "gap"), pl.Float64),
    "since_us": pl.Int64,
    **dict.fromkeys((f"usage_{feature}" for feature in FEATURES), pl.Float64),
    "free_cpu": pl.Float64,
    "free_memory": pl.Float64,
    "classes": pl.List(_ROOM),
}
MODEL: Schema = {
    "scope": pl.String,
    "node": pl.String,
    "partition": pl.Int64,
    "at_us": pl.Int64,
    "features": pl.List(pl.String),
    "moment": pl.List(pl.Float64),
    "nodes": pl.Int64,
    "pods": pl.Float64,
    "cost": pl.List(pl.Float64),
    "classes": pl.List(_SUM),
}


def availabilities(messages: Sequence[Availability]) -> pl.DataFrame:
    """Return one row per message."""
    spread: dict[str, list[Any]] = {
        f"usage_{feature}": [message.usage.get(feature) for message in messages] for feature in FEATURES
    }
    for resource in ("cpu", "memory"):
        spread[f"free_{resource}"] = [(message.free or {}).get(resource) for message in messages]
    return column.frame(messages, AVAILABILITY, classes=[_listed(message.classes) for message in messages], **spread)


def models(messages: Sequence[Model]) -> pl.DataFrame:
    """Return one row per message."""
    return column.frame(messages, MODEL, classes=[_listed(message.classes) for message in messages])


def _listed(classes: Mapping[str, Part] | None) -> list[dict[str, Any]] | None:
    """Return classes as structs that name themselves; None stays: the message says nothing of classes."""
    return None if classes is None else [{"class": name, **dict(part)} for name, part in classes.items()]
