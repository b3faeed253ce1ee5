"""The dissertation's two-speed average: slow for a spike, fast once a change has lasted.

An exponential average that is slow enough to hide a spike of 0.2 s follows a real change far too late. So it runs with
a slow gain, and with a fast one as soon as the samples have been on one side of the level for longer than 0.3 s; the
first sample on the other side makes it slow again (CARICO dissertation, section 4.2.2, which gives the 0.3 s but no
gains). With time constant T a gain is 1 - exp(-step / T). The slow T of 6 s leaks 1 - exp(-0.2 / 6) = 3.3 % of a pulse
of 0.2 s; the fast T of 0.25 s brings a step to 90 % in 0.9 s, 0.3 s of it waiting.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_PATIENCE_SECONDS = 0.3
_SLOW_SECONDS = 6.0
_FAST_SECONDS = 0.25


class State(NamedTuple):
    """Where the average stands.

    Attributes:
        level: (nodes, metrics), in the metric's unit; NaN before the first known sample.
        run: (nodes, metrics), number of samples in a row above the level, negative below it.
    """

    level: Array
    run: Array


def init(nodes: int, metrics: int) -> State:
    """Return the state before any sample."""
    return State(np.full((nodes, metrics), np.nan), np.zeros((nodes, metrics)))


def update(state: State, samples: Array, *, step: float | Array) -> tuple[State, Array]:
    """Smooth the next samples; how they are cut into calls does not change the result.

    The first known sample becomes the level. A missing sample changes nothing and repeats the level.

    Args:
        state: What the last call returned, or `init`.
        samples: (nodes, samples, metrics); NaN = missing.
        step: Seconds from one sample to the next, for all nodes or per node (nodes,).

    Returns:
        The state, and the smoothed samples in the shape of `samples`; missing before the first known sample.
    """
    seconds = np.reshape(step, (-1, 1))
    slow, fast = -np.expm1(-seconds / _SLOW_SECONDS), -np.expm1(-seconds / _FAST_SECONDS)
    patience = np.floor(_PATIENCE_SECONDS / seconds + 1e-9)  # 3 steps of 0.1 s are 0.3 s despite rounding
    level, run = state
    smoothed = np.empty_like(samples)
    for index in range(samples.shape[1]):
        sample = samples[:, index]
        deviation = np.where(np.isnan(level), 0.0, sample - level)
        side = np.sign(deviation)
        continued = np.where(side * run > 0, run + side, side)
        gain = np.where(np.abs(continued) > patience, fast, slow)
        valid = ~np.isnan(sample)
        level = np.where(valid, np.where(np.isnan(level), sample, level + gain * deviation), level)
        run = np.where(valid, continued, run)
        smoothed[:, index] = level
    return State(level, run), smoothed


class DynamicEma:
    """The form `dynamic_ema`."""

    name = "dynamic_ema"
    reach = 0

    def init(self, nodes: int, metrics: int) -> State:
        """Return the state before any sample."""
        return init(nodes, metrics)

    def update(self, state: tuple[Array, ...], samples: Array, step: Array) -> tuple[State, Array]:
        """Smooth the next samples."""
        return update(State(*state), samples, step=step)
