"""Every model's forecast of every workload, the chosen one, and the pods that it takes.

What is forecast is the usage of all pods of a workload together, in cores and bytes. A line through utilisation would
fall whenever pods are added, though the load is the same. Pods are counted in CPU alone: memory does not fall when
more pods share the load, so pods that are added for memory would call for more.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.forecast import desired, model
from processors.forecast.history import Seen
from processors.forecast.scoring.accuracy import Scores
from processors.forecast.sums import RESOURCES, ROUNDING, Sum, Workload

Array = NDArray[np.float64]

_CPU = RESOURCES.index("cpu")


class Forecast(NamedTuple):
    """What is to be expected of one workload; amounts are (cores, bytes) of all its pods together.

    Attributes:
        workload: Whose pods they are.
        at_us: Event time that the numbers are of.
        now: What was observed then.
        initialization_seconds: Mean time from creation to ready.
        horizon_seconds: How far ahead; the initialization time within bounds.
        observations: Points behind the forecast.
        model: The chosen model; the reference where the one of the settings makes no forecast.
        forecasts: Of the reference and of the chosen model.
        desired: Pods that the chosen forecast takes.
        raises: The chosen forecast of CPU is above what is used now.
        accuracy: How right earlier forecasts were, by model.
    """

    workload: Workload
    at_us: int
    now: Sum
    initialization_seconds: float
    horizon_seconds: float
    observations: int
    model: str
    forecasts: dict[str, tuple[float, float]]
    desired: int
    raises: bool
    accuracy: Mapping[str, Scores] = MappingProxyType({})


def forecasts(at_us: int, seen: Seen, *, chosen: str, target: float, fitted: int) -> list[Forecast]:
    """Forecast workloads.

    Args:
        at_us: Event time.
        seen: The workloads, and what was observed of them.
        chosen: Name of the model that counts.
        target: Utilisation that is aimed at, above 0.
        fitted: Workloads, those with most pods, that a model which fits each series is asked about.

    Returns:
        One forecast of each workload, in the order of `seen`.
    """
    if not seen.names:
        return []
    ahead = _ask(seen, chosen, fitted)
    reference = ahead[model.REFERENCE]
    counts = ahead.get(chosen, np.full_like(reference, np.nan))
    has_forecast = np.asarray(np.isfinite(counts).all(axis=1))
    counts = np.where(has_forecast[:, None], counts, reference)[:, _CPU]
    requested = np.array([total.requested[_CPU] for total in seen.now])
    running = np.array([total.pods for total in seen.now], dtype=np.float64)
    raises = (counts > (1 + ROUNDING) * np.array([total.used[_CPU] for total in seen.now])) & (requested > 0)
    wanted = desired.pods(counts, requested, running, target=target)
    return [
        Forecast(
            workload=name,
            at_us=at_us,
            now=seen.now[index],
            initialization_seconds=float(seen.initialization[index]),
            horizon_seconds=float(seen.horizon[index]),
            observations=int(seen.observations[index]),
            model=chosen if has_forecast[index] else model.REFERENCE,
            forecasts={
                by: (float(amounts[index, 0]), float(amounts[index, 1]))
                for by, amounts in ahead.items()
                if np.isfinite(amounts[index]).all()
            },
            desired=int(wanted[index]),
            raises=bool(raises[index]),
        )
        for index, name in enumerate(seen.names)
    ]


def _ask(seen: Seen, chosen: str, fitted: int) -> dict[str, Array]:
    """Return forecasts (workloads, resources) of the reference and the chosen model; NaN: not asked, or none."""
    largest = sorted(range(len(seen.names)), key=lambda index: (-seen.now[index].pods, seen.names[index]))
    amounts: dict[str, Array] = {}
    for name in model.available():
        if name not in (model.REFERENCE, chosen):
            continue
        asked = np.array(largest[:fitted] if model.is_fitted(name) else largest, dtype=np.intp)
        amounts[name] = np.full(seen.values.shape[:2], np.nan)
        flat = seen.values[asked].reshape(-1, len(seen.seconds))
        horizon = np.repeat(seen.horizon[asked], len(RESOURCES))
        amounts[name][asked] = model.MODELS[name](seen.seconds, flat, horizon).reshape(-1, len(RESOURCES))
    return amounts
