"""All peak models by the names that settings give them.

The list of names in the settings is the registry: a model's file has the model's name, and binds it to `MODEL`.
"""

from collections.abc import Mapping
from importlib import import_module

import numpy as np
from numpy.typing import NDArray

from processors.prediction.models import koordinator
from processors.prediction.models.protocol import Evidence, PeakModel
from schemas.sections.prediction import PEAK_MODELS, Predict


def _load(name: str) -> PeakModel:
    model: PeakModel = import_module(f"{__package__}.{name}").MODEL
    return model


MODELS: Mapping[str, PeakModel] = {name: _load(name) for name in PEAK_MODELS}


def peaks(evidence: Evidence, settings: Predict) -> NDArray[np.float64]:
    """Return every model's peaks (nodes, groups, models, resources), models in the order of the settings' list.

    They include the margin of the settings, which lifts no peak above the machine; `koordinator` rounds its own.
    """
    every = [model.peaks(evidence, settings) for model in MODELS.values()]
    whole = evidence.size[:, None, :]
    raised = [
        peak if name == koordinator.MODEL.name else np.minimum(peak * margin(settings), np.maximum(peak, whole))
        for name, peak in zip(MODELS, every, strict=True)
    ]
    return np.stack(raised, axis=2)


def margin(settings: Predict) -> float:
    """Return the factor, 1 or more, by which the settings raise peaks."""
    return 1.0 + (settings.margin or 0.0)
