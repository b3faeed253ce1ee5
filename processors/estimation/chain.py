"""The whole way of one node's second: smoothing, resources, model, signal, cost, availability.

Pure: rows of state and one block of each node go in, rows of state and results come out. No array that goes in is
written to. Every step works on all nodes at once and on each node alone, so how nodes are grouped changes nothing.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import availability, level, limit, local
from processors.estimation.availability import Demand, Room
from processors.estimation.cost import least_squares, protocol
from processors.estimation.cost.protocol import Second
from processors.estimation.global_model import GlobalModel, assumed, mixed
from processors.estimation.local import Batch, ChurnState, Local
from processors.estimation.state import RESOURCES, Params, State, init
from processors.model import direction
from processors.model.direction import Direction

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

_ALL_ASSUMED, _HALF_ASSUMED = 0.999, 0.5
_WANDER = 0.15  # relative deviation of a cost over what no residual shows, such as pods that differ

__all__ = ["RESOURCES", "Batch", "Params", "Result", "State", "conclude", "init", "update"]


class Result(NamedTuple):
    """Results of a second, per node.

    `smoothed` (nodes, samples, metrics) has the columns that `Params` names. `believed` (nodes, resources) is the used
    share of what pods may have; what they may still take of it is `availability.free`.
    """

    smoothed: Array
    usage: Array
    believed: Array
    room: Room
    signal: Array
    direction: Direction
    pods: Array
    churn: Flags
    settling: Flags
    prior: Array


class _Evidence(NamedTuple):
    """What is learned of the cost of a pod.

    Attributes:
        demanded: (nodes, features) usage that it is learned from.
        full: (nodes,) True: a resource is used up, so usage shows no cost.
        hold: (nodes,) True: nothing was learned.
        prior: (nodes, features) cost that is assumed.
        state: Evidence after the second.
        cost: Cost by evidence and assumption.
    """

    demanded: Array
    full: Flags
    hold: Flags
    prior: Array
    state: least_squares.State
    cost: least_squares.Cost


def update(state: State, batch: Batch, global_model: GlobalModel, *, params: Params) -> tuple[State, Result]:
    """Fold one block of each node.

    Args:
        state: Rows of the nodes in the batch.
        batch: Their blocks.
        global_model: Global model in force.
        params: Settings.
    """
    return conclude(state, local.update(state, batch, params=params), global_model, params=params)


def conclude(state: State, part: Local, global_model: GlobalModel, *, params: Params) -> tuple[State, Result]:
    """Do what comes after the nodes' own part of a second, which a node or the caller has computed.

    Args:
        state: Rows of the nodes, as they were before it.
        part: The nodes' own part.
        global_model: Global model in force.
        params: Settings.
    """
    churn, columns = part.churn, params.resources
    evidence = _learn(state, part, global_model, params)
    cost = evidence.cost
    leading, signal = _signal(part, global_model, params)
    share = part.sizes[:, columns] / part.limits.amount
    used = _level(state, evidence.demanded[:, columns] * share, part, params)
    baseline = evidence.state.baseline[:, columns] * share
    # While it settles the level is held, and the number of pods is not.
    held = churn.settling[:, None] & ~np.isnan(baseline)
    kept = _kept(np.where(held, baseline, used.mean - cost.value[:, columns] * share * churn.pods[:, None]), part)
    whole = used._replace(mean=used.mean + kept)
    room = _room(whole, share, kept, evidence, part, params)
    most_assumed = cost.prior[np.arange(len(churn.pods)), np.asarray(columns)[room.resource]]
    kalman, estimate = params.variant.estimator.update(
        state.kalman,
        Second(~state.seen, signal, churn.pods, churn.settling, evidence.full, part.limits.pods),
        protocol.Estimate(room, most_assumed),
    )
    learned = ((evidence.state.baseline + cost.value * churn.pods[:, None])[:, columns]) * share
    believed = np.where(churn.settling[:, None] & ~np.isnan(learned), learned + kept, whole.mean)
    return _after(part, evidence, used, kalman, columns), Result(
        smoothed=part.smoothed,
        usage=part.usage,
        believed=believed,
        room=estimate.room,
        signal=signal,
        direction=leading,
        pods=churn.pods,
        churn=churn.churn,
        settling=churn.settling,
        prior=estimate.prior,
    )


def _learn(state: State, part: Local, global_model: GlobalModel, params: Params) -> _Evidence:
    """Learn what a pod costs."""
    estimate, churn, columns = params.settings.estimate, part.churn, params.resources
    # What is assumed holds still, too, while nothing is learned: the cluster's mean goes on moving for a second.
    held = churn.still[:, None] & ~np.isnan(state.assumed)
    prior = np.where(held, state.assumed, assumed(part.sizes, global_model, columns, estimate))
    so_far = _of_size(state, part.sizes)
    before = least_squares.cost(so_far, prior, deviation=estimate.prior_deviation)
    demanded = _demanded(part, params)
    full = part.full | availability.saturated(part.usage[:, columns[1:]])
    hold = churn.still | full
    after = least_squares.update(
        so_far,
        demanded,
        np.where(np.isnan(part.counted), np.nan, churn.pods),
        part.elapsed,
        hold,
        before.value,
        memory=estimate.memory_seconds,
        level=estimate.level_seconds,
    )
    cost = least_squares.cost(after, prior, deviation=estimate.prior_deviation)
    return _Evidence(demanded, full, hold, prior, after, cost)


def _of_size(state: State, sizes: Array) -> least_squares.State:
    """Return what is known of the cost of a pod, in shares of what the nodes have now."""
    changed = state.seen[:, None] & (sizes != state.sizes)
    if not changed.any():
        return state.cost
    return least_squares.resized(state.cost, np.where(changed, state.sizes / sizes, 1.0))


def _signal(part: Local, global_model: GlobalModel, params: Params) -> tuple[Direction, Array]:
    """Return the leading direction and the capacity signal (nodes,)."""
    estimate, weight = params.settings.estimate, params.settings.model.global_weight
    leading = direction.leading(mixed(part.moment, params.variant.units(part.sizes), global_model, weight))
    headroom = np.zeros(len(params.features))
    headroom[params.resources] = estimate.headroom_cpu, estimate.headroom_memory
    signal = params.variant.signal(leading, part.usage, headroom=headroom, max_pods=estimate.max_pods).k
    return leading, signal


def _after(part: Local, evidence: _Evidence, used: level.State, kalman: protocol.Arrays, columns: list[int]) -> State:
    """Return the state after a second."""
    churn, limits = part.churn, part.limits
    own = np.maximum(1.0 - evidence.cost.prior[:, columns].max(axis=1), 0.0)
    return State(
        smoothing=part.smoothing,
        model=part.model,
        cost=evidence.state,
        kalman=kalman,
        moment=part.moment,
        taken=least_squares.slope(evidence.state) * (own * churn.pods)[:, None],
        counted=own * churn.pods,
        sizes=part.sizes,
        pods=churn.pods,
        at_us=part.at_us,
        changed_us=churn.changed_us,
        seen=np.ones(len(part.at_us), dtype=np.bool_),
        usage=part.usage,
        cores=part.cores,
        running=part.running,
        waiting=part.waiting,
        full=part.full,
        settling=churn.settling,
        quiet_us=churn.quiet_us,
        held=evidence.hold,
        level=used,
        assumed=evidence.prior,
        amount=limits.amount,
        soaked=limits.soaked,
        queueing=limits.queueing,
        reserved=limits.reserved,
        most=limits.pods,
    )


def _demanded(part: Local, params: Params) -> Array:
    """Return the usage (nodes, features) that cost is learned from: of the CPUs what is in use, not a blend."""
    if not params.variant.policy:
        return part.usage
    demanded, cpu = part.usage.copy(), params.resources[0]
    demanded[:, cpu] = part.running / part.sizes[:, cpu]
    return demanded


def _by_capacity(churn: ChurnState, cost: least_squares.Cost, params: Params) -> Flags:
    """Return on which nodes (nodes,) only what was learned counts, not usage as well: in churn, given evidence."""
    if not params.variant.policy:
        return churn.settling
    evident = cost.prior[:, params.resources].max(axis=1) <= _HALF_ASSUMED
    return np.asarray(churn.settling & evident)


def _level(state: State, used: Array, part: Local, params: Params) -> level.State:
    """Follow the used share (nodes, resources) of what pods may have; the reference variant believes each second.

    A change of pods moves the level, so what was averaged before it is not carried on.
    """
    if not params.variant.policy:
        return level.init(len(used), used.shape[1])._replace(mean=used)
    before = state.level
    changed = part.churn.pods != state.pods
    seconds = np.where(changed[:, None], 0.0, before.seconds)
    settling = part.churn.settling[:, None]
    after = level.update(before._replace(seconds=seconds), used, part.elapsed, settling, slow=level.SLOW_SECONDS)
    # Memory is what it is, also while it grows: only CPU has to be averaged.
    memory = np.where(np.isnan(used[:, 1]), after.mean[:, 1], used[:, 1])
    return after._replace(mean=np.stack((after.mean[:, 0], memory), axis=1))


def _kept(beside: Array, part: Local) -> Array:
    """Return what Kubernetes keeps from pods beyond what is used beside them, both in shares (nodes, resources)."""
    reserved = part.limits.reserved / part.limits.amount
    return np.maximum(reserved - np.maximum(np.nan_to_num(beside), 0.0), 0.0)


def _room(used: level.State, share: Array, kept: Array, learned: _Evidence, part: Local, params: Params) -> Room:
    """Return what fits by the mean pod.

    Args:
        used: What is used or kept, in shares of what pods may have.
        share: (nodes, resources) turns ratios into such shares.
        kept: (nodes, resources) share that is kept and not used.
        learned: What is learned of the cost of a pod.
        part: The nodes' own part of the second.
        params: Settings.
    """
    estimate, columns, churn = params.settings.estimate, params.resources, part.churn
    evidence, cost = learned.state, learned.cost
    # A pod whose cost is a definition is not unsure: where none has run, only the room is.
    defined = (churn.pods == 0) & (cost.prior[:, columns] > _ALL_ASSUMED).all(axis=1)
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
        beside = used.mean - value * churn.pods[:, None]
        baseline = np.where(churn.settling[:, None] & ~np.isnan(baseline), baseline + kept, beside)
    return availability.update(
        Demand(used.mean, baseline, value, variance, spread),
        churn.pods,
        _by_capacity(churn, cost, params),
        headroom=np.array([estimate.headroom_cpu, estimate.headroom_memory]),
        most=part.limits.pods,
        whole=params.variant.policy and params.settings.policy.whole,
    )
