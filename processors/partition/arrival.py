"""Which blocks of a node count: each second of its newest boot once, in order; the rest is counted and left out.

Only the order in which the server has stored the blocks counts. A block behind one that was folded comes too late for
algorithms that go forward in time. Either it was seen before, or it was missing until now; a bit for each of the newest
64 seconds distinguishes the two.
"""

from typing import NamedTuple

SPAN = 64
_ALL = (1 << SPAN) - 1
_MOST = 2**53 - 1


class Arrival(NamedTuple):
    """What has come of one node.

    Attributes:
        boot: Its newest boot, as `schemas.boot.cut` returns it.
        seq: Newest block folded of that boot; the seconds since then.
        first: First block folded of it.
        seen: One bit for each of the newest 64 seconds, the lowest for `seq`: 1, its block has come.
        before: The boot before, which does not come back.
        doubled: Blocks left out because they had come before.
        late: Blocks left out because a newer one, or one of a newer boot, had been folded.
        missing: Seconds between blocks of a boot of which none has come, or too late to be remembered.
    """

    boot: str
    seq: int
    first: int
    seen: int = 1
    before: str = ""
    doubled: int = 0
    late: int = 0
    missing: int = 0


def update(arrival: Arrival | None, boot: str, seq: int) -> tuple[Arrival, bool]:
    """Record one block, its boot as `schemas.boot.cut` returns it, and return whether to fold it.

    >>> first, _ = update(None, "b", 7)
    >>> update(first, "b", 7)
    (Arrival(boot='b', seq=7, first=7, seen=1, before='', doubled=1, late=0, missing=0), False)
    """
    if arrival is None:
        return Arrival(boot, seq, seq), True
    if boot != arrival.boot:
        if boot == arrival.before:
            return arrival._replace(late=arrival.late + 1), False
        counts = arrival.doubled, arrival.late, arrival.missing
        return Arrival(boot, seq, seq, 1, arrival.boot, *counts), True
    ahead = seq - arrival.seq
    if ahead > 0:
        seen = (arrival.seen << ahead | 1) & _ALL if ahead < SPAN else 1
        missing = min(arrival.missing + ahead - 1, _MOST)
        return Arrival(boot, seq, arrival.first, seen, arrival.before, arrival.doubled, arrival.late, missing), True
    bit = 1 << -ahead if -ahead < SPAN else 0
    if arrival.seen & bit:
        return arrival._replace(doubled=arrival.doubled + 1), False
    # A block older than the bits may have come before, and one before the first was never missing.
    arrived = 1 if bit and seq > arrival.first else 0
    return arrival._replace(seen=arrival.seen | bit, late=arrival.late + 1, missing=arrival.missing - arrived), False
