"""The whole way of one node's second: smoothing, resources, model, signal, cost, availability.

Pure: rows of state and one block of each node go in, rows of state and results come out. Every step works on all
nodes at once and on each node alone, so how nodes are grouped changes nothing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import availability, level, limit, local
from processors.estimation.availability import Room
from processors.estimation.cost import least_squares
from processors.estimation.global_model import World, assumed, mixed
from processors.estimation.local import Batch, Local, Unrest
from processors.estimation.state import RESOURCES, Params, State, init
from processors.model import direction
from processors.model.direction import Direction

Array = NDArray[np.float64]

_ALL_ASSUMED = 0.999
_WANDER = 0.15  # relative deviation of a cost over what no residual shows, such as pods that differ

__all__ = ["RESOURCES", "Batch", "Params", "Result", "State", "conclude", "init", "update"]


class Result(NamedTuple):
    """What a second said, per node.

    `smoothed` (nodes, samples, metrics) has the columns that `Params` names. `believed` (nodes, resources) is the used
    share of what pods may have, `free` what they may still take of it.
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
    pods, settling, columns = unrest.pods, unrest.settling, params.resources
    # What is assumed holds still, too, while nothing is learned: the cluster's mean goes on moving for a second.
    held = unrest.still[:, None] & ~np.isnan(state.assumed)
    prior = np.where(held, state.assumed, assumed(sizes, world, columns, estimate))
    before = least_squares.cost(state.cost, prior, deviation=estimate.prior_deviation)
    demanded = _demanded(said, params)
    hold = unrest.still | said.full | availability.saturated(usage[:, columns[1:]])
    evidence = least_squares.update(
        state.cost,
        demanded,
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
    headroom[columns] = estimate.headroom_cpu, estimate.headroom_memory
    signal = params.variant.signal(leading, usage, headroom=headroom, max_pods=estimate.max_pods).k
    cost = least_squares.cost(evidence, prior, deviation=estimate.prior_deviation)
    share = sizes[:, columns] / said.limits.amount
    used = _level(state, demanded[:, columns] * share, said, params)
    room = _room(used, share, evidence, cost, unrest, said.limits.pods, params)
    most_assumed = cost.prior[np.arange(len(pods)), np.asarray(columns)[room.resource]]
    kalman, room, most_assumed = params.variant.kalman_update(
        state.kalman, ~state.seen, signal, pods, settling, room, most_assumed, said.limits.pods
    )
    own = np.maximum(1.0 - cost.prior[:, columns].max(axis=1), 0.0)
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
        running=said.running,
        waiting=said.waiting,
        full=said.full,
        settling=settling,
        quiet_us=unrest.quiet_us,
        held=hold,
        level=used,
        assumed=prior,
        amount=said.limits.amount,
        soaked=said.limits.soaked,
        queueing=said.limits.queueing,
        reserved=said.limits.reserved,
        most=said.limits.pods,
    )
    learned = ((evidence.baseline + cost.value * pods[:, None])[:, columns]) * share
    believed = np.where(settling[:, None] & ~np.isnan(learned), learned, used.mean)
    free = np.maximum(1.0 - headroom[columns] - believed, 0.0)
    return after, Result(
        said.smoothed, usage, believed, free, room, signal, leading, pods, unrest.churn, settling, most_assumed
    )


def _demanded(said: Local, params: Params) -> Array:
    """Return the usage (nodes, features) that cost is learned from: of the CPUs what is in use, not a blend."""
    if not params.variant.policy:
        return said.usage
    demanded, cpu = said.usage.copy(), params.resources[0]
    demanded[:, cpu] = said.running / said.sizes[:, cpu]
    return demanded


def _level(state: State, used: Array, said: Local, params: Params) -> level.State:
    """Follow the used share (nodes, resources) of what pods may have; the reference variant believes each second.

    A change of pods moves the level, so what was averaged before it is not carried on.
    """
    if not params.variant.policy:
        return level.init(len(used), used.shape[1])._replace(mean=used)
    before = state.level
    changed = said.unrest.pods != state.pods
    seconds = np.where(changed[:, None], 0.0, before.seconds)
    settling = said.unrest.settling[:, None]
    after = level.update(before._replace(seconds=seconds), used, said.elapsed, settling, slow=level.SLOW_SECONDS)
    # Memory is what it is, also while it grows: only CPU has to be averaged.
    memory = np.where(np.isnan(used[:, 1]), after.mean[:, 1], used[:, 1])
    return after._replace(mean=np.stack((after.mean[:, 0], memory), axis=1))


def _room(
    used: level.State,
    share: Array,
    evidence: least_squares.State,
    cost: least_squares.Cost,
    unrest: Unrest,
    most: Array,
    params: Params,
) -> Room:
    """Return what fits by the mean pod; `share` (nodes, resources) turns ratios into shares of what pods may have."""
    estimate, columns = params.settings.estimate, params.resources
    # A pod whose cost is a definition is not unsure: where none has run, only the room is.
    defined = (unrest.pods == 0) & (cost.prior[:, columns] > _ALL_ASSUMED).all(axis=1)
    variance = np.where(defined[:, None], 0.0, cost.variance[:, columns]) * share**2
    seconds = np.maximum(evidence.noise_weight, 1.0)
    spread = evidence.noise[:, columns] / seconds[:, None] * share**2
    baseline = evidence.baseline[:, columns] * share
    value = cost.value[:, columns] * share
    if params.variant.policy:
        # Usage that wanders makes the slope wander, too.
        variance = variance * level.correlated(used.product, used.variance) + np.where(
            defined[:, None], 0.0, (_WANDER * value) ** 2
        )
        spread = level.doubt(used, slow=level.SLOW_SECONDS)
        spread[:, 0] += limit.DOUBT**2
        beside = used.mean - value * unrest.pods[:, None]
        baseline = np.where(unrest.settling[:, None] & ~np.isnan(baseline), baseline, beside)
    return availability.update(
        used.mean,
        baseline,
        value,
        variance,
        spread,
        unrest.pods,
        unrest.settling,
        headroom=np.array([estimate.headroom_cpu, estimate.headroom_memory]),
        most=most,
        whole=params.variant.policy and params.settings.policy.whole,
    )
