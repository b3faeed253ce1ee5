"""Times as Kubernetes writes them."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def microseconds(text: str) -> int:
    """Return microseconds since the epoch.

    >>> microseconds("2025-01-01T00:00:00Z"), microseconds("2025-01-01T00:00:00.000007Z")
    (1735689600000000, 1735689600000007)

    Raises:
        ValueError: It is no time, or has no zone.
    """
    when = datetime.fromisoformat(text)
    if when.tzinfo is None:
        raise ValueError(f"time {text!r} has no zone")
    return (when - _EPOCH) // timedelta(microseconds=1)
