"""All forms of smoothing by the names that settings give them."""

from collections.abc import Callable, Mapping

from processors.smoothing.dynamic_ema import DynamicEma
from processors.smoothing.protocol import Smoothing
from processors.smoothing.running_median import RunningMedian
from schemas.sections import estimation

_MAKERS: Mapping[str, Callable[[estimation.Smoothing], Smoothing]] = {
    RunningMedian.name: lambda settings: RunningMedian(settings.window),
    DynamicEma.name: lambda _: DynamicEma(),
}
NAMES: tuple[str, ...] = tuple(_MAKERS)


def make(name: str, settings: estimation.Smoothing) -> Smoothing:
    """Return the form of this name.

    Raises:
        ValueError: There is none of this name.
    """
    if name not in _MAKERS:
        raise ValueError(f"smoothing form: {name} is none of {', '.join(NAMES)}")
    return _MAKERS[name](settings)
