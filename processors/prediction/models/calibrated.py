"""Peak that states how often usage rises above it: the mean plus as many scales as the stated probability takes.

How many scales, `scoring.conformal` learns from earlier predictions of all nodes.
"""

import numpy as np

from processors.prediction.models.protocol import Array, Evidence, PeakModel
from processors.prediction.scoring import conformal
from processors.prediction.tier import group
from schemas.sections.prediction import Predict


class Calibrated:
    """Split conformal prediction; nothing is predicted of a group that was never seen.

    A class that has used nothing teaches nothing (`scoring.adaptive`). Where nothing was learned of it on other nodes
    either, it is predicted to use nothing: otherwise a class that no pod has would need all machines.
    """

    name = "calibrated"

    def peaks(self, evidence: Evidence, _settings: Predict) -> Array:
        """Return (nodes, groups, resources) peaks; of the whole machine while the probability cannot be vouched for."""
        spread = evidence.spread
        is_unused = (spread.base == 0) & np.isnan(spread.multiple)
        is_unused[:, group.NODE] = False
        shares = np.where(is_unused, 0.0, conformal.upper(spread))
        was_seen = (evidence.moments.weight > 0).reshape(shares.shape)
        return np.where(was_seen, shares * evidence.size[:, None, :], np.nan)


MODEL: PeakModel = Calibrated()
