"""What a pod of each class takes, by evidence and by what is assumed of it.

What is assumed of a class (its cost elsewhere, W0) enters with the weight 1/(d max(W0, W))^2, d its relative
deviation: an assumption that is off by a factor is given up as fast as one that is right is confirmed. What the level
itself is unsure by is its weight on the other side, and that of one more second in which the deviation d is expected.

A serving class's demand wanders more slowly than a few seconds show, so it stays unsure until it was watched for long.
A soaking class has a whole number of threads that never sleep: nothing of it wanders, and pods that live for a few
seconds each teach as much as one that lives for long.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import level
from processors.estimation.level import quotient
from processors.workload import classes, kind
from processors.workload.usage import CPU, MEMORY, over_slots

Array = NDArray[np.float64]

_WANDER = np.array([0.3, 0.0])  # relative deviation of a demand that was watched for no time
_WANDER_SECONDS = 10.0
_SETTLING_SECONDS = 6.0
_BEGINNING_SECONDS = 60.0  # of a class on a node: requests may not come yet, and memory grows
_MUCH_LESS = np.array([0.8, 0.95])
_NOISE = 1.5  # times that of independent pods, since both variances are those of a minute or less
_MOST_TIMES = np.array([30.0, 8.0])  # what they take now: a false claim is outvoted within seconds, not at once


class Cost(NamedTuple):
    """What a pod of each class takes.

    Attributes:
        value: (nodes, slots, resources) cores and bytes, above 0.
        variance: (nodes, slots, resources) of `value`.
        prior: (nodes, slots, resources) share of `value` that is not evidence yet, 0..1: that of the prior in it, and
            most of it while it was watched for a few seconds only, however steady it was.
        soaking: (nodes, slots) True: its threads are always runnable.
    """

    value: Array
    variance: Array
    prior: Array
    soaking: NDArray[np.bool_]


def beginning(state: classes.State, cost: Cost, elsewhere: Array, *, deviation: float) -> tuple[classes.State, Cost]:
    """Return evidence and cost that let the first pods of a class on a node become what others of it are.

    They may take much less than those as long as no request reaches them, or until they have allocated what they hold.
    That says nothing of what others like them will take. Nor is it room: what they lack of it is pending. This is only
    for costs that several nodes attest, where there are as many: otherwise one node could take the room of others.

    Args:
        state: Evidence.
        cost: What `weigh` makes of it.
        elsewhere: (nodes, slots, resources) cost in the cluster; NaN: it knows none.
        deviation: Relative standard deviation of that.
    """
    begins = (state.pods > 0) & (state.demand.age < _BEGINNING_SECONDS)
    if not begins.any():
        return state, cost
    elsewhere = np.minimum(elsewhere, _MOST_TIMES * cost.value)
    less = begins[..., None] & (cost.value < _MUCH_LESS * elsewhere)
    lacking = np.where(less[..., MEMORY], np.maximum(elsewhere[..., MEMORY] - state.most, 0.0) * state.pods, 0.0)
    raised = cost._replace(
        value=np.where(less, elsewhere, cost.value),
        variance=np.where(less, (deviation * elsewhere) ** 2, cost.variance),
        prior=np.where(less, 1.0 - (1.0 - cost.prior) * quotient(cost.value, elsewhere), cost.prior),
    )
    return state._replace(pending=state.pending + over_slots(lacking[..., None])[:, 0]), raised


def weigh(state: classes.State, prior: Array, *, deviation: Array | float) -> Cost:
    """Weigh evidence and prior.

    Args:
        state: Evidence.
        prior: (nodes, slots, resources) cost that is assumed, above 0.
        deviation: Relative standard deviation of the prior, one or (nodes, slots, 1).
    """
    doubt = (deviation * np.maximum(prior, classes.slope(state))) ** 2
    seconds = np.stack((state.demand.seconds + state.started, state.held), axis=-1)
    widened = state.demand.variance * level.correlated(state.demand.product, state.demand.variance)
    noise = np.stack((widened, np.zeros_like(widened)), axis=-1)
    # One more second with the prior's own deviation: a fresh level is believed after some seconds, not at once. And
    # what wanders more slowly than it was watched shows in no residual.
    soaking = state.kind > kind.SOAKING
    wander = (_WANDER * classes.slope(state)) ** 2 * _WANDER_SECONDS / (_WANDER_SECONDS + seconds)
    wander = np.where(soaking[..., None], 0.0, wander)
    unsure = quotient(noise + doubt / (seconds + 1.0), seconds) + np.where(seconds > 0, wander, 0.0)
    precision = np.divide(1.0, unsure, out=np.zeros_like(unsure), where=unsure > 0)
    assumed = 1.0 / doubt
    value = (classes.slope(state) * precision + prior * assumed) / (total := precision + assumed)
    share = np.maximum(assumed / total, np.exp(-seconds / _SETTLING_SECONDS))
    return Cost(value=value, variance=1.0 / total, prior=share, soaking=soaking)


def differing(state: classes.State) -> Array:
    """Return the variance (nodes, slots, resources) of one pod's cost around that of the mean pod, for a bound.

    Cores of pods differ in each second, also where in the mean of many they do not. Where they do so each for itself,
    that noise is n times the variance of the mean of n pods.

    Few pods, and sizes that spread like a log-normal, show less than they differ by: where the large ones are missing
    among n, their mean is too small and their variance, too. With (n + 1) / (n - 1) and 1 + 4 b^2, b the relative
    deviation, the bound of log-normal sizes holds in 87 to 93 % of cases, from six pods on and b from 0.3 to 0.8.
    """
    noise = np.zeros_like(state.between)
    noise[..., CPU] = _NOISE * state.pods * state.demand.variance
    seen = np.maximum(state.between - noise, 0.0)
    few = (state.pods + 1) / np.maximum(state.pods - 1, 1.0)
    skewed = 1 + 4 * np.minimum(quotient(seen, classes.slope(state) ** 2), 1.0)
    return np.asarray(seen * few[..., None] * skewed)
