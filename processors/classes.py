"""What one pod of each workload class costs: least squares of the class's usage on its pods, per node.

One mean cost misleads where workloads differ: with two classes whose mix changes it is off by pods. So each node has a
few slots, one per class, and in each the class's usage u is explained by its pods n alone: u = W n, a line through
the origin. The recursive form with exponential forgetting needs two sums, Snn and Snu, and W = Snu/Snn; it is learned
whenever pods of the class run, also while their number stands still, since usage is told per pod. Usage is in cores
and bytes, so it holds on any machine. What a class costs elsewhere (the prior W0) enters as for the mean cost, with
the weight 1/(d W0)^2, d its relative deviation. The noise variance v of u comes from the residuals of w faded seconds
and from one more second in which the prior's own deviation is expected, v = (E + (d W0)^2 Snn/w) / (w + 1): a fresh
cost is trusted after some ten seconds, and one whose class is long gone fades back into the prior.

A CPU that is fought over gives pods less than they want, and a cost learned from that would promise room that is not
there. The blend of utilisation and pressure knows how many cores are wanted beyond those used; they are given to
the pods by how much each of them waited. For n busy threads on c < n cores that gives each exactly one core.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CPU = 0
EMPTY = -1


class State(NamedTuple):
    """Evidence per node and slot; resources are cpu and memory.

    Attributes:
        label: (nodes, slots) number of the class; EMPTY: no class.
        pods: (nodes, slots) running pods.
        present_us: (nodes, slots) when it last had pods.
        weight: (nodes, slots, resources) seconds of evidence, faded.
        squares: (nodes, slots, resources) sum of squared pods, Snn.
        products: (nodes, slots, resources) sum of pods times usage, Snu; cores or bytes.
        errors: (nodes, slots, resources) sum of squared residuals.
        rest: (nodes, resources) share of the node that no class takes; NaN: not known.
        scatter: (nodes, resources) variance of that share.
        seconds: (nodes,) evidence behind the scatter, faded.
        measured: (nodes, resources) True once any pod's usage was told.
        at_us: (nodes,) time of the newest block; 0: there was none.
    """

    label: NDArray[np.int64]
    pods: Array
    present_us: NDArray[np.int64]
    weight: Array
    squares: Array
    products: Array
    errors: Array
    rest: Array
    scatter: Array
    seconds: Array
    measured: NDArray[np.bool_]
    at_us: NDArray[np.int64]


class Usage(NamedTuple):
    """One block of each node, by slot.

    Attributes:
        pods: (nodes, slots) running pods.
        counted: (nodes, slots, resources) those of them whose usage is known.
        used: (nodes, slots, resources) cores and bytes that those use.
        waiting: (nodes, slots) cores that those want beyond it.
        at_us: (nodes,) when it was read.
        span: (nodes,) seconds that it covers.
    """

    pods: Array
    counted: Array
    used: Array
    waiting: Array
    at_us: NDArray[np.int64]
    span: Array


class Cost(NamedTuple):
    """What a pod of each class takes.

    Attributes:
        value: (nodes, slots, resources) cores and bytes, above 0.
        variance: (nodes, slots, resources) of `value`.
        prior: (nodes, slots, resources) share of the prior in `value`, 0..1.
        noise: (nodes, slots, resources) variance of the class's usage around `value` times its pods.
    """

    value: Array
    variance: Array
    prior: Array
    noise: Array


def init(nodes: int, slots: int, resources: int = 2) -> State:
    """Return the state of nodes that run nothing."""
    flat, wide, whole = (nodes, slots), (nodes, slots, resources), (nodes, resources)
    return State(
        label=np.full(flat, EMPTY, dtype=np.int64),
        pods=np.zeros(flat),
        present_us=np.zeros(flat, dtype=np.int64),
        weight=np.zeros(wide),
        squares=np.zeros(wide),
        products=np.zeros(wide),
        errors=np.zeros(wide),
        rest=np.full(whole, np.nan),
        scatter=np.zeros(whole),
        seconds=np.zeros(nodes),
        measured=np.zeros(whole, dtype=np.bool_),
        at_us=np.zeros(nodes, dtype=np.int64),
    )


def clear(state: State, node: int, slot: int, label: int) -> None:
    """Give a slot to another class, in place; what was known of the one before is lost."""
    state.label[node, slot] = label
    state.pods[node, slot] = state.present_us[node, slot] = 0
    for part in (state.weight, state.squares, state.products, state.errors):
        part[node, slot] = 0.0


def cost(state: State, prior: Array, *, deviation: float) -> Cost:
    """Weigh evidence and prior.

    Args:
        state: Evidence.
        prior: (nodes, slots, resources) cost that is assumed, above 0.
        deviation: Relative standard deviation of the prior.
    """
    doubt = (deviation * prior) ** 2
    mean = _quotient(state.squares, state.weight)
    noise = (state.errors + doubt * mean) / (state.weight + 1.0)
    known, assumed = _quotient(state.squares, noise), 1.0 / doubt
    total = known + assumed
    value = (_quotient(state.products, noise) + prior * assumed) / total
    return Cost(value=value, variance=1.0 / total, prior=assumed / total, noise=noise)


def slope(state: State) -> Array:
    """Return the cost (nodes, slots, resources) by evidence alone, 0 where there is none."""
    return _quotient(state.products, state.squares)


def taken(state: State, value: Array) -> Array:
    """Return what all classes take together by cost and pods, (nodes, resources); in the units of `value`."""
    return over_slots(np.where(state.label[..., None] >= 0, value * state.pods[..., None], 0.0))


def update(
    state: State, usage: Usage, level: Array, sizes: Array, hold: NDArray[np.bool_], *, memory: float, following: float
) -> State:
    """Take in one block of each node.

    Args:
        state: Evidence so far, with a slot for each class of the block that is told apart.
        usage: The block.
        level: (nodes, resources) smoothed usage of the node, ratios; NaN: not known.
        sizes: (nodes, resources) cores and bytes that a ratio of 1 stands for.
        hold: (nodes,) True: containers start or end, or a resource is full; nothing is learned but how many pods run.
        memory: Seconds that evidence counts; they pass for a class without pods, too.
        following: Time constant of `rest`, seconds.
    """
    elapsed = np.where(state.at_us > 0, np.maximum(usage.at_us - state.at_us, 0) / 1e6, 0.0)
    fade = np.exp(-elapsed / memory)
    demand = usage.used.copy()
    demand[..., CPU] += usage.waiting
    counted = usage.counted
    learned = ~hold[:, None, None] & (counted > 0)
    gain = np.where(learned, usage.span[:, None, None], 0.0)
    residual = np.where(state.weight > 0, demand - slope(state) * counted, 0.0)
    kept = fade[:, None, None]

    without = np.maximum(level - over_slots(demand) / sizes, 0.0)
    live = ~hold[:, None] & ~np.isnan(level)
    first = np.isnan(state.rest)
    follow = -np.expm1(-usage.span / following)[:, None]
    deviation = np.where(first, 0.0, without - state.rest)
    seconds = state.seconds * fade + np.where(hold, 0.0, usage.span)
    part = _quotient(np.where(hold, 0.0, usage.span), seconds)[:, None]
    return State(
        label=state.label,
        pods=usage.pods,
        present_us=np.where(usage.pods > 0, usage.at_us[:, None], state.present_us),
        weight=state.weight * kept + gain,
        squares=state.squares * kept + gain * counted**2,
        products=state.products * kept + gain * counted * demand,
        errors=state.errors * kept + gain * residual**2,
        rest=np.where(live, np.where(first, without, state.rest + follow * deviation), state.rest),
        scatter=np.where(live, state.scatter + part * (deviation**2 - state.scatter), state.scatter),
        seconds=seconds,
        measured=state.measured | np.any(counted > 0, axis=1),
        at_us=usage.at_us,
    )


def _quotient(over: Array, under: Array) -> Array:
    """Divide; 0 where there is nothing to divide by."""
    return np.divide(over, under, out=np.zeros(np.broadcast(over, under).shape), where=under > 0)


def over_slots(values: Array) -> Array:
    """Sum over slots one after another, so that a node's sum is the same alone as among others."""
    summed: Array = np.add.accumulate(values, axis=1)[:, -1]
    return summed
