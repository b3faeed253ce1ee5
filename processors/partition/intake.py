"""The blocks of a round as arrays, and the nodes' own part of their second: computed here, or by the node.

A round may hold blocks of both forms. Their values become one set of rows in the order of the stream, so that
everything after it is the same for both.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from processors import decode
from processors.decode import Block, Summary
from processors.estimation import local
from processors.estimation.local import Batch, EdgeInput, Local
from processors.estimation.state import Params, State
from processors.model import keyed_sum
from processors.partition.plan import Entry
from processors.rows import table
from schemas.sections.estimation import FEATURES

Array = NDArray[np.float64]

_ROUNDED = 1.02  # of numbers of three digits, as they are sent, a product may be by 1 % greater than its roots'


def update(state: State, entries: Sequence[Entry], *, params: Params) -> Local:
    """Return the nodes' own part of a round.

    Args:
        state: Rows of the nodes, in the order of the entries.
        entries: At most one of each node, all of the same number of samples.
        params: Settings.
    """
    blocks = [entry.block for entry in entries]
    sampled = [index for index, block in enumerate(blocks) if isinstance(block, Block)]
    if len(sampled) == len(entries):
        return local.update(state, _batch(entries, params), params=params)
    summarised = [index for index, block in enumerate(blocks) if isinstance(block, Summary)]
    edge_rows = np.array(summarised, dtype=np.intp)
    edge = _edge_input([entries[index] for index in summarised], params)
    accepted = local.accept(table.take(state, edge_rows), edge, blocks[0].message.samples, params=params)
    if not sampled:
        return accepted
    rows = np.array(sampled, dtype=np.intp)
    batch = _batch([entries[index] for index in sampled], params)
    both = table.extend(local.update(table.take(state, rows), batch, params=params), accepted)
    return table.take(both, np.argsort(np.concatenate((rows, edge_rows))))


def _batch(entries: Sequence[Entry], params: Params) -> Batch:
    blocks = [entry.block for entry in entries if isinstance(entry.block, Block)]
    numbers = np.array(
        [(head.at_us, head.step_us, head.cpus, head.memory_bytes) for head in (block.message for block in blocks)],
        dtype=np.int64,
    )
    at_us, step_us, cpus, memory_bytes = np.ascontiguousarray(numbers.T)
    sizes = np.ones((len(blocks), len(params.features)))
    cpu, memory = params.resources
    sizes[:, cpu], sizes[:, memory] = cpus, memory_bytes
    return Batch(
        samples=decode.samples(blocks),
        step=step_us / 1e6,
        at_us=at_us + (blocks[0].message.samples - 1) * step_us,
        sizes=sizes,
        stirred=np.array([entry.stirred for entry in entries]),
        allocatable=_allocatable(entries),
    )


def _allocatable(entries: Sequence[Entry]) -> Array:
    """Return what Kubernetes lets pods have, (entries, resources and pods); NaN: not known."""
    if all(entry.allocatable is None for entry in entries):
        return np.full((len(entries), 3), np.nan)
    return np.array([entry.allocatable or (np.nan,) * 3 for entry in entries])


def _edge_input(entries: Sequence[Entry], params: Params) -> EdgeInput:
    blocks = [entry.block for entry in entries if isinstance(entry.block, Summary)]
    nodes, size = len(blocks), len(params.features)
    usage, sizes = np.full((nodes, size), np.nan), np.ones((nodes, size))
    pressure, moment = np.zeros(nodes, dtype=np.bool_), np.zeros((nodes, size, size))
    columns = [FEATURES.index(name) for name in params.features]
    cpu, memory = params.resources
    for row, (_, sent, _) in enumerate(blocks):
        values = [sent.usage[column] if column < len(sent.usage) else None for column in columns]
        usage[row] = [np.nan if value is None else value for value in values]
        if sent.size is not None:
            sizes[row, cpu], sizes[row, memory] = sent.size.cpus, sent.size.memory_bytes
            pressure[row] = sent.size.pressure
        if sent.moment is not None:
            moment[row] = _moment(sent.moment, columns)
    return EdgeInput(
        usage=usage,
        counted=np.array([np.nan if sent.pods is None else sent.pods for _, sent, _ in blocks]),
        waiting=np.array([sent.waiting for _, sent, _ in blocks]),
        cores=np.array([np.nan if sent.cores is None else sent.cores for _, sent, _ in blocks]),
        at_us=np.array([head.at_us + (head.samples - 1) * head.step_us for head, _, _ in blocks], dtype=np.int64),
        stirred=np.array([entry.stirred for entry in entries]),
        allocatable=_allocatable(entries),
        sized=np.array([sent.size is not None for _, sent, _ in blocks]),
        sizes=sizes,
        pressure=pressure,
        modelled=np.array([sent.moment is not None for _, sent, _ in blocks]),
        moment=_possible(moment),
    )


def _moment(triangle: Sequence[float], columns: Sequence[int]) -> Array:
    """Return a node's moment (features, features) of our features; one that it does not know counts as unused."""
    theirs = keyed_sum.from_triangle(triangle)
    shared = [row for row, column in enumerate(columns) if column < len(theirs)]
    chosen = [columns[row] for row in shared]
    moment = np.zeros((len(columns), len(columns)))
    moment[np.ix_(shared, shared)] = theirs[np.ix_(chosen, chosen)]
    return moment


def _possible(moments: Array) -> Array:
    """Return moments (nodes, features, features) that usage can have; numbers beyond count as the greatest possible.

    No square is below 0, and the mean of a product is at most the root of the product of both mean squares (Cauchy and
    Schwarz). So what bounds a node's squares bounds its whole moment.
    """
    roots = np.sqrt(np.maximum(np.diagonal(moments, axis1=1, axis2=2), 0.0))
    most = _ROUNDED * roots[:, :, np.newaxis] * roots[:, np.newaxis, :]
    return np.clip(moments, -most, most)
