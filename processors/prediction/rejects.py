"""PRONTO's reject signal of a partition's nodes, block by block, and when it is told."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.decode import Head
from processors.reject import signal
from processors.rows import table
from schemas import metric
from schemas.sections.prediction import Reject

Array = NDArray[np.float64]
Times = NDArray[np.int64]

# Shares of a whole, so that they compare; each more of them makes the others' spikes weigh less.
METRICS = ("cpu_util", "cpu_pressure", "memory_util", "memory_pressure", "io_pressure", "disk_util")
COLUMNS = [metric.NAMES.index(name) for name in METRICS]
_SLACK_SECONDS = 0.5  # blocks come a little early or late
_DIGITS = 6


class State(NamedTuple):
    """What is known of each node: directions and windows, what was told when, and since when."""

    signal: signal.State
    told_us: Times
    since_us: Times
    reject: NDArray[np.bool_]


def params(settings: Reject) -> signal.Params:
    """Return how the signal is made."""
    return signal.Params(theta=settings.threshold)


def init(nodes: int, own: signal.Params) -> State:
    """Return the state of nodes never seen."""
    zeros = np.zeros(nodes, dtype=np.int64)
    return State(signal.init(nodes, len(COLUMNS), params=own), zeros, zeros.copy(), np.zeros(nodes, dtype=np.bool_))


def update(
    state: State, rows: NDArray[np.intp], blocks: Array, at_us: Times, settings: Reject
) -> tuple[signal.Output, Times, NDArray[np.bool_]]:
    """Fold a block of some nodes, in place.

    Args:
        state: Of all nodes.
        rows: (blocks,) node of each block, each once.
        blocks: (blocks, samples, metrics) in the order of the metrics table.
        at_us: (blocks,) time of the last sample.
        settings: Threshold and times.

    Returns:
        What the signal says; since when it has rejected or not; which of them are to be told.
    """
    old = table.take(state, rows)
    after, said = signal.update(old.signal, blocks[:, :, COLUMNS], params=params(settings))
    scored = ~np.isnan(said.score)
    turned = scored & ((said.reject != old.reject) | (old.told_us == 0))
    waited = (at_us - old.told_us) / 1e6
    due = scored & (turned | (waited >= settings.report_seconds - _SLACK_SECONDS) | (waited < 0))
    since = np.where(turned, at_us, old.since_us)
    rejects = np.where(scored, said.reject, old.reject)
    table.put(state, rows, State(after, np.where(due, at_us, old.told_us), since, rejects))
    return said, since, due


def fields(
    rows: Iterable[int],
    heads: Sequence[Head],
    at_us: Times,
    said: signal.Output,
    since_us: Times,
    settings: Reject,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield, for some blocks, the index and the fields of the `Reject`."""
    used = np.arange(said.spikes.shape[1]) < said.rank[:, None]
    strength = np.where(used, said.strength, 0.0)
    total = strength.sum(axis=1, keepdims=True)
    weights = np.round(np.divide(strength, total, out=np.zeros_like(strength), where=total > 0), _DIGITS)
    for row in rows:
        rank, head = int(said.rank[row]), heads[row]
        yield (
            row,
            {
                "node": head.node,
                "at_us": int(at_us[row]),
                "seq": head.seq,
                "reject": bool(said.reject[row]),
                "score": float(np.round(said.score[row], _DIGITS)),
                "threshold": settings.threshold,
                "rank": rank,
                "spikes": said.spikes[row, :rank].tolist(),
                "weights": weights[row, :rank].tolist(),
                "since_us": int(since_us[row]),
            },
        )
