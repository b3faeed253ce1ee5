"""Which form of each step is in force: the default, or the CARICO dissertation's as literally as it can be computed.

The chain calls the same names in either case; this file is the only one that knows that there are two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from processors.estimation.availability import ONE_SIDED_90, PODS, Room
from processors.estimation.cost import kalman as kalman_estimate
from processors.estimation.cost import kalman_delta, kalman_dual, kalman_joint
from processors.model import capacity_signal, second_moment, subspace
from processors.smoothing import dynamic_ema, running_median
from schemas.settings import Settings

Array = NDArray[np.float64]
Arrays = tuple[Array, ...]

_KALMAN: dict[str, Any] = {"kalman_dual": kalman_dual, "kalman_joint": kalman_joint, "kalman_delta": kalman_delta}


@dataclass(frozen=True)
class Variant:
    """The forms in force; see the modules behind them for shapes.

    `policy`: what fits is what the policy of slowdown allows (`limit`), not a full blend. `smoothing_reach` is how many
    older samples a smoothed one is made of; an average has no such end and counts 0.
    """

    features: tuple[str, ...]
    policy: bool
    slowdown: float
    memory: str
    quotas: bool
    above_baseline: bool
    absolute: bool
    smoothing_init: Callable[[int, int], Any]
    smoothing_update: Callable[[Any, Array, Array], tuple[Any, Array]]
    smoothing_reach: int
    model_init: Callable[[int, int], Any]
    model_update: Callable[[Any, Array, Array], tuple[Any, Array]]
    model_of: Callable[[Array], Any]
    signal: Callable[..., capacity_signal.Signal]
    kalman_init: Callable[[Array, Array], Any]
    kalman_update: Callable[..., tuple[Any, Room, Array]]

    def units(self, sizes: Array) -> Array:
        """Return the sizes (nodes, features) by which a node's model is made absolute; ones in the reference."""
        return sizes if self.absolute else np.ones_like(sizes)


def choose(settings: Settings) -> Variant:
    """Return the forms that the settings ask for."""
    carico = settings.model.variant == "carico"
    median = settings.smoothing_form == "running_median"
    model = settings.model
    kalman = _KALMAN.get(settings.estimate_form)

    def smooth_init(nodes: int, metrics: int) -> Any:
        if median:
            return running_median.init(nodes, metrics, size=settings.smoothing.window)
        return dynamic_ema.init(nodes, metrics)

    def smooth(state: Any, samples: Array, step: Array) -> tuple[Any, Array]:
        if median:
            return running_median.update(state, samples, size=settings.smoothing.window)
        return dynamic_ema.update(state, samples, step=step)

    def learn(state: Any, batch: Array, elapsed: Array) -> tuple[Any, Array]:
        if not carico:
            return second_moment.update(state, batch, elapsed, tau=model.tau_seconds)
        return subspace.update(state, batch, elapsed, tau=model.tau_seconds)

    def model_init(nodes: int, size: int) -> Any:
        return subspace.init(nodes, size, rank=min(model.rank, size)) if carico else second_moment.init(nodes, size)

    def model_of(moment: Array) -> Any:
        if not carico:
            return second_moment.State(moment)
        return subspace.of_moment(moment, rank=min(model.rank, moment.shape[1]))

    return Variant(
        features=("cpu", "memory") if carico else model.features,
        policy=not carico,
        slowdown=2.0 if carico else settings.estimate.slowdown,
        memory="memory_used" if carico else "memory_util",
        quotas=not carico,
        above_baseline=not carico,
        absolute=not carico,
        smoothing_init=smooth_init,
        smoothing_update=smooth,
        smoothing_reach=settings.smoothing.window - 1 if median else 0,
        model_init=model_init,
        model_update=learn,
        model_of=model_of,
        signal=capacity_signal.reference if carico else capacity_signal.update,
        kalman_init=_nothing if kalman is None else kalman.init,
        kalman_update=_keep if kalman is None else partial(_kalman, kalman, settings),
    )


def _nothing(_signal: Array, _cost: Array) -> Arrays:
    return ()


def _keep(
    state: Any, _fresh: Any, _signal: Array, _pods: Array, _churn: Any, room: Room, prior: Array, _most: Array
) -> tuple[Any, Room, Array]:
    return state, room, prior


def _kalman(
    form: Any,
    settings: Settings,
    state: Any,
    fresh: NDArray[np.bool_],
    signal: Array,
    pods: Array,
    churn: NDArray[np.bool_],
    room: Room,
    _prior: Array,
    most: Array,
) -> tuple[Any, Room, Array]:
    """Replace the room by `signal/cost` (eq 3.12), in churn by `capacity/cost - pods` (eq 3.13).

    A node seen for the first time starts from the signal that one pod of the prior cost takes away.
    """
    estimate = settings.estimate
    start = form.init(signal, np.maximum(signal, 1e-6) / np.maximum(room.available, 1e-3))
    state = _choose(fresh, start, state)
    hold = (churn & estimate.hold_in_churn) | (signal <= 0)
    state, found = form.update(state, signal, pods, hold, process_noise=estimate.process_noise)
    limit = np.maximum(most - pods, 0.0)
    form_signal, form_capacity = signal / found.cost, np.maximum(found.capacity / found.cost - pods, 0.0)
    believed = np.where(churn, form_capacity, form_signal)
    available = np.minimum(believed, limit)
    deviation = believed * np.sqrt(np.maximum(found.variance_of_cost, 0.0)) / found.cost
    prior = np.clip(found.variance_of_cost / kalman_estimate.prior_variance(found.cost), 0.0, 1.0)
    replaced = room._replace(
        available=available,
        lower=np.clip(believed - ONE_SIDED_90 * deviation, 0.0, available),
        upper=np.maximum(np.minimum(believed + ONE_SIDED_90 * deviation, limit), available),
        binding=np.where(limit < believed, PODS, room.resource),
        cost=found.cost,
        capacity=np.maximum(found.capacity, 0.0),
    )
    return state, replaced, prior


def _choose(rows: NDArray[np.bool_], ours: Any, others: Any) -> Any:
    parts = [
        np.where(rows.reshape((-1,) + (1,) * (left.ndim - 1)), left, right)
        for left, right in zip(ours, others, strict=True)
    ]
    return type(ours)._make(parts)
