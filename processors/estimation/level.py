"""A level that noise surrounds: followed slowly while it holds, quickly once it has moved.

The mean of what was seen, at most `slow` seconds of it. A value further than four standard deviations off is taken
for a step, not for noise, and followed within a second or two. The variance takes such a value for four deviations, so
that a step does not count as noise for long. Neighbouring values are alike (a program that is busy stays busy), so
the mean of T seconds is less sure than 1/T: with lag-one correlation r of the deviations its variance is
`v (1 + r) / (1 - r) / T`, as of a first-order autoregression.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

FAST_SECONDS = 0.5
SLOW_SECONDS = 10.0
_DEVIATIONS_SQUARED = 16.0
_FLOOR = 1e-4  # squared; a hundredth of a machine is no step
_MEMORY_SECONDS = 60.0
_AGAIN = 0.5  # of the squared bound: the value before was far off, too
_NEARLY = 0.9  # of what a value at the bound has of that after it has widened the bound itself
_YOUNG_SECONDS = 4.0  # until then the noise is unknown, and nothing is a step
_MOST_CORRELATED = 0.9
_LEAST_PART = 1 / 6  # of what is averaged, where values are so much alike that the level must be on its way
_NEGLIGIBLE = 0.1  # of the least variance of noise


class State(NamedTuple):
    """Levels of some nodes; every array is (nodes, levels).

    Attributes:
        mean: The level; NaN: not known.
        variance: Of values around it.
        product: Mean product of a deviation and the one before.
        last: Newest deviation.
        seconds: How long it was followed since it last moved.
        age: How long its noise was followed.
    """

    mean: Array
    variance: Array
    product: Array
    last: Array
    seconds: Array
    age: Array


def init(nodes: int, levels: int) -> State:
    """Return unknown levels."""
    shape = (nodes, levels)
    return State(np.full(shape, np.nan), *(np.zeros(shape) for _ in State._fields[1:]))


def update(
    state: State,
    value: Array,
    seconds: Array,
    hold: NDArray[np.bool_],
    *,
    slow: Array | float,
    fast: float = FAST_SECONDS,
    bursts: bool = False,
    floor: Array | float = _FLOOR,
) -> State:
    """Follow one value of each level.

    Args:
        state: Levels so far.
        value: (nodes, levels); NaN: not known, that level stays.
        seconds: (nodes,) time that it stands for.
        hold: (nodes, levels or 1) True: the value is ignored, and the level stays, unless the level is unknown.
        slow: Seconds that are averaged while the level holds, one or (nodes, levels).
        fast: Seconds in which a step is followed.
        bursts: Single values lie far off now and then; only the second one in a row on the same side is a step.
        floor: Variance that noise has at least, one or (nodes, levels).
    """
    first = np.isnan(state.mean)
    live = ~np.isnan(value) & (first | ~hold)
    span = np.where(live, seconds[:, None], 0.0)
    deviation = np.where(live & ~first, value - state.mean, 0.0)
    bound = _DEVIATIONS_SQUARED * (state.variance + floor)
    far = (deviation**2 > bound) & (state.age >= _YOUNG_SECONDS)
    # While the level is young, the value before has widened the bound by itself, and much.
    again = np.minimum(_AGAIN, _NEARLY / (1 + _DEVIATIONS_SQUARED * quotient(span, np.maximum(state.age, 1.0))))
    step = far & (state.last**2 >= again * bound) & (deviation * state.last > 0) if bursts else far
    # Among bursts a step is no noise, and what is known of the noise outlives it; else both are learned again after it.
    kept = step if bursts else np.zeros_like(step)
    averaged = np.minimum(state.seconds, slow)
    held = np.where(far, np.sign(deviation) * np.sqrt(bound), deviation)
    moved = np.where(step, -np.expm1(-span / fast) * deviation, quotient(span, averaged + span) * held)
    age = np.minimum(state.age, _MEMORY_SECONDS) + span
    part = np.where(live & ~first & ~kept, quotient(span, age), 0.0)
    return State(
        mean=np.where(live & first, value, state.mean + moved),
        variance=state.variance + part * (held**2 - state.variance),
        product=state.product + part * (held * state.last - state.product),
        last=np.where(live, held, state.last),
        # What was averaged before a step is no evidence of the level after it.
        seconds=np.where(step, 2.0 * span, state.seconds + span),
        age=np.where(step & ~kept, np.minimum(state.age, _YOUNG_SECONDS), state.age) + span,
    )


def moving(state: State, slow: float, floor: Array | float = _FLOOR) -> tuple[State, Array]:
    """Return the state, and how many of these seconds are averaged (nodes, levels): fewer where the level moves.

    What was averaged before is no evidence of where such a level is now, so its state has as few seconds.

    Of noise as of a first-order autoregression up to 0.9 neighbouring deviations are less alike than those of a level
    that follows a straight line, which differ by hardly more than what noise there is. What moves by next to nothing,
    beside the least noise that is expected (`floor`), does not count.
    """
    correlation = quotient(state.product, state.variance + _NEGLIGIBLE * floor)
    averaged = slow * np.clip((1 - correlation) / (1 - _MOST_CORRELATED), _LEAST_PART, 1.0)
    seconds = np.where(averaged < slow, np.minimum(state.seconds, averaged), state.seconds)
    return state._replace(seconds=seconds), averaged


def quotient(over: Array, under: Array) -> Array:
    """Divide; 0 where there is nothing to divide by."""
    return np.divide(over, under, out=np.zeros(np.broadcast(over, under).shape), where=under > 0)


def correlated(product: Array, variance: Array) -> Array:
    """Return by how much neighbouring deviations' likeness widens the variance of a mean: (1 + r) / (1 - r)."""
    with np.errstate(over="ignore"):  # after days without noise both are next to nothing, and so is what they widen
        ratio = np.divide(product, variance, out=np.zeros_like(variance), where=variance > 0)
    correlation = np.clip(ratio, 0.0, _MOST_CORRELATED)
    widened: Array = (1 + correlation) / (1 - correlation)
    return widened


def doubt(state: State, *, slow: float) -> Array:
    """Return the variance (nodes, levels) of the level itself."""
    averaged = np.clip(state.seconds, 1.0, slow)
    bounded: Array = np.minimum(correlated(state.product, state.variance) / averaged, 1.0) * state.variance
    return bounded
