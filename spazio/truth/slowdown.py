"""How much slower the work of pods is than alone.

Timed programs report how long each piece of work takes alone. For the others it is the mean time per piece of the pod
that was alone last, or of the first pods, of their kind: the same program under the same quota, since a quota slows a
pod however empty the machine is. A shared machine's own speed changes meanwhile, so such a pod is alone before and
after the steps of its family.
"""

from collections.abc import Sequence
from statistics import fmean

from spazio.truth.family import TIMED
from spazio.truth.pod import Pod, Work
from spazio.truth.recording import Step

_TRUSTED = 0.5


class Baseline:
    """What pods of each kind took alone."""

    def __init__(self) -> None:
        self._alone: dict[tuple[str, float | None], float] = {}

    def slowdown(self, pods: Sequence[Pod], since_us: float, *, alone: bool = False) -> float | None:
        """Return the mean over pods of time taken over time alone, for work begun after `since_us`; None: no work.

        `alone` says that no other pod runs, so that this is what the kind takes alone from now on.
        """
        ratios = []
        for pod in pods:
            ratio = _ratio([work for work in pod.work if work.end - work.took > since_us])
            if ratio is not None and alone:
                self._alone[_kind(pod)] = ratio
            if ratio is not None:
                before = 1.0 if pod.program[0] in TIMED else self._alone.setdefault(_kind(pod), ratio)
                ratios.append(ratio / before)
        return round(fmean(ratios), 4) if ratios else None


def correct(steps: Sequence[Step], drift: float, ended_us: int) -> None:
    """Take from slowdowns what the machine itself lost or won in speed, evenly since the first step.

    Half of what was measured counts: seconds on a shared machine vary about as much as its speed drifts.

    Args:
        steps: Steps of a family; the pod of the first was alone.
        drift: Time that a pod took alone at the end over that in the first step.
        ended_us: Time of the end, in microseconds.
    """
    began = _middle(steps[0])
    for step in steps:
        if step.slowdown is not None:
            share = (_middle(step) - began) / (ended_us - began)
            step.slowdown = round(step.slowdown / (1 + _TRUSTED * share * (drift - 1)), 4)


def _middle(step: Step) -> float:
    return (step.begin_us + step.end_us) / 2


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
