"""Peak by the greater of Borg-default and Resource Central: the maximum predictor of Bashir et al. (EuroSys 2021)."""

import numpy as np

from processors.prediction.models import borg_default, resource_central
from processors.prediction.models.protocol import Array, Evidence, PeakModel
from processors.prediction.tier import group
from schemas.sections.prediction import Predict


class Maximum:
    """The greater of two models; of the whole node only where both predict it."""

    name = "max"

    def peaks(self, evidence: Evidence, settings: Predict) -> Array:
        """Return (nodes, groups, resources) peaks."""
        rates = borg_default.MODEL.peaks(evidence, settings)
        percentiles = resource_central.MODEL.peaks(evidence, settings)
        greater: Array = np.fmax(rates, percentiles)
        greater[:, group.NODE] = np.maximum(rates[:, group.NODE], percentiles[:, group.NODE])
        return greater


MODEL: PeakModel = Maximum()
