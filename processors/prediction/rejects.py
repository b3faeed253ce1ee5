"""PRONTO's reject signal of a partition's nodes, block by block, and when it is published.

In the federated form the directions of all nodes take part: `Federation` merges those of the partition's nodes, and
takes over the merged directions of all partitions.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors import decode
from processors.decode import Block, Head
from processors.reject import federated, signal
from processors.reject.federated import Shared
from processors.rows import table
from schemas import metric
from schemas.messages.prediction import Subspace
from schemas.sections.prediction import Reject
from schemas.settings import Settings
from schemas.subject import Names

Array = NDArray[np.float64]
Times = NDArray[np.int64]

# Shares of a whole, so that they compare; each more of them makes the others' spikes weigh less.
METRICS = ("cpu_util", "cpu_pressure", "memory_util", "memory_pressure", "io_pressure", "disk_util")
COLUMNS = [metric.NAMES.index(name) for name in METRICS]
_SLACK_SECONDS = 0.5  # blocks come a little early or late
_DIGITS = 6
_ENERGY = "subspace.energy"


class State(NamedTuple):
    """What is known of each node: directions and windows, what was published when, and since when."""

    signal: signal.State
    published_us: Times
    since_us: Times
    reject: NDArray[np.bool_]


def params(settings: Reject) -> signal.Params:
    """Return how the signal is made."""
    return signal.Params(theta=settings.threshold, subspace=settings.subspace)


def init(nodes: int, own: signal.Params) -> State:
    """Return the state of nodes never seen."""
    zeros = np.zeros(nodes, dtype=np.int64)
    return State(signal.init(nodes, len(COLUMNS), params=own), zeros, zeros.copy(), np.zeros(nodes, dtype=np.bool_))


class Federation:
    """The directions of all nodes, as one partition uses and contributes to them if the settings ask for it.

    Attributes:
        subject: Subject of the directions of all nodes; empty: they are not used.
        partition_subject: Subject of the partition's own.
        shared: The directions in force; None: they are not known yet, or not used.
    """

    def __init__(self, settings: Settings, number: int) -> None:
        names = Names(settings.prefix)
        self._settings, self._number = settings.reject, number
        is_global = settings.reject.enabled and settings.reject.subspace == "global"
        self.subject = names.subspace if is_global else ""
        self.partition_subject = names.of("subspace", "partition", str(number))
        self.shared: Shared | None = None
        self._energy = math.nan

    def adopt(self, state: State, message: Subspace) -> None:
        """Take over the directions of all nodes, in place.

        Directions of other metrics, from a version that is being rolled out, are ignored.
        """
        if tuple(message.metrics) != METRICS:
            return
        own, self.shared = signal.adopt(state.signal, self.shared, message, params=params(self._settings))
        self._energy = federated.energy_of(message)
        state.signal.windows.filtered[:] = own.windows.filtered

    def due(self, before: int, now: int) -> int | None:
        """Return the event second of the merge that falls between two event seconds, if one does."""
        every = self._settings.merge_seconds
        if not self.subject or not before or before // every == now // every:
            return None
        return now // every * every

    def merged(self, state: State, rows: NDArray[np.intp], second: int) -> dict[str, Any]:
        """Return the merged directions of some nodes, at least one, as fields of the partition's `Subspace`."""
        directions = federated.bounded(table.take(state.signal.directions, rows), self._energy)
        return {
            "scope": "partition",
            "partition": self._number,
            "at_us": second * 1_000_000,
            "metrics": list(METRICS),
            "nodes": len(rows),
            **federated.numbers(federated.merged(directions)),
        }

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return the form as JSON types, absent where it is local, and the directions in force as arrays."""
        form = {} if self._settings.subspace == "local" else {"subspace": self._settings.subspace}
        if self.shared is None:
            return form, {}
        return form, table.flatten(self.shared, "subspace.") | {_ENERGY: np.array([self._energy])}

    def load(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]], state: State) -> None:
        """Take over what `dump` returned.

        If it is of the other form, the windows of all nodes are emptied in place: they hold projections on directions
        of that form.
        """
        self.shared, self._energy = None, math.nan
        if header.get("subspace", "local") != self._settings.subspace:
            state.signal.windows.filtered[:] = np.nan
        elif any(name.startswith("subspace.") for name in arrays):
            self.shared = Shared._make(arrays[f"subspace.{name}"] for name in Shared._fields)
            if _ENERGY in arrays:  # an older program did not bound it
                self._energy = float(arrays[_ENERGY][0])


def fold(
    state: State, blocks: Sequence[tuple[Block, int, int]], settings: Reject, shared: Shared | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Fold a block of some nodes, in place; yield message index and fields of each `Reject` that is to be published.

    Args:
        state: Of all nodes.
        blocks: Block, row of its node, each once, and time of its last sample.
        settings: Threshold and times.
        shared: Directions of all nodes; None: they are not known, or not used.
    """
    by_length: dict[int, list[tuple[Block, int, int]]] = {}
    for waiting in blocks:
        by_length.setdefault(waiting[0].message.samples, []).append(waiting)
    for same in by_length.values():
        same_blocks, slots, times = zip(*same, strict=True)
        rows, at_us = np.array(slots, dtype=np.intp), np.array(times)
        output, since, due = update(state, rows, decode.samples(same_blocks), at_us, settings, shared)
        heads = [block.message for block in same_blocks]
        for index, published in fields(np.flatnonzero(due).tolist(), heads, at_us, output, since, settings):
            yield same[index][0].message_index, published


