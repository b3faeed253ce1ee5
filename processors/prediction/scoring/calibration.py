"""What all nodes of a partition have taught the calibrated model, and what of it is in force.

Counts of one day are whole numbers, so it does not matter in which order they came. When a day of event time is over
they are put to those of the days before, which fade, but not below what vouches for the probability. What is in force
changes at the end of a window only.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.prediction.scoring import adaptive, base, conformal, expert, residuals
from processors.prediction.scoring.residuals import Table
from processors.rows import table
from schemas.sections.prediction import Predict

_DAY_SECONDS = 86_400
_SHORTEST_SECONDS = 3 * 3600
# Nodes that start together make their predictions at the same times. Intervals that do not divide the day let these
# times move through it, so that each hour is learned of.
_DRIFT = 10 / 9
_GAP_WINDOWS = 2.5  # a gap is longer than so many windows, however long these are
_GAP_SHARE = 0.25  # of the horizon: a prediction is judged by what was seen of most of it
_KEPT = 0.9  # of the weight, each day: a week ago counts half
_ROUNDING = 1.0 + 1e-9  # so that what is left is enough
_LOSS_HALF_LIFE_SECONDS = 3.0 * _DAY_SECONDS
_CAUTION = 20.0  # predictions that count beside those of the last horizon, so that the first ones move little
_MOST = 3.0  # log-odds of the correction, either way
_SUFFIXES = tuple("" if name == "mean" else f".{name}" for name in base.NAMES)  # of the names of their arrays
_JUDGED = ("judged", "violated", "loss")
_EMPTY = (("places", np.int64), ("counts", np.float64))


class _State(NamedTuple):
    """What was judged, each (experts, resources).

    Attributes:
        correction: Log-odds that are added to those of the wanted probability.
        recent: Predictions judged, faded with the horizon.
        judged: The same, faded with the half-life of losses.
        loss: Their pinball loss, in millionths of the limit, faded.
    """

    correction: NDArray[np.float64]
    recent: NDArray[np.float64]
    judged: NDArray[np.float64]
    loss: NDArray[np.float64]


def params(settings: Predict, waiting: int) -> conformal.Params:
    """Return how the model learns, with so many predictions of a row waiting for their horizon.

    Mean and deviation follow usage over about the horizon: what lasts an hour says little of the next day's peak.
    """
    horizon = settings.horizon_seconds
    return conformal.Params(
        half_life_seconds=min(max(horizon, _SHORTEST_SECONDS), _DAY_SECONDS),
        horizon_seconds=horizon,
        interval_seconds=_DRIFT * horizon / waiting,
        gap_seconds=max(_GAP_WINDOWS * settings.update_seconds, min(conformal.GAP_SECONDS, _GAP_SHARE * horizon)),
    )


class Calibration:
    """What was learned so far.

    Attributes:
        today: What was learned since the day began; what was judged since the last window ended.
        in_force: What rows predict with.
        stated: (resources,) probability of a violation that can be vouched for with it.
    """

    def __init__(self, resources: int, settings: Predict) -> None:
        self._before = self._enforced = self.today = adaptive.empty(resources)
        self._horizon_seconds = settings.horizon_seconds
        self._second = 0
        self._state = _State(*(np.zeros((expert.COUNT, resources)) for _ in _State._fields))
        self.stated = np.ones(resources)
        self.in_force = expert.nothing(resources, settings.violation)

    def enforce(self, second: int, probability: float | NDArray[np.float64]) -> None:
        """Put in force what was learned until an event second; the probability is one for all resources, or of each."""
        wanted = np.broadcast_to(np.asarray(probability, dtype=np.float64), self.stated.shape)
        is_new_day = second // _DAY_SECONDS != self._second // _DAY_SECONDS  # also after a clock that was far ahead
        times = len(self.today.tables[base.MEAN].counts)
        hour, before = (int(at % _DAY_SECONDS * times // _DAY_SECONDS) for at in (second, self._second))
        is_judged = self.today is not self._enforced
        if not (is_judged or is_new_day) and hour == before and np.array_equal(wanted, self.in_force.probability):
            return  # it is replaced when something is learned
        self._fade(second - self._second)
        if is_judged:
            self._adapt()
        if is_new_day:
            kept = tuple(self._kept(part, wanted) for part in self._learned())
            fresh = adaptive.empty(len(self.stated))
            self._before, self.today = fresh._replace(tables=kept), fresh
        self._put_in_force(second, wanted)

    def lengthen(self, before_seconds: float, now_seconds: float) -> None:
        """Make what was learned at one horizon count for another one; what was judged says nothing of it."""
        fresh = adaptive.empty(len(self.stated))
        longer = tuple(residuals.lengthen(part, before_seconds, now_seconds) for part in self._learned())
        self._before, self.today = fresh._replace(tables=longer), fresh
        self._state = _State(*map(np.zeros_like, self._state))
        self._put_in_force(self._second, self.in_force.probability)

    def _learned(self) -> list[Table]:
        """Return the tables of all bases, of today and of the days before."""
        pairs = zip(self._before.tables, self.today.tables, strict=True)
        return [Table(old.counts + new.counts) for old, new in pairs]

    def _kept(self, learned: Table, probability: NDArray[np.float64]) -> Table:
        """Return what a day leaves of a table: of each resource at least as much as vouches for the probability."""
        behind = residuals.fewest(learned, probability, parts=residuals.reach(learned, self._horizon_seconds))
        enough = _ROUNDING * (1.0 / probability - 1.0)
        share = np.divide(enough, behind, out=np.ones_like(behind), where=behind > 0)
        return residuals.fade(learned, np.clip(share, _KEPT, 1.0))

    def _put_in_force(self, second: int, probability: NDArray[np.float64]) -> None:
        self._second, self._enforced = second, self.today
        learned, state = self._learned(), self._state
        times, parts = len(learned[base.MEAN].counts), residuals.reach(learned[base.MEAN], self._horizon_seconds)
        hour = int(second % _DAY_SECONDS * times // _DAY_SECONDS)
        stated = np.stack([residuals.stated_at(table, hour, probability, parts=parts) for table in learned])
        self.stated = stated[base.MEAN]
        odds = (np.log(probability / (1.0 - probability)) + state.correction)[..., None] + expert.RUNGS
        asked = 1.0 / (1.0 + np.exp(-odds))
        rows = [
            residuals.quantiles(table, hour, part, wanted=probability, parts=parts)
            for table, part in zip(learned, asked, strict=True)
        ]
        # Nothing is given away on fewer predictions than it takes to vouch for the probability.
        ladder = np.where((stated <= probability)[..., None], np.stack(rows), np.nan)
        unknown = np.full_like(state.loss, np.nan)
        loss = np.divide(state.loss, state.judged * adaptive.MICRO, out=unknown, where=state.judged > 0)
        self.in_force = expert.InForce(probability, ladder, loss)

    def _fade(self, elapsed: int) -> None:
        """Let what was judged fade over some event time."""
        state = self._state
        recent = state.recent * np.exp2(-max(elapsed, 0) / self._horizon_seconds)
        kept = np.exp2(-max(elapsed, 0) / _LOSS_HALF_LIFE_SECONDS)
        self._state = state._replace(recent=recent, judged=state.judged * kept, loss=state.loss * kept)

    def _adapt(self) -> None:
        """Correct what is asked of the tables by what was judged since the last window ended."""
        outcome, state = self.today, self._state
        recent = state.recent + outcome.judged
        too_few = self.in_force.probability * outcome.judged - outcome.violated
        pace = expert.pace(self._horizon_seconds)
        correction = state.correction + pace * too_few / (recent + _CAUTION)
        judged, loss = state.judged + outcome.judged, state.loss + outcome.loss
        self._state = _State(np.clip(correction, -_MOST, _MOST), recent, judged, loss)
        none = np.zeros_like(outcome.judged)
        self.today = outcome._replace(judged=none, violated=none, loss=none)

    def stated_of(self, resources: list[int], recorded: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Return the stated probability of each node (nodes,), the greatest of some resources.

        What is not known (nodes, resources) of a node does not count, for its peak is the whole machine.
        """
        greatest: NDArray[np.float64] = np.where(recorded, self.stated[resources], 0.0).max(axis=1)
        return np.where(recorded.any(axis=1), greatest, 1.0)

    def dump(self) -> tuple[int, dict[str, NDArray[Any]]]:
        """Return the event second, and everything else as arrays; of the counts those that are not 0, and where."""
        arrays = self._fixed()
        for name, part in self._counted().items():
            counts = part.ravel()
            places = np.flatnonzero(counts)
            arrays |= {f"{name}.places": places.astype(np.int64), f"{name}.counts": counts[places]}
        return self._second, arrays

    def _fixed(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that are always of one shape."""
        adapted = table.flatten(self._state, "adapted.")
        judged = {f"today.{name}": getattr(self.today, name) for name in _JUDGED}
        in_force = {f"in_force.{name}": part for name, part in self.in_force._asdict().items()}
        is_enforced = np.array([self.today is self._enforced])
        return adapted | judged | in_force | {"stated": self.stated, "is_enforced": is_enforced}

    def _counted(self) -> dict[str, NDArray[np.float64]]:
        """Return the counts of the day and of the days before by the names of their arrays."""
        parts = {"today": self.today, "before": self._before}
        return {
            f"{name}{suffix}": own.counts
            for name, part in parts.items()
            for suffix, own in zip(_SUFFIXES, part.tables, strict=True)
        }

    def load(self, second: int, arrays: dict[str, NDArray[Any]]) -> None:
        """Take over what `dump` returned, or what it returned when there were one or two bases.

        Raises:
            ValueError: An array is missing or of another form.
        """
        shape = self.today.tables[base.MEAN].counts.shape
        is_old = "in_force.base" in arrays or not any(name.startswith("in_force.") for name in arrays)
        if is_old:  # what is in force is derived at the end of the next window
            later = [f"{name}{suffix}" for name in ("today", "before") for suffix in _SUFFIXES[1:]]
            arrays = {f"{name}.{part}": np.zeros(0, kind) for name in later for part, kind in _EMPTY} | arrays
        else:
            self._load_fixed(arrays)
        none = adaptive.empty(shape[1])
        self.today, self._before = (
            none._replace(tables=tuple(_counts(arrays, f"{name}{suffix}", shape) for suffix in _SUFFIXES))
            for name in ("today", "before")
        )
        self._second = int(second)
        if is_old:
            return
        judged = (arrays[f"today.{name}"].copy() for name in _JUDGED)
        self.today = adaptive.Learned(self.today.tables, *judged)
        if arrays["is_enforced"][0]:
            self._enforced = self.today

    def _load_fixed(self, arrays: dict[str, NDArray[Any]]) -> None:
        for name, own in self._fixed().items():
            stored = arrays.get(name)
            if stored is None or stored.shape != own.shape or stored.dtype != own.dtype:
                raise ValueError(f"state has no array {name} of shape {own.shape} {own.dtype}")
        self._state = table.restore(self._state, arrays, "adapted.")
        self.stated = arrays["stated"].copy()
        self.in_force = expert.InForce(*(arrays[f"in_force.{name}"].copy() for name in expert.InForce._fields))


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
