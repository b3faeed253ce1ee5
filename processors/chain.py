"""The whole way of one node's second: smoothing, resources, model, signal, cost, availability.

Pure: rows of state and one block of each node go in, rows of state and results come out. Every step works on all
nodes at once and on each node alone, so how nodes are grouped changes nothing.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors import (
    availability,
    direction,
    least_squares,
    resource,
    table,
)
from processors.availability import Room
from processors.decode import COLUMNS
from processors.direction import Direction
from processors.variant import Variant
from processors.world import World, assumed, mixed
from schemas.settings import Settings

Array = NDArray[np.float64]

RESOURCES = ("cpu", "memory")
_SECOND_US = 1_000_000
_GAP_SECONDS = 2.5


@dataclass(frozen=True)
class Params:
    """What the chain must know of the settings."""

    settings: Settings
    variant: Variant

    @property
    def features(self) -> tuple[str, ...]:
        """Rows of the model."""
        return self.variant.features

    @property
    def resources(self) -> list[int]:
        """Columns of cpu and memory among the features."""
        return [self.features.index(name) for name in RESOURCES]


class Batch(NamedTuple):
    """One block of each of some nodes.

    Attributes:
        samples: (nodes, samples, metrics) in the order of the metrics table, NaN = missing.
        step: (nodes,) seconds between samples.
        at_us: (nodes,) time of the last sample.
        sizes: (nodes, features) cores, bytes, and 1 for what is a ratio only.
        stirred: (nodes,) True: events say that containers came or went in the samples, or in what smoothing carries on.
    """

    samples: Array
    step: Array
    at_us: NDArray[np.int64]
    sizes: Array
    stirred: NDArray[np.bool_]


class State(NamedTuple):
    """Everything that is known per node; every array has a leading node axis.

    `taken` is the usage (nodes, features) that pods take by the node's own evidence, `counted` its pods, both weighed
    by how much evidence there is. Of the newest block alone: `usage` (nodes, features), smoothed; `cores` (nodes,);
    `waiting` (nodes,), cores that were wanted beyond those used; `settling` (nodes,); `quiet_us` (nodes,), last time
    without churn; `held` (nodes,), it taught nothing.
    """

    smoothing: Any  # named tuples of arrays, of the form in force
    model: Any
    cost: least_squares.State
    kalman: Any
    moment: Array
    taken: Array
    counted: Array
    sizes: Array
    pods: Array
    at_us: NDArray[np.int64]
    changed_us: NDArray[np.int64]
    seen: NDArray[np.bool_]
    usage: Array
    cores: Array
    waiting: Array
    settling: NDArray[np.bool_]
    quiet_us: NDArray[np.int64]
    held: NDArray[np.bool_]


class Result(NamedTuple):
    """What a second said, per node.

    `believed` (nodes, resources) is the usage that rooms are made of, `free` the share that pods may still take.
    """

    smoothed: Array
    usage: Array
    believed: Array
    free: Array
    room: Room
    signal: Array
    direction: Direction
    pods: Array
    churn: NDArray[np.bool_]
    settling: NDArray[np.bool_]
    prior: Array


def init(nodes: int, params: Params) -> State:
    """Return the state of nodes never seen."""
    size = len(params.features)
    return State(
        smoothing=params.variant.smoothing_init(nodes, len(COLUMNS)),
        model=params.variant.model_init(nodes, size),
        cost=least_squares.init(nodes, size),
        kalman=params.variant.kalman_init(np.ones(nodes), np.ones(nodes)),
        moment=np.zeros((nodes, size, size)),
        taken=np.zeros((nodes, size)),
        counted=np.zeros(nodes),
        sizes=np.ones((nodes, size)),
        pods=np.zeros(nodes),
        at_us=np.zeros(nodes, dtype=np.int64),
        changed_us=np.zeros(nodes, dtype=np.int64),
        seen=np.zeros(nodes, dtype=np.bool_),
        usage=np.full((nodes, size), np.nan),
        cores=np.ones(nodes),
        waiting=np.zeros(nodes),
        settling=np.zeros(nodes, dtype=np.bool_),
        quiet_us=np.zeros(nodes, dtype=np.int64),
        held=np.zeros(nodes, dtype=np.bool_),
    )


def update(state: State, batch: Batch, world: World, *, params: Params) -> tuple[State, Result]:
    """Fold one block of each node.

    Args:
        state: Rows of the nodes in the batch.
        batch: Their blocks.
        world: Global model in force.
        params: Settings.
    """
    estimate, model = params.settings.estimate, params.settings.model
    length = batch.samples.shape[1] * batch.step
    elapsed = np.where(state.seen, np.clip((batch.at_us - state.at_us) / _SECOND_US, 0.0, 3600.0), length)
    smoothing = _after_gap(state.smoothing, elapsed > _GAP_SECONDS * length, params)
    smoothing, smoothed = params.variant.smoothing_update(smoothing, batch.samples, batch.step)
    features = resource.update(
        smoothed,
        COLUMNS,
        features=params.features,
        slowdown=params.variant.slowdown,
        memory=params.variant.memory,
        quotas=params.variant.quotas,
    )
    usage = _newest(features)
    counted = _newest(batch.samples[..., COLUMNS["pods"], None])[:, 0]
    pods = np.where(np.isnan(counted), state.pods, counted)
    changed = np.where(state.seen & (pods != state.pods), batch.at_us, state.changed_us)
    counts = (changed > 0) & (np.abs(batch.at_us - changed) < estimate.settle_seconds * _SECOND_US)
    churn = counts | batch.stirred
    quiet = np.where(churn & state.seen, state.quiet_us, batch.at_us)
    # Churn that does not end is how this node is: then fresh usage counts again.
    settling = churn & (batch.at_us - quiet <= estimate.churn_limit_seconds * _SECOND_US)
    still = settling & estimate.hold_in_churn

    sizes = _sizes(batch, params)
    prior = assumed(sizes, world, params.resources, estimate)
    before = least_squares.cost(state.cost, prior, deviation=estimate.prior_deviation)
    passed = np.where(still, 0.0, np.where(state.seen, elapsed, np.inf))
    learned, moment = params.variant.model_update(state.model, _above(features, state.cost.baseline, params), passed)
    hold = still | availability.saturated(usage[:, params.resources])
    evidence = least_squares.update(
        state.cost,
        usage,
        np.where(np.isnan(counted), np.nan, pods),
        elapsed,
        hold,
        before.value,
        memory=estimate.memory_seconds,
        level=estimate.level_seconds,
    )
    leading = direction.leading(mixed(moment, params.variant.units(sizes), world, model.global_weight))
    headroom = np.zeros(len(params.features))
    headroom[params.resources] = estimate.headroom_cpu, estimate.headroom_memory
    signal = params.variant.signal(leading, usage, headroom=headroom, max_pods=estimate.max_pods).k
    cost = least_squares.cost(evidence, prior, deviation=estimate.prior_deviation)
    room = _room(usage, evidence, cost, pods, settling, params)
    share = cost.prior[np.arange(len(pods)), np.asarray(params.resources)[room.resource]]
    kalman, room, share = params.variant.kalman_update(state.kalman, ~state.seen, signal, pods, settling, room, share)
    own = np.maximum(1.0 - cost.prior[:, params.resources].max(axis=1), 0.0)
    after = State(
        smoothing=smoothing,
        model=learned,
        cost=evidence,
        kalman=kalman,
        moment=moment,
        taken=least_squares.slope(evidence) * (own * pods)[:, None],
        counted=own * pods,
        sizes=sizes,
        pods=pods,
        at_us=batch.at_us,
        changed_us=changed,
        seen=np.ones_like(state.seen),
        usage=usage,
        cores=batch.sizes[:, params.resources[0]],
        waiting=_waiting(smoothed, features, batch, sizes, params),
        settling=settling,
        quiet_us=quiet,
        held=hold,
    )
    believed = _believed(usage, evidence.baseline, cost.value, pods, settling)[:, params.resources]
    free = np.maximum(1.0 - headroom[params.resources] - believed, 0.0)
    return after, Result(smoothed, usage, believed, free, room, signal, leading, pods, churn, settling, share)


def _after_gap(smoothing: Any, gap: NDArray[np.bool_], params: Params) -> Any:
    """Forget samples from before a gap: they say nothing of the second that comes."""
    rows = np.flatnonzero(gap)
    if rows.size:
        table.put(smoothing, rows, params.variant.smoothing_init(rows.size, len(COLUMNS)))
    return smoothing


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


def _sizes(batch: Batch, params: Params) -> Array:
    """Return what a ratio of 1 is, (nodes, features): CPU is full at slowdown times its cores if pressure is known."""
    sizes = batch.sizes.copy()
    pressure = ~np.isnan(batch.samples[..., COLUMNS["cpu_pressure"]]).all(axis=1)
    sizes[:, params.resources[0]] *= np.where(pressure, params.variant.slowdown, 1.0)
    return sizes


def _waiting(smoothed: Array, features: Array, batch: Batch, sizes: Array, params: Params) -> Array:
    """Return the cores (nodes,) that threads wait for: what the blend of CPU sees beyond utilisation, on average."""
    cpu = params.resources[0]
    wanted = features[..., cpu] * sizes[:, cpu, None]
    waiting = wanted - smoothed[..., COLUMNS["cpu_util"]] * batch.sizes[:, cpu, None]
    known = ~np.isnan(waiting)
    total = np.zeros(len(waiting))
    for sample in np.where(known, np.maximum(waiting, 0.0), 0.0).T:
        total += sample
    mean: Array = total / np.maximum(known.sum(axis=1), 1)
    return mean


def _believed(usage: Array, baseline: Array, cost: Array, pods: Array, churn: NDArray[np.bool_]) -> Array:
    """Return the usage (nodes, features) that is believed: in churn what pods and baseline are known to take."""
    learned = baseline + cost * pods[:, None]
    return np.where(churn[:, None] & ~np.isnan(learned), learned, usage)


def _room(
    usage: Array,
    evidence: least_squares.State,
    cost: least_squares.Cost,
    pods: Array,
    churn: NDArray[np.bool_],
    params: Params,
) -> Room:
    estimate, columns = params.settings.estimate, params.resources
    seconds = np.maximum(evidence.noise_weight, 1.0)
    return availability.update(
        usage[:, columns],
        evidence.baseline[:, columns],
        cost.value[:, columns],
        cost.variance[:, columns],
        evidence.noise[:, columns] / seconds[:, None],
        pods,
        churn,
        headroom=np.array([estimate.headroom_cpu, estimate.headroom_memory]),
        max_pods=estimate.max_pods,
    )
