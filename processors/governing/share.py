"""How a tier's limit is divided among its pods.

Cores go by max-min fairness: a pod that wants little gets it, and those that want more get equal shares of the rest. A
pod wants somewhat more than it uses, so that it can show that it needs more. Memory that is free is divided equally on
top of what each pod uses.
"""

from collections.abc import Sequence

_GROWTH = 1.5  # of its usage, what a pod wants
_MOST_RECLAIMED = 0.1  # of its memory, what a pod is to give back at once
BLOCK_BYTES = 1 << 16  # limits are multiples: the kernel rounds to pages, of 64 KiB at most


def cores(total: float, used: Sequence[float], *, least: float) -> list[float]:
    """Return each pod's limit, in cores.

    The limits add up to `total`, or to `least` for each pod where that is more.

    Args:
        total: Limit of the tier, in cores.
        used: What each pod uses, in cores.
        least: The least that a pod gets, in cores.

    >>> cores(2.0, [0.0, 4.0, 4.0], least=0.2)
    [0.2, 0.9, 0.9]
    """
    if not used:
        return []
    wanted = [_GROWTH * each + least for each in used]
    surplus = total - sum(wanted)
    if surplus >= 0:
        return [want + surplus / len(wanted) for want in wanted]
    level = _level(total, wanted)
    return [max(least, min(want, level)) for want in wanted]


def _level(total: float, wanted: Sequence[float]) -> float:
    """Return the share of those pods that do not get what they want; they want more than `total` together."""
    left, ordered = total, sorted(wanted)
    for index, want in enumerate(ordered):
        share = left / (len(ordered) - index)
        if want > share:
            return share
        left -= want
    return ordered[-1]


def memory(free_bytes: float, used: Sequence[int]) -> list[int]:
    """Return each pod's limit, in bytes.

    Args:
        free_bytes: Memory that is available beyond the reserve; below 0: what is missing to the reserve.
        used: Working set of each pod, in bytes.

    >>> memory(2 << 20, [1 << 20, 3 << 20]) == [2 << 20, 4 << 20]
    True
    """
    if free_bytes >= 0:
        more = free_bytes / max(1, len(used))
        return [_blocks(each + more) for each in used]
    kept = 1 - min(_MOST_RECLAIMED, -free_bytes / max(1, sum(used)))
    return [_blocks(each * kept) for each in used]


def _blocks(amount: float) -> int:
    return max(1, int(amount // BLOCK_BYTES)) * BLOCK_BYTES
