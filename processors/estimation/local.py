"""The part of a second that needs nothing of the cluster: smoothing, resources, churn, and the local model.

A node can compute it by itself. The partition computes it from samples; where the node has computed it
(`processors.partition.edge`), the partition takes the node's results instead. Everything after it is the same.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.decode import COLUMNS
from processors.estimation import limit, resource
from processors.estimation.limit import Limits
from processors.estimation.state import Params, State
from processors.rows import table
from schemas import metric

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Times = NDArray[np.int64]

_SECOND_US = 1_000_000
_GAP_SECONDS = 2.5
_MOST_THREADS = metric.BY_NAME["procs_running"].high


class Batch(NamedTuple):
    """One block of each of some nodes.

    Attributes:
        samples: (nodes, samples, metrics) in the order of the metrics table, NaN = missing.
        step: (nodes,) seconds between samples.
        at_us: (nodes,) time of the last sample.
        sizes: (nodes, features) cores, bytes, and 1 for what is a ratio only.
        stirred: (nodes,) True: by events, containers came or went in the samples, or in what smoothing carries on.
        allocatable: (nodes, resources and pods) what Kubernetes lets pods have, in cores, bytes and pods; NaN: not
            known.
    """

    samples: Array
    step: Array
    at_us: NDArray[np.int64]
    sizes: Array
    stirred: NDArray[np.bool_]
    allocatable: Array


class EdgeInput(NamedTuple):
    """One block of each of some nodes that compute this part themselves.

    Attributes:
        usage: (nodes, features) newest smoothed usage, NaN = missing.
        counted: (nodes,) running pods, NaN = not known.
        waiting: (nodes,) cores that were wanted beyond those used.
        cores: (nodes,) cores in use, mean of the second; NaN: computed from `usage` and `waiting`.
        at_us: (nodes,) time of the last sample.
        stirred, allocatable: As in `Batch`.
        sized: (nodes,) True: the block has the following two; elsewhere they are ignored.
        sizes: (nodes, features) cores, bytes, and 1 for what is a ratio only.
        pressure: (nodes,) the kernel measures CPU pressure.
        modelled: (nodes,) True: the block has a model; elsewhere `moment` is ignored.
        moment: (nodes, features, features) the local model.
    """

    usage: Array
    counted: Array
    waiting: Array
    cores: Array
    at_us: Times
    stirred: Flags
    allocatable: Array
    sized: Flags
    sizes: Array
    pressure: Flags
    modelled: Flags
    moment: Array


class ChurnState(NamedTuple):
    """Pods (nodes,), and whether they come and go.

    `changed_us` is when their number last changed, `quiet_us` the last time without churn. `settling`: fresh usage does
    not count now. `still`: nothing is learned now.
    """

    pods: Array
    changed_us: Times
    churn: Flags
    quiet_us: Times
    settling: Flags
    still: Flags


class Local(NamedTuple):
    """The nodes' own part of a second; every array has a leading node axis.

    Attributes:
        at_us: (nodes,) time of the last sample.
        elapsed: (nodes,) seconds since the block before, or of this one if it is the first.
        smoothing, model: States after it.
        smoothed: (nodes, samples, metrics) NaN where the node itself has smoothed them.
        usage: (nodes, features) newest smoothed usage.
        counted: (nodes,) running pods, NaN = not known.
        churn: Churn.
        running: (nodes,) cores in use, mean of the second.
        waiting: (nodes,) cores that were wanted beyond those used.
        full: (nodes,) True: no CPU idles, so usage no longer shows what is wanted.
        sizes: (nodes, features) what a ratio of 1 is.
        cores: (nodes,) CPUs.
        limits: What pods may have.
        moment: (nodes, features, features) the local model.
    """

    at_us: Times
    elapsed: Array
    smoothing: tuple[Array, ...]
    model: tuple[Array, ...]
    smoothed: Array
    usage: Array
    counted: Array
    churn: ChurnState
    running: Array
    waiting: Array
    full: Flags
    sizes: Array
    cores: Array
    limits: Limits
    moment: Array


def update(state: State, batch: Batch, *, params: Params) -> Local:
    """Compute this part for one block of each node, from the state before it, whose baseline the model stands on."""
    length = batch.samples.shape[1] * batch.step
    elapsed = _elapsed(state, batch.at_us, length)
    smoothing = _after_gap(state.smoothing, elapsed > _GAP_SECONDS * length, params)
    smoothing, smoothed = params.variant.smoothing.update(smoothing, _wanted(batch, params), batch.step)
    features = resource.update(
        smoothed,
        params.smoothed,
        features=params.features,
        slowdown=params.variant.slowdown,
        memory=params.variant.memory,
        quotas=params.variant.quotas,
    )
    counted = _newest(batch.samples[..., COLUMNS["pods"], None])[:, 0]
    churn = _churn(state, counted, batch.at_us, batch.stirred, params)
    passed = np.where(churn.still, 0.0, np.where(state.seen, elapsed, np.inf))
    model, moment = params.variant.model.update(state.model, _above(features, state.cost.baseline, params), passed)
    pressure = np.asarray(~np.isnan(batch.samples[..., COLUMNS["cpu_pressure"]]).all(axis=1))
    sizes = _sizes(batch.sizes, pressure, params)
    cores = batch.sizes[:, params.resources[0]]
    running = _mean(batch.samples[..., COLUMNS["cpu_util"]]) * cores
    full = running >= limit.PLATEAU * cores
    return Local(
        at_us=batch.at_us,
        elapsed=elapsed,
        smoothing=smoothing,
        model=model,
        smoothed=smoothed,
        usage=_newest(features),
        counted=counted,
        churn=churn,
        running=running,
        waiting=_waiting(batch.samples, running, full, cores),
        full=full,
        sizes=sizes,
        cores=cores,
        limits=limit.of(batch.sizes[:, params.resources], batch.allocatable, sizes, params=params),
        moment=moment,
    )


def accept(state: State, edge: EdgeInput, samples: int, *, params: Params) -> Local:
    """Take over what nodes have computed.

    Where a block has no model, the one before goes on with the last values in the place of the samples. The node does
    the same, and sends its model when that is too far off. If a node sends samples again, smoothing starts afresh.

    Args:
        state: Rows of the nodes.
        edge: Their blocks.
        samples: Length of `smoothed`.
        params: Settings.
    """
    nodes = len(edge.at_us)
    elapsed = _elapsed(state, edge.at_us, np.ones(nodes))
    churn = _churn(state, edge.counted, edge.at_us, edge.stirred, params)
    passed = np.where(churn.still, 0.0, elapsed)
    above = _above(edge.usage[:, None, :], state.cost.baseline, params)
    _, guessed = params.variant.model.update(state.model, above, passed)
    moment = np.where(edge.modelled[:, None, None], edge.moment, guessed)
    sizes = np.where(edge.sized[:, None], _sizes(edge.sizes, edge.pressure, params), state.sizes)
    cores = np.where(edge.sized, edge.sizes[:, params.resources[0]], state.cores)
    cpu, memory = params.resources
    guessed_cores = np.maximum(edge.usage[:, cpu] * sizes[:, cpu] - edge.waiting, 0.0)
    # No node uses more cores than it has, even if it claims so.
    running = np.where(np.isnan(edge.cores), guessed_cores, np.minimum(edge.cores, cores))
    waiting = np.minimum(edge.waiting, _MOST_THREADS)
    return Local(
        at_us=edge.at_us,
        elapsed=elapsed,
        smoothing=params.variant.smoothing.init(nodes, len(params.smoothed)),
        model=params.variant.model.of_moment(moment),
        smoothed=np.full((nodes, samples, len(params.smoothed)), np.nan),
        usage=edge.usage,
        counted=edge.counted,
        churn=churn,
        running=running,
        waiting=waiting,
        full=running >= limit.PLATEAU * cores,
        sizes=sizes,
        cores=cores,
        limits=limit.of(np.stack((cores, sizes[:, memory]), axis=1), edge.allocatable, sizes, params=params),
        moment=moment,
    )


def _elapsed(state: State, at_us: Times, length: Array) -> Array:
    return np.where(state.seen, np.clip((at_us - state.at_us) / _SECOND_US, 0.0, 3600.0), length)


def _churn(state: State, counted: Array, at_us: Times, stirred: Flags, params: Params) -> ChurnState:
    estimate = params.settings.estimate
    pods = np.where(np.isnan(counted), state.pods, counted)
    changed = np.where(state.seen & (pods != state.pods), at_us, state.changed_us)
    counts = (changed > 0) & (np.abs(at_us - changed) < estimate.settle_seconds * _SECOND_US)
    churn = counts | stirred
    quiet = np.where(churn & state.seen, state.quiet_us, at_us)
    # Churn that does not end is how this node is: then fresh usage counts again.
    settling = churn & (np.abs(at_us - quiet) <= estimate.churn_limit_seconds * _SECOND_US)
    return ChurnState(pods, changed, churn, quiet, settling, settling & estimate.hold_in_churn)


def _after_gap(smoothing: tuple[Array, ...], gap: Flags, params: Params) -> tuple[Array, ...]:
    """Return the state without samples from before a gap, which have no bearing on those after it."""
    rows = np.flatnonzero(gap)
    if not rows.size:
        return smoothing
    return table.replaced(smoothing, rows, params.variant.smoothing.init(rows.size, len(params.smoothed)))


def _wanted(batch: Batch, params: Params) -> Array:
    """Return the samples (nodes, samples, metrics) of those metrics that are smoothed."""
    if params.smoothed is COLUMNS:
        return batch.samples
    wanted: Array = batch.samples.take([COLUMNS[name] for name in params.smoothed], axis=2)
    return wanted


def _newest(series: Array) -> Array:
    """Return the last value that is not missing, (nodes, columns), of (nodes, samples, columns)."""
    last: Array = series[:, -1]
    for index in range(series.shape[1] - 2, -1, -1):
        if not np.isnan(last).any():
            break
        last = np.where(np.isnan(last), series[:, index], last)
    return last


def _above(features: Array, baseline: Array, params: Params) -> Array:
    """Return usage above the idle baseline; a feature that the node does not have counts as unused."""
    absent = np.isnan(features).all(axis=1, keepdims=True)
    if not params.variant.above_baseline:
        return np.where(absent, 0.0, features)
    return np.where(absent, 0.0, np.maximum(features - baseline[:, None, :], 0.0))


def _sizes(sizes: Array, pressure: Flags, params: Params) -> Array:
    """Return what a ratio of 1 is, (nodes, features): CPU is full at slowdown times its cores if pressure is known."""
    scaled = sizes.copy()
    scaled[:, params.resources[0]] *= np.where(pressure, params.variant.slowdown, 1.0)
    return scaled


def _waiting(samples: Array, running: Array, full: Flags, cores: Array) -> Array:
    """Return the cores (nodes,) that threads wait for, mean of the second.

    Where CPUs idle now and then, pressure shows it. Where none does, pressure is at its maximum; then the number of
    runnable threads does, less the one that reads it (Little's law). Pressure that quotas cause is left out.
    """
    pressure = samples[..., COLUMNS["cpu_pressure"]] * (1.0 - np.nan_to_num(samples[..., COLUMNS["cpu_throttled"]]))
    waited = np.nan_to_num(_mean(pressure)) * cores
    threads = _mean(samples[..., COLUMNS["procs_running"]]) - 1.0
    return np.where(full & (threads > 0), np.maximum(threads - running, 0.0), waited)


def _mean(series: Array) -> Array:
    """Return the mean (nodes,) of samples (nodes, samples), one after another; NaN where all are missing."""
    valid = ~np.isnan(series)
    total = np.zeros(len(series))
    for column in np.where(valid, series, 0.0).T:
        total += column
    count = valid.sum(axis=1)
    mean: Array = np.divide(total, count, out=np.full(len(series), np.nan), where=count > 0)
    return mean
