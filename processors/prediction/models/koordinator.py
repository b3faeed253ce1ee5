"""Peak as Koordinator's node agent sees it: the percentile of a group's usage, and a safety margin on top.

What its agent makes of these percentiles, down to the last byte, is `tier.koordinator`.
"""

from processors.prediction.models.protocol import Array, Evidence, PeakModel
from processors.prediction.tier import koordinator
from schemas.sections.prediction import Predict


class Koordinator:
    """Each group by the percentile of its own usage."""

    name = "koordinator"

    def peaks(self, evidence: Evidence, settings: Predict) -> Array:
        """Return (nodes, groups, resources) peaks."""
        high: Array = evidence.percentile * (1.0 + koordinator.margin_percent(settings) / 100)
        return high


MODEL: PeakModel = Koordinator()
