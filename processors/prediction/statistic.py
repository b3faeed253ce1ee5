"""Statistics of the usage of each row, a group of a node or a pod: decayed histograms, mean and deviation.

Weights of histograms are most of what is kept of a node. They are single-precision numbers: a sample is at least a
5,000th of all weight at the usual half-lives and intervals, and these round to a 16-millionth.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction import moments as mean_and_deviation
from processors.prediction.histogram import bucket, histogram, sparse
from processors.rows import table
from schemas.sections.prediction import Predict

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_CPU, _MEMORY = bucket.KOORDINATOR_CPU, bucket.KOORDINATOR_MEMORY
_WEIGHT = np.float32
_MOST_WEIGHT = 1e37  # weights that were imported may be greater than that type can hold
_SET_BACK_SECONDS = 900.0  # a sample that is later than that is of a clock that was set back


class State(NamedTuple):
    """Statistics, one a row: histograms of cores and of bytes, and the moments of both."""

    cpu: histogram.State
    memory: histogram.State
    moments: mean_and_deviation.State


class Past(NamedTuple):
    """What is read of some rows: percentiles (rows, resources) and moments.

    A percentile is NaN where nothing was seen, and infinite where it may lie in the last bucket, which has no end.
    """

    percentile: Array
    moments: mean_and_deviation.State


def init(rows: int) -> State:
    """Return the statistics of rows never seen."""
    cpu, memory = (histogram.init(rows, options, _WEIGHT) for options in (_CPU, _MEMORY))
    return State(cpu, memory, mean_and_deviation.init(rows, 2))


def of(cpu: histogram.State, memory: histogram.State, moments: mean_and_deviation.State) -> State:
    """Return statistics with these histograms, whatever the type of their weights."""
    return State(_narrow(cpu), _narrow(memory), moments)


def add(state: State, rows: Rows, usage: Array, at_us: NDArray[np.int64], settings: Predict) -> None:
    """Take in one sample of some rows, in place.

    A clock that once was far ahead would make every later sample weigh nothing. So where a clock was set back, what is
    remembered counts as if its newest sample were of now.

    Args:
        state: Of all rows.
        rows: (samples,) which row each is of; each row once.
        usage: (samples, resources) cores and bytes; NaN: no sample.
        at_us: (samples,) when the window ended.
        settings: Half-lives.
    """
    if not rows.size:
        return
    lives = half_lives(settings)
    old = table.take(state, rows)
    seconds = at_us / 1e6
    back = np.flatnonzero(old.moments.weight.any(axis=1) & (old.moments.at_us - at_us > _SET_BACK_SECONDS * 1e6))
    if len(back):
        table.put(old, back, _set_back(table.take(old, back), at_us[back], lives))
    cpu, memory = (
        histogram.add(part, usage[:, column], 1.0, seconds, options=options, half_life_seconds=life)
        for column, (part, options, life) in enumerate(zip(old[:2], (_CPU, _MEMORY), lives, strict=True))
    )
    moments = mean_and_deviation.update(old.moments, usage, at_us, half_life_seconds=np.array(lives))
    table.put(state, rows, State(cpu, memory, moments))


def half_lives(settings: Predict) -> tuple[float, float]:
    """Return the half-lives of cores and of bytes, in seconds."""
    return settings.half_life_cpu_seconds, settings.half_life_memory_seconds


def turn(state: State, old: tuple[float, float], new: tuple[float, float]) -> State:
    """Return the statistics with other half-lives: weights are kept at the row's newest sample, and fade from there.

    The moments are kept as of that sample anyway; weights of a histogram are relative to its half-life.
    """
    parts = [
        _weighed(part, part.reference + before * np.log2(np.where(part.newest > 0, part.newest, 1.0)), options, after)
        for part, options, before, after in zip(state[:2], (_CPU, _MEMORY), old, new, strict=True)
    ]
    return State(parts[0], parts[1], state.moments)


def _set_back(state: State, at_us: NDArray[np.int64], lives: tuple[float, float]) -> State:
    """Return the statistics as if the newest sample of each row were of that time (rows,)."""
    cpu, memory = (
        _weighed(part, np.where(part.total > 0, at_us / 1e6, np.nan), options, life)
        for part, options, life in zip(state[:2], (_CPU, _MEMORY), lives, strict=True)
    )
    moments = state.moments
    first_us = moments.first_us - moments.at_us + at_us
    return State(cpu, memory, moments._replace(first_us=first_us, at_us=at_us))


def _weighed(part: histogram.State, newest: Array, options: bucket.Options, life: float) -> histogram.State:
    """Return the histograms with their newest sample at a time (rows,), its weight 1; NaN: there was none.

    The newest sample of an imported histogram is unknown: it is taken for one of the reference.
    """
    own = np.where(part.newest > 0, part.newest, 1.0)
    fresh = histogram.init(len(newest), options)
    fresh = histogram.add(fresh, np.zeros(len(newest)), 0.0, newest, options=options, half_life_seconds=life)
    factor = fresh.newest / own
    return part._replace(
        weights=(part.weights * factor[:, np.newaxis]).astype(_WEIGHT),
        total=part.total * factor,
        reference=fresh.reference,
        newest=fresh.newest,
    )


def _narrow(part: histogram.State) -> histogram.State:
    """Return the histograms with weights of the type that is kept."""
    most = np.maximum(part.weights.max(axis=1, initial=0.0), part.total)
    factor = np.divide(_MOST_WEIGHT, most, out=np.ones_like(most), where=most > _MOST_WEIGHT)
    weights = (part.weights * factor[:, np.newaxis]).astype(_WEIGHT)
    return part._replace(weights=weights, total=part.total * factor)


def read(state: State, rows: NDArray[np.intp], settings: Predict) -> Past:
    """Return what is read of some rows; their histograms are not copied where nothing was seen."""
    columns = [
        _percentile(part, rows, fraction, options)
        for part, fraction, options in (
            (state.cpu, settings.percentile_cpu, _CPU),
            (state.memory, settings.percentile_memory, _MEMORY),
        )
    ]
    return Past(np.stack(columns, axis=1), table.take(state.moments, rows))


def _percentile(part: histogram.State, rows: NDArray[np.intp], fraction: float, options: bucket.Options) -> Array:
    values = np.full(len(rows), np.nan)
    seen = np.flatnonzero(part.total[rows])
    read = histogram.percentile(table.take(part, rows[seen]), [fraction], options=options)[:, 0]
    values[seen] = np.where(read >= options.starts[-1], np.inf, read)
    return values


def dump(state: State, prefix: str) -> dict[str, NDArray[Any]]:
    """Return everything as arrays; of the histograms only what holds something."""
    arrays = table.flatten(state.moments, f"{prefix}moments.")
    for name, part, options in (("cpu", state.cpu, _CPU), ("memory", state.memory, _MEMORY)):
        arrays |= {f"{prefix}{name}.{key}": values for key, values in sparse.dump(part, options).items()}
    return arrays


def load(arrays: Mapping[str, NDArray[Any]], prefix: str) -> State:
    """Take over what `dump` returned.

    Raises:
        ValueError: Something is missing or cannot be.
    """

    def part(name: str, options: bucket.Options) -> histogram.State:
        begin = f"{prefix}{name}."
        return sparse.load({key.removeprefix(begin): values for key, values in arrays.items()}, options)

    moments = table.restore(mean_and_deviation.init(0, 2), dict(arrays), f"{prefix}moments.")
    state = of(part("cpu", _CPU), part("memory", _MEMORY), moments)
    if len({len(column) for column in table.flatten(state).values()}) != 1:
        raise ValueError(f"state has statistics {prefix} of different lengths")
    return state
