"""Peak that states how often usage rises above it: the mean plus as many scales as the stated probability takes.

How many scales, `scoring.conformal` learns from earlier predictions of all nodes.
"""

import numpy as np

from processors.prediction.models.protocol import Array, Evidence, PeakModel
from processors.prediction.scoring import conformal
from schemas.sections.prediction import Predict


class Calibrated:
    """Split conformal prediction; nothing is predicted of a group that was never seen."""

    name = "calibrated"

    def peaks(self, evidence: Evidence, _settings: Predict) -> Array:
        """Return (nodes, groups, resources) peaks; of the whole machine while the probability cannot be vouched for."""
        shares = conformal.upper(evidence.spread)
        was_seen = (evidence.moments.weight > 0).reshape(shares.shape)
        return np.where(was_seen, shares * evidence.size[:, None, :], np.nan)


MODEL: PeakModel = Calibrated()
