"""What one pod costs: least squares of usage on the number of pods, forgetting only when there is news.

Per node and resource `usage = baseline + cost * pods`. With running means of pods n and usage y (time constant: the
memory), the sums of squared and crossed deviations give the slope; they are the centred form of recursive least
squares with exponential forgetting, so while n keeps moving the slope equals that of the textbook recursion. While
n stands still, a textbook recursion forgets its evidence and its covariance explodes; here sums fade only in
proportion to deviation that comes in. The prior cost c0 enters as evidence of weight 1/(relative deviation * c0)^2,
in the conjugate (ridge) form: `cost = (Sny/v + c0/d^2) / (Snn/v + 1/d^2)`, v the noise variance, d = deviation * c0.
`prior` is the share of the second term: 1 without evidence, towards 0 with it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation.cost.protocol import Estimate, Second

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
    """Return the state without evidence."""
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


def resized(state: State, factor: Array) -> State:
    """Return the state of nodes whose usage of a resource is (nodes, resources) times what it was, as a share."""
    return state._replace(
        usage=state.usage * factor,
        products=state.products * factor,
        noise=state.noise * factor**2,
        baseline=state.baseline * factor,
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
    learned = state.squares[:, None] / noise
    total = learned + assumed
    value = np.maximum((np.maximum(state.products, 0.0) / noise + prior * assumed) / total, _FLOOR)
    return Cost(value=value, variance=1.0 / total, prior=assumed / total)


def slope(state: State) -> Array:
    """Return the cost (nodes, resources) by evidence alone, 0 where there is none."""
    squares = state.squares[:, None]
    quotient: Array = np.divide(state.products, squares, out=np.zeros_like(state.products), where=squares > 0)
    return np.maximum(quotient, 0.0)


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
    """Learn from one report of each node.

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
    second = _second(state, usage, pods, elapsed, hold, memory)
    noise_weight, noise = _noise(state, second, value)
    squares, products = _deviations(state, second)
    return State(
        weight=np.where(second.live, second.weight, state.weight),
        pods=state.pods + second.share * second.step,
        usage=state.usage + second.share[:, None] * second.rise,
        squares=squares,
        products=products,
        noise=noise,
        noise_weight=noise_weight,
        baseline=_baseline(state, second, usage, value, level),
    )


class _Second(NamedTuple):
    """What a report brings: deviations from the means, and the weight that it has.

    `live` (nodes,): something is learned; `usable` (nodes, resources): of this resource. `running` pods (nodes,).
    `fade` (nodes,) is what is left of older evidence, `weight` (nodes,) the evidence with the report's `seconds`,
    `share` (nodes,) the report's part in it. `step` (nodes,) and `rise` (nodes, resources) are deviations of pods and
    usage.
    """

    live: NDArray[np.bool_]
    usable: NDArray[np.bool_]
    running: Array
    seconds: Array
    fade: Array
    weight: Array
    share: Array
    step: Array
    rise: Array


def _second(state: State, usage: Array, pods: Array, elapsed: Array, hold: NDArray[np.bool_], memory: float) -> _Second:
    live = ~hold & ~np.isnan(pods)
    usable = live[:, None] & ~np.isnan(usage)
    running = np.where(live, pods, 0.0)
    seconds = np.where(live, elapsed, 0.0)
    fade = np.exp(-seconds / memory)
    weight = state.weight * fade + seconds
    share = np.divide(seconds, weight, out=np.zeros_like(weight), where=weight > 0)
    step = np.where(live, running - state.pods, 0.0)
    rise = np.where(usable, usage - state.usage, 0.0)
    return _Second(live, usable, running, seconds, fade, weight, share, step, rise)


def _deviations(state: State, second: _Second) -> tuple[Array, Array]:
    """Return the sums of squares and of products; only deviation that comes in fades what was there before."""
    kept = np.where(np.abs(second.step) > _NEWS, second.fade, 1.0)
    gain = np.where(state.weight == 0, 0.0, (1.0 - second.share) * second.seconds)
    squares = state.squares * kept + gain * second.step**2
    faded = state.products * np.where(second.usable, kept[:, None], 1.0)
    return squares, faded + gain[:, None] * second.step[:, None] * second.rise


def _noise(state: State, second: _Second, value: Array) -> tuple[Array, Array]:
    """Return the evidence behind the noise, and the noise: what the line of cost and pods leaves unexplained.

    The line is the evidence's own, because a wrong assumption is no noise; without evidence it is the cost in force.
    """
    line = np.where(state.squares[:, None] > 0, slope(state), value)
    residual = np.where((state.weight == 0)[:, None], 0.0, second.rise - line * second.step[:, None])
    weight = state.noise_weight * second.fade + second.seconds
    part = np.divide(second.seconds, weight, out=np.zeros_like(weight), where=weight > 0)
    noise = np.where(second.usable, state.noise + part[:, None] * (residual**2 - state.noise), state.noise)
    return np.where(second.live, weight, state.noise_weight), noise


def _baseline(state: State, second: _Second, usage: Array, value: Array, level: float) -> Array:
    """Return the usage without pods (nodes, resources), followed with the time constant `level`."""
    without = np.maximum(usage - value * second.running[:, None], 0.0)
    follow = 1.0 - np.exp(-second.seconds / level)
    followed = state.baseline + follow[:, None] * (without - state.baseline)
    return np.where(second.usable, np.where(np.isnan(state.baseline), without, followed), state.baseline)


class LeastSquares:
    """The form `least_squares`: room for the mean pod, as the chain computes it from this evidence."""

    name = "least_squares"
    variants: tuple[str, ...] = ("default", "carico")
    by_class = False

    def init(self, signal: Array, cost: Array) -> tuple[Array, ...]:  # noqa: ARG002
        """Return no state: the evidence is the chain's, whatever the estimator."""
        return ()

    def update(
        self,
        state: tuple[Array, ...],
        second: Second,  # noqa: ARG002
        estimate: Estimate,
    ) -> tuple[tuple[Array, ...], Estimate]:
        """Return the estimate as it is."""
        return state, estimate
