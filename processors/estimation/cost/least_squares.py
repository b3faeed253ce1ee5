"""What one pod costs: least squares of usage on the number of pods, forgetting only when there is news.

Per node and resource `usage = baseline + cost * pods`. With running means of pods n and usage y (time constant: the
memory), the sums of squared and crossed deviations give the slope; they are the centred form of recursive least
squares with exponential forgetting, so while n keeps moving the slope equals that of the textbook recursion. While
n stands still, a textbook recursion forgets what it knew and its covariance explodes; here sums fade only in
proportion to deviation that comes in. The prior cost c0 enters as evidence of weight 1/(relative deviation * c0)^2,
in the conjugate (ridge) form: `cost = (Sny/v + c0/d^2) / (Snn/v + 1/d^2)`, v the noise variance, d = deviation * c0.
`prior` is the share of the second term: 1 without evidence, towards 0 with it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_NEWS = 0.05
_QUIET = 1e-4
_FLOOR = 1e-9


class State(NamedTuple):
    """Evidence per node.

    Attributes:
        weight: (nodes,) seconds of evidence behind the means, faded.
        pods: (nodes,) running mean of the number of pods.
        usage: (nodes, resources) running mean of usage.
        squares: (nodes,) sum of squared deviations of pods.
        products: (nodes, resources) sum of products of deviations of pods and usage.
        noise: (nodes, resources) variance of what cost and pods do not explain; ratio squared.
        noise_weight: (nodes,) evidence behind the noise.
        baseline: (nodes, resources) usage without pods, following fast.
    """

    weight: Array
    pods: Array
    usage: Array
    squares: Array
    products: Array
    noise: Array
    noise_weight: Array
    baseline: Array


class Cost(NamedTuple):
    """Estimate per node and resource.

    Attributes:
        value: (nodes, resources) share of the resource that one pod takes, above 0.
        variance: (nodes, resources) of `value`.
        prior: (nodes, resources) share of the prior in `value`, 0..1.
    """

    value: Array
    variance: Array
    prior: Array


def init(nodes: int, resources: int) -> State:
    """Return the state of nodes that nothing is known of."""
    wide = (nodes, resources)
    return State(
        weight=np.zeros(nodes),
        pods=np.zeros(nodes),
        usage=np.zeros(wide),
        squares=np.zeros(nodes),
        products=np.zeros(wide),
        noise=np.zeros(wide),
        noise_weight=np.zeros(nodes),
        baseline=np.full(wide, np.nan),
    )


def cost(state: State, prior: Array, *, deviation: float) -> Cost:
    """Weigh evidence and prior.

    No pod gives room back: evidence below 0 (other load fell while pods came) counts as 0, so that it cannot take away
    what is assumed.

    Args:
        state: Evidence.
        prior: (nodes, resources) cost that is assumed, above 0.
        deviation: Relative standard deviation of the prior.
    """
    noise = np.maximum(state.noise, _QUIET**2)
    assumed = 1.0 / (deviation * np.maximum(prior, slope(state))) ** 2
    known = state.squares[:, None] / noise
    total = known + assumed
    value = np.maximum((np.maximum(state.products, 0.0) / noise + prior * assumed) / total, _FLOOR)
    return Cost(value=value, variance=1.0 / total, prior=assumed / total)


def slope(state: State) -> Array:
    """Return the cost (nodes, resources) by evidence alone, 0 where there is none."""
    known = state.squares[:, None]
    found: Array = np.divide(state.products, known, out=np.zeros_like(state.products), where=known > 0)
    return np.maximum(found, 0.0)


def update(
    state: State,
    usage: Array,
    pods: Array,
    elapsed: Array,
    hold: NDArray[np.bool_],
    value: Array,
    *,
    memory: float,
    level: float,
) -> State:
    """Take in one report of each node.

    Args:
        state: Evidence so far.
        usage: (nodes, resources) ratios; NaN: not known, nothing is learned of that resource.
        pods: (nodes,) running pods; NaN: not known, nothing is learned.
        elapsed: (nodes,) seconds since the report before.
        hold: (nodes,) True: containers start or end now, or a resource is full; the node's evidence is not touched.
        value: (nodes, resources) cost in force, for baseline and noise.
        memory: Seconds that evidence counts.
        level: Time constant of the baseline, seconds.
    """
    live = ~hold & ~np.isnan(pods)
    known = live[:, None] & ~np.isnan(usage)
    count = np.where(live, pods, 0.0)
    seconds = np.where(live, elapsed, 0.0)
    fade = np.exp(-seconds / memory)

    weight = state.weight * fade + seconds
    share = np.divide(seconds, weight, out=np.zeros_like(weight), where=weight > 0)
    step = np.where(live, count - state.pods, 0.0)
    rise = np.where(known, usage - state.usage, 0.0)
    first = state.weight == 0
    # Against the evidence's own line: an assumption that is wrong is no noise. Without evidence there is nothing else.
    line = np.where(state.squares[:, None] > 0, slope(state), value)
    residual = np.where(first[:, None], 0.0, rise - line * step[:, None])

    # Only deviation that comes in may push out what is known: a quiet hour is no reason to forget a cost.
    news = np.abs(step) > _NEWS
    kept = np.where(news, fade, 1.0)
    gain = np.where(first, 0.0, (1.0 - share) * seconds)
    squares = state.squares * kept + gain * step**2
    products = state.products * np.where(known, kept[:, None], 1.0) + gain[:, None] * step[:, None] * rise

    noise_weight = state.noise_weight * fade + seconds
    part = np.divide(seconds, noise_weight, out=np.zeros_like(noise_weight), where=noise_weight > 0)
    noise = np.where(known, state.noise + part[:, None] * (residual**2 - state.noise), state.noise)

    without = np.maximum(usage - value * count[:, None], 0.0)
    follow = 1.0 - np.exp(-seconds / level)
    followed = state.baseline + follow[:, None] * (without - state.baseline)
    baseline = np.where(known, np.where(np.isnan(state.baseline), without, followed), state.baseline)
    return State(
        weight=np.where(live, weight, state.weight),
        pods=state.pods + share * step,
        usage=state.usage + share[:, None] * rise,
        squares=squares,
        products=products,
        noise=noise,
        noise_weight=np.where(live, noise_weight, state.noise_weight),
        baseline=baseline,
    )
