"""What the nodes of a partition know of classes together: pods, usage and starts by class, for the global model."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from processors.workload import classes, mix
from processors.workload.cost import Cost
from schemas.messages.estimate import MAXIMUM_CLASSES, ClassSum

_FORGOTTEN = 1e-4  # starts
_FIELDS = ("pods", "cpu", "memory", "soaking", "started", "recent", "running")


class Sums(NamedTuple):
    """Sums by class, and of all starts those that repeat the class before them, and those that could."""

    classes: dict[str, ClassSum]
    repeats: float
    transitions: float


def add_up(state: classes.State, cost: Cost, names: Sequence[str], at_us: int) -> Sums | None:
    """Add up nodes, each as far as it has evidence of its own; None: they know of no class.

    Args:
        state: Live nodes.
        cost: What pods of their classes take.
        names: Name of each label.
        at_us: The time.
    """
    counted = np.maximum(1.0 - cost.prior.max(axis=2), 0.0) * state.pods
    taken = classes.slope(state) * counted[..., None]
    soaking = counted * (state.kind > classes.SOAKING)
    starts = mix.faded(state.starts, np.maximum(at_us - state.at_us, 0) / 1e6)
    used = (state.label >= 0) & ((counted > 0) | (starts.started > _FORGOTTEN))
    running = np.where(counted > 0, state.pods, 0.0)
    columns = [counted, taken[..., 0], taken[..., 1], soaking, starts.started, starts.recent, running]
    totals = np.stack([np.bincount(state.label[used], column[used], len(names)) for column in columns], axis=1)
    present = np.flatnonzero((totals[:, 0] > 0) | (totals[:, 4] > 0)).tolist()
    ranked = sorted((-totals[label, 0], names[label], label) for label in present)
    by_class = {
        name: ClassSum(**dict(zip(_FIELDS, totals[label].tolist(), strict=True)))
        for _, name, label in ranked[:MAXIMUM_CLASSES]
    }
    if not by_class:
        return None
    repeats, transitions = (float(np.add.accumulate(part)[-1]) for part in (starts.repeats, starts.transitions))
    return Sums(by_class, repeats, transitions)
