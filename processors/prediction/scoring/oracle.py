"""What a perfect prediction would have been, and how far from it another one was.

The peak oracle at a time t knows the future: it is the highest usage after t, within a horizon. A policy that follows
it reclaims all that is safe to reclaim, so every other policy is judged against it (Bashir et al., "Take it to the
limit", EuroSys 2021). The published simulator leaves the current sample out and so does this.

With P the predicted peak, PO the oracle's and L the limit (what was requested) at one time:

    violation = P < PO          severity = max(0, PO - P) / PO          savings = (L - P) / L

A rate is the mean of these over the times for which there is a future.
"""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def peak(usage: Array, *, horizon: int) -> Array:
    """Return the highest usage of the next samples, without the current one.

    Args:
        usage: (..., samples), any unit, evenly spaced; NaN: missing, it is passed over.
        horizon: Samples to look ahead, at least 1; fewer are left near the end.

    Returns:
        (..., samples); NaN where no later sample is known, so always for the last one.
    """
    if horizon < 1:
        raise ValueError(f"horizon must be at least 1 sample, not {horizon}")
    ahead = np.full_like(usage, np.nan)
    ahead[..., :-1] = usage[..., 1:]
    # After each round a place holds the maximum of the next `known` samples; rounds overlap where they must.
    reach, wanted = 1, min(horizon, max(usage.shape[-1], 1))
    while reach < wanted:
        step = min(reach, wanted - reach)
        later = ahead[..., step:]
        ahead[..., : later.shape[-1]] = np.fmax(ahead[..., : later.shape[-1]], later)
        reach += step
    return ahead


def violation(predicted: Array, oracle: Array) -> Array:
    """Return 1 where usage will rise above the prediction, 0 where not, NaN where either is not known."""
    seen = np.isnan(predicted) | np.isnan(oracle)
    return np.where(seen, np.nan, np.where(predicted < oracle, 1.0, 0.0))


def severity(predicted: Array, oracle: Array) -> Array:
    """Return by how much of its peak usage will rise above the prediction, 0..1; NaN where either is not known."""
    above = np.maximum(oracle - predicted, 0.0)
    share: Array = np.divide(above, oracle, out=np.where(np.isnan(above), np.nan, 0.0), where=oracle > 0)
    return share


def savings(predicted: Array, limit: Array) -> Array:
    """Return the share of the limit that the prediction gives back; below 0 above the limit, NaN without a limit."""
    share: Array = np.divide(limit - predicted, limit, out=np.full_like(limit - predicted, np.nan), where=limit > 0)
    return share
