"""All estimators by the names that settings give them."""

from collections.abc import Callable, Mapping

from processors.estimation.cost.composed import Composed
from processors.estimation.cost.kalman_delta import KalmanDelta
from processors.estimation.cost.kalman_dual import KalmanDual
from processors.estimation.cost.kalman_joint import KalmanJoint
from processors.estimation.cost.least_squares import LeastSquares
from processors.estimation.cost.protocol import Estimator
from schemas.sections import estimation

_MAKERS: Mapping[str, Callable[[estimation.Estimate], Estimator]] = {
    Composed.name: lambda _: Composed(),
    LeastSquares.name: lambda _: LeastSquares(),
    KalmanDual.name: KalmanDual,
    KalmanJoint.name: KalmanJoint,
    KalmanDelta.name: KalmanDelta,
}
NAMES: tuple[str, ...] = tuple(_MAKERS)


def make(name: str, variant: str, settings: estimation.Estimate) -> Estimator:
    """Return the estimator of this name.

    Raises:
        ValueError: There is none of this name, or it does not go with the variant of the model.
    """
    if name not in _MAKERS:
        raise ValueError(f"estimate form: {name} is none of {', '.join(NAMES)}")
    estimator = _MAKERS[name](settings)
    if variant not in estimator.variants:
        meant = [f"{each} on {' and '.join(_MAKERS[each](settings).variants)}" for each in NAMES]
        raise ValueError(f"estimate form {name} does not work with the {variant} model; valid are {', '.join(meant)}")
    return estimator
