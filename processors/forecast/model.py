"""Which models there are, by name: each carries series on to a time ahead, and knows nothing else."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from processors.forecast import holt, linear, smoothing

Array = NDArray[np.float64]

REFERENCE = "smoothing"


class Model(Protocol):
    """Carries series on."""

    def __call__(self, seconds: Array, values: Array, horizon: Array, /) -> Array:
        """Forecast every series.

        Args:
            seconds: (observations,) when they were made, before now: at most 0, rising, no two equal.
            values: (series, observations) amounts, at least 0; NaN: missing.
            horizon: (series,) how far ahead, seconds.

        Returns:
            (series,) amounts, at least 0; NaN where the model has nothing to say.
        """


# A model of your own goes in here, with the package that it needs.
MODELS: Mapping[str, Model] = {
    REFERENCE: smoothing.forecast,
    "linear": linear.forecast,
    "holt": holt.forecast,
}
_PACKAGES = {"holt": "statsmodels"}


def available() -> tuple[str, ...]:
    """Return the names of the models whose packages are installed, the reference first."""
    return tuple(name for name in MODELS if name not in _PACKAGES or find_spec(_PACKAGES[name]) is not None)


def is_fitted(name: str) -> bool:
    """Tell whether a model fits each series, which takes milliseconds, and so is asked about few of them."""
    return name in _PACKAGES


def missing(name: str) -> str | None:
    """Return why a model cannot be used, in one sentence; None: it can.

    >>> missing("linear")
    >>> missing("oracle")
    'forecast model oracle is unknown; there are smoothing, linear, holt'
    """
    if name not in MODELS:
        return f"forecast model {name} is unknown; there are {', '.join(MODELS)}"
    if name not in available():
        install = f"{_PACKAGES[name]}, which is not installed (pip install '.[forecast]' in a checkout)"
        return f"forecast model {name} needs {install}; {REFERENCE} is used"
    return None