def update(
    state: State,
    rows: NDArray[np.intp],
    blocks: Array,
    at_us: Times,
    settings: Reject,
    shared: Shared | None = None,
) -> tuple[signal.Output, Times, NDArray[np.bool_]]:
    """Fold a block of some nodes, in place.

    Args:
        state: Of all nodes.
        rows: (blocks,) node of each block, each once.
        blocks: (blocks, samples, metrics) in the order of the metrics table.
        at_us: (blocks,) time of the last sample.
        settings: Threshold and times.
        shared: Directions of all nodes; None: they are not known, or not used.

    Returns:
        What the signal says; since when it has rejected or not; which of them are to be published.
    """
    old = table.take(state, rows)
    after, output = signal.update(old.signal, blocks[:, :, COLUMNS], params=params(settings), shared=shared)
    scored = ~np.isnan(output.score)
    turned = scored & ((output.reject != old.reject) | (old.published_us == 0))
    waited = (at_us - old.published_us) / 1e6
    due = scored & (turned | (waited >= settings.report_seconds - _SLACK_SECONDS) | (waited < 0))
    since = np.where(turned, at_us, old.since_us)
    rejects = np.where(scored, output.reject, old.reject)
    table.put(state, rows, State(after, np.where(due, at_us, old.published_us), since, rejects))
    return output, since, due


def fields(
    rows: Iterable[int],
    heads: Sequence[Head],
    at_us: Times,
    output: signal.Output,
    since_us: Times,
    settings: Reject,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield, for some blocks, the index and the fields of the `Reject`."""
    used = np.arange(output.spikes.shape[1]) < output.rank[:, None]
    strength = np.where(used, output.strength, 0.0)
    total = strength.sum(axis=1, keepdims=True)
    weights = np.round(np.divide(strength, total, out=np.zeros_like(strength), where=total > 0), _DIGITS)
    chosen = list(rows)
    columns = (at_us, output.reject, np.round(output.score, _DIGITS), output.rank, output.spikes, weights, since_us)
    # Whole columns become numbers of Python at once: one by one takes as long as all the rest of a message.
    for row, *numbers in zip(chosen, *(column[chosen].tolist() for column in columns), strict=True):
        at, reject, score, rank, spikes, shares, since = numbers
        yield (
            row,
            {
                "node": heads[row].node,
                "at_us": at,
                "seq": heads[row].seq,
                "reject": reject,
                "score": score,
                "threshold": settings.threshold,
                "rank": rank,
                "spikes": spikes[:rank],
                "weights": shares[:rank],
                "since_us": since,
                "subspace": settings.subspace,
            },
        )
