"""Estimates for tests of what reads them."""

from typing import Any

from schemas.messages.estimate import Availability


def availability(**changed: Any) -> Availability:
    """Return a whole availability of the node `n`, with some fields changed."""
    fields: dict[str, Any] = {
        "node": "n",
        "at_us": 0,
        "seq": 1,
        "available": 3.0,
        "lower": 2.0,
        "upper": 4.0,
        "signal": 3.0,
        "cost": 0.1,
        "capacity": 1.0,
        "pods": 2,
        "binding": "cpu",
        "mode": "signal",
        "churn": False,
        "prior": 0.0,
        "usage": {"cpu": 0.5},
        "explained": 1.0,
        "gap": 0.0,
        "since_us": 0,
    }
    return Availability(**{**fields, **changed})
