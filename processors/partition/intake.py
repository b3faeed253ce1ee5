"""The blocks of a round as arrays, and the nodes' own part of their second: done here, or taken from who did it.

Blocks of both forms may stand in one round. What they say is brought into one set of rows in the order of the stream,
so that everything after it neither knows nor repeats the difference.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from processors import decode
from processors.decode import Block, Summary
from processors.estimation import local
from processors.estimation.local import Batch, Local, Told
from processors.estimation.state import Params, State
from processors.model import keyed_sum
from processors.partition.plan import Entry
from processors.rows import table
from schemas.sections.estimation import FEATURES

Array = NDArray[np.float64]


def update(state: State, entries: Sequence[Entry], *, params: Params) -> Local:
    """Return what a round says.

    Args:
        state: Rows of the nodes, in the order of the entries.
        entries: At most one of each node, all of the same number of samples.
        params: Settings.
    """
    blocks = [entry.block for entry in entries]
    sampled = [index for index, block in enumerate(blocks) if isinstance(block, Block)]
    if len(sampled) == len(entries):
        return local.update(state, _batch(entries, params), params=params)
    told = [index for index, block in enumerate(blocks) if isinstance(block, Summary)]
    samples = blocks[0].message.samples
    there = np.array(told, dtype=np.intp)
    believed = local.believe(
        table.take(state, there), _told([entries[index] for index in told], params), samples, params=params
    )
    if not sampled:
        return believed
    here = np.array(sampled, dtype=np.intp)
    batch = _batch([entries[index] for index in sampled], params)
    both = table.extend(local.update(table.take(state, here), batch, params=params), believed)
    return table.take(both, np.argsort(np.concatenate((here, there))))


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
    """Return what Kubernetes lets pods have, (entries, resources and pods); NaN: nobody has said."""
    if all(entry.allocatable is None for entry in entries):
        return np.full((len(entries), 3), np.nan)
    return np.array([entry.allocatable or (np.nan,) * 3 for entry in entries])


def _told(entries: Sequence[Entry], params: Params) -> Told:
    blocks = [entry.block for entry in entries if isinstance(entry.block, Summary)]
    nodes, size = len(blocks), len(params.features)
    usage, sizes = np.full((nodes, size), np.nan), np.ones((nodes, size))
    pressure, moment = np.zeros(nodes, dtype=np.bool_), np.zeros((nodes, size, size))
    columns = [FEATURES.index(name) for name in params.features]
    cpu, memory = params.resources
    for row, (_, told, _) in enumerate(blocks):
        values = [told.usage[column] if column < len(told.usage) else None for column in columns]
        usage[row] = [np.nan if value is None else value for value in values]
        if told.size is not None:
            sizes[row, cpu], sizes[row, memory] = told.size.cpus, told.size.memory_bytes
            pressure[row] = told.size.pressure
        if told.moment is not None:
            moment[row] = _moment(told.moment, columns)
    return Told(
        usage=usage,
        counted=np.array([np.nan if told.pods is None else told.pods for _, told, _ in blocks]),
        waiting=np.array([told.waiting for _, told, _ in blocks]),
        cores=np.array([np.nan if told.cores is None else told.cores for _, told, _ in blocks]),
        at_us=np.array([head.at_us + (head.samples - 1) * head.step_us for head, _, _ in blocks], dtype=np.int64),
        stirred=np.array([entry.stirred for entry in entries]),
        allocatable=_allocatable(entries),
        sized=np.array([told.size is not None for _, told, _ in blocks]),
        sizes=sizes,
        pressure=pressure,
        modelled=np.array([told.moment is not None for _, told, _ in blocks]),
        moment=moment,
    )


def _moment(triangle: Sequence[float], columns: Sequence[int]) -> Array:
    """Return a node's moment (features, features) of our features; one that it does not know counts as unused."""
    theirs = keyed_sum.from_triangle(triangle)
    known = [row for row, column in enumerate(columns) if column < len(theirs)]
    chosen = [columns[row] for row in known]
    moment = np.zeros((len(columns), len(columns)))
    moment[np.ix_(known, known)] = theirs[np.ix_(chosen, chosen)]
    return moment
