"""The whole way of one node's second: smoothing, resources, model, signal, cost, availability.

Pure: rows of state and one block of each node go in, rows of state and results come out. Every step works on all
nodes at once and on each node alone, so how nodes are grouped changes nothing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors import availability, direction, least_squares, local
from processors.availability import Room
from processors.direction import Direction
from processors.local import Batch, Local
from processors.state import RESOURCES, Params, State, init
from processors.world import World, assumed, mixed

Array = NDArray[np.float64]

__all__ = ["RESOURCES", "Batch", "Params", "Result", "State", "conclude", "init", "update"]


class Result(NamedTuple):
    """What a second said, per node.

    `smoothed` (nodes, samples, metrics) has the columns that `Params` names. `believed` (nodes, resources) is the usage
    that rooms are made of, `free` the share that pods may still take.
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


def update(state: State, batch: Batch, world: World, *, params: Params) -> tuple[State, Result]:
    """Fold one block of each node.

    Args:
        state: Rows of the nodes in the batch.
        batch: Their blocks.
        world: Global model in force.
        params: Settings.
    """
    return conclude(state, local.update(state, batch, params=params), world, params=params)


def conclude(state: State, said: Local, world: World, *, params: Params) -> tuple[State, Result]:
    """Do what comes after the nodes' own part of a second, whoever has done that.

    Args:
        state: Rows of the nodes, as they were before it.
        said: What their own part says.
        world: Global model in force.
        params: Settings.
    """
    estimate, unrest, usage, sizes = params.settings.estimate, said.unrest, said.usage, said.sizes
    pods, settling = unrest.pods, unrest.settling
    prior = assumed(sizes, world, params.resources, estimate)
    before = least_squares.cost(state.cost, prior, deviation=estimate.prior_deviation)
    hold = unrest.still | availability.saturated(usage[:, params.resources])
    evidence = least_squares.update(
        state.cost,
        usage,
        np.where(np.isnan(said.counted), np.nan, pods),
        said.elapsed,
        hold,
        before.value,
        memory=estimate.memory_seconds,
        level=estimate.level_seconds,
    )
    weight = params.settings.model.global_weight
    leading = direction.leading(mixed(said.moment, params.variant.units(sizes), world, weight))
    headroom = np.zeros(len(params.features))
    headroom[params.resources] = estimate.headroom_cpu, estimate.headroom_memory
    signal = params.variant.signal(leading, usage, headroom=headroom, max_pods=estimate.max_pods).k
    cost = least_squares.cost(evidence, prior, deviation=estimate.prior_deviation)
    room = _room(usage, evidence, cost, pods, settling, params)
    share = cost.prior[np.arange(len(pods)), np.asarray(params.resources)[room.resource]]
    kalman, room, share = params.variant.kalman_update(state.kalman, ~state.seen, signal, pods, settling, room, share)
    own = np.maximum(1.0 - cost.prior[:, params.resources].max(axis=1), 0.0)
    after = State(
        smoothing=said.smoothing,
        model=said.model,
        cost=evidence,
        kalman=kalman,
        moment=said.moment,
        taken=least_squares.slope(evidence) * (own * pods)[:, None],
        counted=own * pods,
        sizes=sizes,
        pods=pods,
        at_us=said.at_us,
        changed_us=unrest.changed_us,
        seen=np.ones_like(state.seen),
        usage=usage,
        cores=said.cores,
        waiting=said.waiting,
        settling=settling,
        quiet_us=unrest.quiet_us,
        held=hold,
    )
    believed = _believed(usage, evidence.baseline, cost.value, pods, settling)[:, params.resources]
    free = np.maximum(1.0 - headroom[params.resources] - believed, 0.0)
    return after, Result(
        said.smoothed, usage, believed, free, room, signal, leading, pods, unrest.churn, settling, share
    )


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
