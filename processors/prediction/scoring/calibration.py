"""What all nodes of a partition have taught the calibrated model, and what of it is in force.

Counts of one day are whole numbers, so it does not matter in which order they came. When a day of event time is over
they are put to those of the days before, which fade. What is in force changes at the end of a window only.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import conformal
from processors.prediction.scoring.conformal import Table
from schemas.sections.prediction import Predict

_DAY_SECONDS = 86_400
_SHORTEST_SECONDS = 3 * 3600
# Nodes that start together make their predictions at the same times. Intervals that do not divide the day let these
# times move through it, so that each hour is learned of.
_DRIFT = 10 / 9
_KEPT = 0.9  # of the weight, each day: a week ago counts half


def params(settings: Predict, waiting: int) -> conformal.Params:
    """Return how the model learns, with so many predictions of a row waiting for their horizon.

    Mean and deviation follow usage over about the horizon: what lasts an hour says little of the next day's peak.
    """
    horizon = settings.horizon_seconds
    return conformal.Params(
        half_life_seconds=min(max(horizon, _SHORTEST_SECONDS), _DAY_SECONDS),
        horizon_seconds=horizon,
        interval_seconds=_DRIFT * horizon / waiting,
    )


class Calibration:
    """What was learned so far.

    Attributes:
        today: What was learned since the day began.
        multiple: (times of day, resources) multiple of the scale that is in force.
        stated: (times of day, resources) probability of a violation that can be vouched for with it.
    """

    def __init__(self, resources: int, probability: float) -> None:
        self._before = self.today = conformal.empty(resources)
        self._enforced: Table | None = None
        self._probability = probability
        self._day = 0
        self.enforce(0, probability)

    def enforce(self, second: int, probability: float) -> None:
        """Put in force what was learned until an event second."""
        day = second // _DAY_SECONDS
        if day != self._day:  # also after a clock that was far ahead
            self._before = conformal.fade(Table(self._before.counts + self.today.counts), _KEPT)
            self.today, self._day = conformal.empty(self.today.counts.shape[1]), day
        elif self.today is self._enforced and probability == self._probability:
            return  # a table is replaced when something is learned
        self._put_in_force(probability)

    def lengthen(self, before_seconds: float, now_seconds: float) -> None:
        """Make what was learned at one horizon count for another one."""
        learned = Table(self._before.counts + self.today.counts)
        self._before = conformal.lengthen(learned, before_seconds, now_seconds)
        self.today = conformal.empty(learned.counts.shape[1])
        self._put_in_force(self._probability)

    def _put_in_force(self, probability: float) -> None:
        self._enforced, self._probability = self.today, probability
        learned = Table(self._before.counts + self.today.counts)
        self.stated = conformal.stated(learned, probability)
        # Nothing is given away on fewer predictions than it takes to vouch for the probability.
        vouched = self.stated <= probability
        self.multiple = np.where(vouched, conformal.quantile(learned, probability), np.nan)

    def stated_at(
        self, at_us: NDArray[np.int64], resources: list[int], known: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Return the stated probability (nodes,) at a time of each (nodes,), the greatest of some resources.

        What is not known (nodes, resources) of a node does not count, for its peak is the whole machine.
        """
        probabilities = self.stated[conformal.time_of_day(at_us, len(self.stated))][:, resources]
        greatest: NDArray[np.float64] = np.where(known, probabilities, 0.0).max(axis=1)
        return np.where(known.any(axis=1), greatest, 1.0)

    def dump(self) -> tuple[int, dict[str, NDArray[Any]]]:
        """Return the day, and everything else as arrays; of the counts those that are not 0, and where they are."""
        arrays: dict[str, NDArray[Any]] = {"multiple": self.multiple, "stated": self.stated}
        for name, counts in (("today", self.today.counts.ravel()), ("before", self._before.counts.ravel())):
            places = np.flatnonzero(counts)
            arrays |= {f"{name}.places": places.astype(np.int64), f"{name}.counts": counts[places]}
        return self._day, arrays

    def load(self, day: int, arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what `dump` returned.

        Raises:
            ValueError: An array is missing or of another form.
        """
        for name, own in (("multiple", self.multiple), ("stated", self.stated)):
            stored = arrays.get(name)
            if stored is None or stored.shape != own.shape or stored.dtype != own.dtype:
                raise ValueError(f"state has no array {name} of shape {own.shape} {own.dtype}")
        self.multiple, self.stated = arrays["multiple"].copy(), arrays["stated"].copy()
        shape = self.today.counts.shape
        self.today, self._before = _counts(arrays, "today", shape), _counts(arrays, "before", shape)
        self._day = int(day)


def _counts(arrays: dict[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> Table:
    places, counts = arrays.get(f"{name}.places"), arrays.get(f"{name}.counts")
    if places is None or counts is None or places.shape != counts.shape or places.ndim != 1:
        raise ValueError(f"state has no counts {name}")
    if places.dtype != np.int64 or counts.dtype != np.float64 or not (counts >= 0).all():
        raise ValueError(f"state has counts {name} of another type, or below 0")
    whole = np.zeros(int(np.prod(shape)))
    if len(places) and not 0 <= places.min() <= places.max() < len(whole):
        raise ValueError(f"state has counts {name} in none of {len(whole)} places")
    whole[places] = counts
    return Table(whole.reshape(shape))
