"""Peak by N sigma: the mean of usage plus N standard deviations, as if usage were normally distributed.

This is version 1 of Koordinator's proposal, which looks at the usage of the group alone. What ships in Koordinator is
neither this nor version 2 (`pods_n_sigma`).
"""

from processors.prediction import moments
from processors.prediction.models.protocol import Array, Evidence, PeakModel
from schemas.sections.prediction import Predict


def peak(state: moments.State, *, n: float) -> Array:
    """Predict each row's peak from its own usage alone.

    Args:
        state: What was seen.
        n: Standard deviations above the mean.

    Returns:
        (rows, resources), cores and bytes; NaN where nothing was seen. It may exceed what the node has.
    """
    high: Array = state.mean + n * moments.deviation(state)
    return high


class NSigma:
    """Each group by its own mean and deviation."""

    name = "n_sigma"

    def peaks(self, evidence: Evidence, settings: Predict) -> Array:
        """Return (nodes, groups, resources) peaks."""
        return peak(evidence.moments, n=settings.sigma).reshape(evidence.percentile.shape)


MODEL: PeakModel = NSigma()
