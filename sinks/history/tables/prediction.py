"""Rows of predictions, reject signals and forecasts; values by group and model are a list in the row."""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import polars as pl

from schemas.messages.prediction import (
    Accuracy,
    Forecast,
    ForecastAccuracy,
    Prediction,
    Reject,
    Resources,
    Subspace,
)
from sinks.history import column
from sinks.history.column import Schema

_AMOUNT = {"cpu": pl.Float64, "memory": pl.Float64}
_BOTH = ("cpu", "memory")
_SCORED = ("violations", "severity", "savings", "settled")
_FORECAST_SCORED = ("violations", "severity", "overprovision", "settled")
_PAIRS = ("peak", "capacity", "requested", "unpredicted", "reclaimable", "batch")

PREDICTION: Schema = {
    "node": pl.String,
    "at_us": pl.Int64,
    "horizon_seconds": pl.Float64,
    "model": pl.String,
    "violation": pl.Float64,
    "assumed": pl.List(pl.String),
    **{f"{pair}_{resource}": pl.Float64 for pair in _PAIRS for resource in _BOTH},
    "peaks": pl.List(pl.Struct({"group": pl.String, "model": pl.String, "chosen": pl.Boolean, **_AMOUNT})),
    "formula": pl.String,
    "mid": pl.List(pl.Struct({"formula": pl.String, "chosen": pl.Boolean, **_AMOUNT})),
    "accuracy": pl.List(pl.Struct({"model": pl.String, **dict.fromkeys(_SCORED, pl.Float64)})),
    "windows": pl.Int64,
    "reason": pl.String,
}
REJECT: Schema = {
    "node": pl.String,
    "at_us": pl.Int64,
    "seq": pl.Int64,
    "reject": pl.Boolean,
    "score": pl.Float64,
    "threshold": pl.Float64,
    "rank": pl.Int64,
    "spikes": pl.List(pl.Int64),
    "weights": pl.List(pl.Float64),
    "since_us": pl.Int64,
    "subspace": pl.String,
}
SUBSPACE: Schema = {
    "scope": pl.String,
    "partition": pl.Int64,
    "at_us": pl.Int64,
    "metrics": pl.List(pl.String),
    "sigma": pl.List(pl.Float64),
    "basis": pl.List(pl.Float64),
    "nodes": pl.Int64,
}
FORECAST: Schema = {
    "namespace": pl.String,
    "kind": pl.String,
    "workload": pl.String,
    "at_us": pl.Int64,
    "pods": pl.Int64,
    "ready": pl.Int64,
    **dict.fromkeys(("initialization_seconds", "horizon_seconds"), pl.Float64),
    "observations": pl.Int64,
    **{f"{pair}_{resource}": pl.Float64 for pair in ("requested", "current", "forecast") for resource in _BOTH},
    "model": pl.String,
    "forecasts": pl.List(pl.Struct({"model": pl.String, "chosen": pl.Boolean, **_AMOUNT})),
    "target": pl.Float64,
    "desired": pl.Int64,
    "raises": pl.Boolean,
    "accuracy": pl.List(pl.Struct({"model": pl.String, **dict.fromkeys(_FORECAST_SCORED, pl.Float64)})),
}


def predictions(messages: Sequence[Prediction]) -> pl.DataFrame:
    """Return one row per message."""
    return column.frame(
        messages,
        PREDICTION,
        **_spread(messages, _PAIRS),
        peaks=[
            [
                (group, model, model == message.model, amount.cpu, amount.memory)
                for group, models in message.peaks.items()
                for model, amount in models.items()
            ]
            for message in messages
        ],
        mid=[_listed(message.mid, message.formula) for message in messages],
        accuracy=[_accuracies(message.accuracy, _SCORED) for message in messages],
    )


def subspaces(messages: Sequence[Subspace]) -> pl.DataFrame:
    """Return one row per message."""
    return column.frame(messages, SUBSPACE)


def rejects(messages: Sequence[Reject]) -> pl.DataFrame:
    """Return one row per message."""
    return column.frame(messages, REJECT)


def forecasts(messages: Sequence[Forecast]) -> pl.DataFrame:
    """Return one row per message."""
    return column.frame(
        messages,
        FORECAST,
        **_spread(messages, ("requested", "current", "forecast")),
        forecasts=[_listed(message.forecasts, message.model) for message in messages],
        accuracy=[_accuracies(message.accuracy, _FORECAST_SCORED) for message in messages],
    )


def _spread(messages: Sequence[Any], pairs: Sequence[str]) -> dict[str, list[float]]:
    return {
        f"{pair}_{resource}": [getattr(getattr(message, pair), resource) for message in messages]
        for pair in pairs
        for resource in _BOTH
    }


def _listed(amounts: Mapping[Any, Resources], chosen: str) -> list[tuple[Any, ...]]:
    return [(name, name == chosen, amount.cpu, amount.memory) for name, amount in amounts.items()]


def _accuracies(
    accuracy: Mapping[str, Accuracy] | Mapping[str, ForecastAccuracy] | None, fields: Sequence[str]
) -> list[tuple[Any, ...]] | None:
    scores = attrgetter(*fields)
    return None if accuracy is None else [(name, *scores(each)) for name, each in accuracy.items()]
