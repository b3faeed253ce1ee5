"""Histograms for a checkpoint: only the buckets that hold something, to the last bit.

Usage of one node or pod falls into 10 to 30 of some 200 buckets. The rows' buckets and weights stand one behind the
other, `counts` says how many are whose.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from processors.prediction.histogram import histogram
from processors.prediction.histogram.bucket import Options

_ROWS = {"total": "f8", "reference": "f8", "newest": "f8", "low": "u2", "high": "u2", "counts": "u2"}
_ENTRIES = {"buckets": "u2", "weights": "f8"}
_OPTIONS = {"options": "f8"}


def dump(state: histogram.State, options: Options) -> dict[str, NDArray[Any]]:
    """Return the arrays that `load` makes the same state of."""
    filled = state.weights != 0.0
    rows, buckets = np.nonzero(filled)
    arrays = {
        "total": state.total,
        "reference": state.reference,
        "newest": state.newest,
        "low": state.low,
        "high": state.high,
        "counts": filled.sum(axis=1),
        "buckets": buckets,
        "weights": state.weights[rows, buckets],
        "options": np.array(_named(options)),
    }
    return {name: arrays[name].astype(kind) for name, kind in (_ROWS | _ENTRIES | _OPTIONS).items()}


def load(arrays: Mapping[str, NDArray[Any]], options: Options) -> histogram.State:
    """Return the histograms that were dumped.

    Raises:
        ValueError: An array is missing or of another type or length, a bucket or a weight cannot be, or the buckets
            were others; says which, and in which row.
    """
    _check_form(arrays)
    _check_options(arrays["options"], options)
    counts = arrays["counts"].astype(np.intp)
    rows = np.repeat(np.arange(len(counts)), counts)
    buckets = arrays["buckets"].astype(np.intp)
    _check_values(arrays, rows, buckets, options)
    state = histogram.init(len(counts), options)
    state.weights[rows, buckets] = arrays["weights"]
    return state._replace(
        total=arrays["total"].copy(),
        low=arrays["low"].astype(np.intp),
        high=arrays["high"].astype(np.intp),
        reference=arrays["reference"].copy(),
        newest=arrays["newest"].copy(),
    )


def _named(options: Options) -> tuple[float, ...]:
    return float(options.count), options.first, options.ratio


def _check_form(arrays: Mapping[str, NDArray[Any]]) -> None:
    for name, kind in (_ROWS | _ENTRIES | _OPTIONS).items():
        values = arrays.get(name)
        if values is None or values.ndim != 1 or values.dtype != np.dtype(kind):
            is_now = "there is none" if values is None else f"it is {values.dtype} {values.shape}"
            raise ValueError(f"histograms need an array {name} of type {np.dtype(kind)} with one axis, {is_now}")
    lengths = {name: len(arrays[name]) for name in _ROWS}
    if len(set(lengths.values())) != 1:
        raise ValueError(f"histograms need arrays of one length, not {lengths}")
    entries = int(arrays["counts"].sum(dtype=np.int64))
    for name in _ENTRIES:
        if len(arrays[name]) != entries:
            raise ValueError(f"counts of histograms add up to {entries}, but {name} has {len(arrays[name])}")


def _check_options(stored: NDArray[Any], options: Options) -> None:
    if tuple(stored.tolist()) != _named(options):
        raise ValueError(
            f"histograms have (count, first, ratio) {stored.tolist()}, buckets now {list(_named(options))}"
        )


def _check_values(
    arrays: Mapping[str, NDArray[Any]], rows: NDArray[np.intp], buckets: NDArray[np.intp], options: Options
) -> None:
    descends = np.zeros(len(rows), dtype=np.bool_)
    descends[1:] = (rows[1:] == rows[:-1]) & (buckets[1:] <= buckets[:-1])
    each = np.arange(len(arrays["counts"]))
    faults = (
        ("buckets", rows, (buckets >= options.count) | descends),
        ("weights", rows, _unweighable(arrays["weights"]) | (arrays["weights"] == 0.0)),
        ("total", each, _unweighable(arrays["total"])),
        ("newest", each, _unweighable(arrays["newest"])),
        ("low", each, arrays["low"] >= options.count),
        ("high", each, arrays["high"] >= options.count),
        ("reference", each, np.isinf(arrays["reference"])),
    )
    for name, row, wrong in faults:
        if wrong.any():
            entry = int(np.argmax(wrong))
            raise ValueError(f"histogram of row {row[entry]} has {arrays[name][entry]} in {name}, at {entry}")


def _unweighable(weights: NDArray[Any]) -> NDArray[np.bool_]:
    return np.logical_not((weights >= 0.0) & (weights < np.inf))
