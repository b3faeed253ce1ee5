"""Which pod is evicted first: the least important tier, and in it the newest, which loses the least work."""

from collections.abc import Collection
from typing import NamedTuple


class Candidate(NamedTuple):
    """A pod of a lower tier.

    Attributes:
        uid: Its UID.
        tier: Its tier; a higher number is less important.
        created_us: When it was created, in microseconds since the epoch.
    """

    uid: str
    tier: int
    created_us: int


def choose(candidates: Collection[Candidate], tried: Collection[str]) -> Candidate | None:
    """Return the pod to evict.

    Args:
        candidates: Pods that may be evicted.
        tried: UIDs whose eviction has been asked for; they come last: they may be ending, or a budget refused.

    >>> choose([Candidate("a", 2, 9), Candidate("b", 3, 1), Candidate("c", 3, 5)], ())
    Candidate(uid='c', tier=3, created_us=5)
    """
    return min(
        candidates,
        key=lambda each: (each.uid in tried, -each.tier, -each.created_us, each.uid),
        default=None,
    )
