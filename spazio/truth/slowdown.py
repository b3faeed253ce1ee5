"""How much slower the work of pods is than alone.

Timed programs report how long each piece of work takes alone. For the others it is the mean time per piece of the first
pods of their kind: the same program under the same quota, since a quota slows a pod however empty the machine is.
"""

from collections.abc import Sequence
from statistics import fmean

from spazio.truth.family import TIMED
from spazio.truth.pod import Pod, Work


class Baseline:
    """What the first pods of each kind took."""

    def __init__(self) -> None:
        self._alone: dict[tuple[str, float | None], float] = {}

    def slowdown(self, pods: Sequence[Pod], since_us: float) -> float | None:
        """Return the mean over pods of time taken over time alone, for work begun after `since_us`; None: no work."""
        ratios = []
        for pod in pods:
            ratio = _ratio([work for work in pod.work if work.end - work.took > since_us])
            if ratio is not None:
                alone = 1.0 if pod.program[0] in TIMED else self._alone.setdefault(_kind(pod), ratio)
                ratios.append(ratio / alone)
        return round(fmean(ratios), 4) if ratios else None


def _kind(pod: Pod) -> tuple[str, float | None]:
    """Return the program without its amount of work, and the quota; pods of one kind take the same time alone."""
    words = zip(pod.program, ("", *pod.program), strict=False)
    return " ".join(word for word, before in words if "--work" not in (word, before)), pod.quota


def _ratio(work: Sequence[Work]) -> float | None:
    """Return time taken over time alone; if that is unknown, the mean time taken in seconds."""
    took, alone = sum(piece.took for piece in work), sum(piece.alone for piece in work)
    if not took:
        return None
    return took / alone if alone else took / len(work) / 1e6
