"""Rows of availability and model messages; workload classes are a list in the row of their message."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import polars as pl

from schemas.messages.base import MessagePart
from schemas.messages.estimate import CLASS_COLUMNS, Availability, Model
from schemas.sections.estimation import FEATURES
from sinks.history import column
from sinks.history.column import Schema

ROOM = pl.Struct(
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
    "limit_cpu": pl.Float64,
    "limit_memory": pl.Float64,
    "classes": pl.List(ROOM),
    "kinds": column.TEXTS,
    "mix": column.AMOUNTS,
    # `usage_cpu` under the name of what it is: CPUs in use and wanted. `cpu_used` is what `top` shows as cpu.
    "cpu_used": pl.Float64,
    "cpu_saturation": pl.Float64,
    "excess": pl.Float64,
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
    # Beside `classes`, and not in it: a list's struct has the same fields in all files of a folder.
    **dict.fromkeys(CLASS_COLUMNS, column.AMOUNTS),
    "repeats": pl.Float64,
    "transitions": pl.Float64,
    "costed": pl.Int64,
    "voting": pl.Int64,
    "voted": pl.Float64,
    "voiced": pl.Float64,
    "others": pl.Float64,
    "ratios": pl.Boolean,
}


def availabilities(messages: Sequence[Availability]) -> pl.DataFrame:
    """Return one row per message."""
    spread: dict[str, list[Any]] = {
        f"usage_{feature}": [message.usage.get(feature) for message in messages] for feature in FEATURES
    }
    for resource in ("cpu", "memory"):
        spread[f"free_{resource}"] = [(message.free or {}).get(resource) for message in messages]
        spread[f"limit_{resource}"] = [(message.limits or {}).get(resource) for message in messages]
    spread["cpu_saturation"] = spread["usage_cpu"]
    spread["kinds"] = [_field(message.classes, "kind") for message in messages]
    listed = [_listed(message.classes, ROOM) for message in messages]
    return column.frame(messages, AVAILABILITY, classes=listed, **spread)


def models(messages: Sequence[Model]) -> pl.DataFrame:
    """Return one row per message."""
    maps = {name: [_field(message.classes, field) for message in messages] for name, field in CLASS_COLUMNS.items()}
    return column.frame(messages, MODEL, classes=[_listed(message.classes, _SUM) for message in messages], **maps)


def _listed(classes: Mapping[str, MessagePart] | None, form: pl.Struct) -> list[tuple[Any, ...]] | None:
    """Return classes as the fields of structs, their names first; None stays: the message has no classes."""
    if classes is None:
        return None
    values = attrgetter(*(field.name for field in form.fields[1:]))
    return [(name, *values(part)) for name, part in classes.items()]


def _field(classes: Mapping[str, MessagePart] | None, field: str) -> dict[str, Any] | None:
    """Return one field of all classes by name; None: no class has it."""
    values = {name: value for name, part in (classes or {}).items() if (value := getattr(part, field)) is not None}
    return values or None
