"""Which form of each step is in force: the default, or the CARICO dissertation's as literally as it can be computed.

The chain calls the same names in either case; only this file distinguishes the two. Each form stands
behind a protocol, in a file of its own: `smoothing`, `model`, and `estimation.cost` for estimators.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from processors.estimation.cost import registry as estimators
from processors.estimation.cost.protocol import Estimator
from processors.model import capacity_signal
from processors.model import registry as models
from processors.model.capacity_signal import SignalForm
from processors.model.protocol import Model
from processors.smoothing import registry as smoothings
from processors.smoothing.protocol import Smoothing
from schemas.settings import Settings

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Variant:
    """The forms in force; see the modules behind them for shapes.

    Attributes:
        features: Rows of the model.
        policy: What fits is what the policy of slowdown allows (`limit`), not a full blend.
        slowdown: Mean slowdown at which the blend of CPU utilisation and pressure is 1.
        memory: Metric that counts as memory usage.
        quotas: Pressure that CPU quotas cause is left out.
        above_baseline: The model learns usage above the idle baseline, not all usage.
        absolute: The global model is in cores and bytes, not in each node's ratios.
        smoothing: Takes spikes out of metrics.
        model: Learns the second moment of usage.
        signal: Computes the capacity signal.
        estimator: Turns evidence into how many pods fit.
    """

    features: tuple[str, ...]
    policy: bool
    slowdown: float
    memory: str
    quotas: bool
    above_baseline: bool
    absolute: bool
    smoothing: Smoothing
    model: Model
    signal: SignalForm
    estimator: Estimator

    def units(self, sizes: Array) -> Array:
        """Return the sizes (nodes, features) by which a node's model is made absolute; ones in the reference."""
        return sizes if self.absolute else np.ones_like(sizes)


def choose(settings: Settings) -> Variant:
    """Return the forms that the settings ask for.

    Raises:
        ValueError: The estimator does not go with the variant of the model.
    """
    name = settings.model.variant
    carico = name == "carico"
    return Variant(
        features=("cpu", "memory") if carico else settings.model.features,
        policy=not carico,
        slowdown=2.0 if carico else settings.estimate.slowdown,
        memory="memory_used" if carico else "memory_util",
        quotas=not carico,
        above_baseline=not carico,
        absolute=not carico,
        smoothing=smoothings.make(settings.smoothing_form, settings.smoothing),
        model=models.make(models.OF_VARIANT[name], settings.model),
        signal=capacity_signal.reference if carico else capacity_signal.update,
        estimator=estimators.make(settings.estimate_form, name, settings.estimate),
    )
