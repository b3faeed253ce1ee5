"""How right the forecasts of each workload were: each is held against what its pods used once the horizon had passed.

A forecast is of one time, the one at which a pod that was created with it is ready. It is judged by the observation
nearest to that: exceeded or not, by how much, and how much of it was not used. Sums fade with event time, so
the figures are those of the last half-lives. Workloads do not touch each other.

With F the forecast and U what was used then; what differs in the last digits alone is no violation:

    violation = U > F        severity = max(0, U - F) / U        overprovision = max(0, F - U) / F
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.forecast import model
from processors.forecast.sums import RESOURCES, ROUNDING, Workload
from processors.rows import table

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Times = NDArray[np.int64]
Amounts = Mapping[str, tuple[float, float]]

_MODELS = tuple(model.MODELS)
_MOST_WORKLOADS = 20_000
_SLOTS = 8  # forecasts of a workload that wait for their horizon
_HORIZONS, _LEAST_SECONDS = 24.0, 3600.0  # half-life
_LATE_PERIODS = 2.0  # an observation that comes later says nothing of the time that was forecast
_FORGET_SECONDS = 6 * 3600.0


class Scores(NamedTuple):
    """Figures of one model of a workload, the greater ones of cpu and memory, but for the last.

    Attributes:
        violations: Share of forecasts that usage exceeded, 0..1.
        severity: Mean share of what was used that was not forecast, 0..1.
        overprovision: Mean share of the forecast that was not used, 0..1.
        settled: Forecasts behind them, faded.
    """

    violations: float
    severity: float
    overprovision: float
    settled: float


class _State(NamedTuple):
    """Of each workload.

    Attributes:
        at_us: (rows,) time of the last observation; 0: none.
        made_us: (rows,) time of the last forecast that waits or waited; 0: none.
        horizon: (rows,) how far it looked ahead, seconds.
        due_us: (rows, slots) time that a forecast is of; 0: the slot is free.
        amounts: (rows, models, resources, slots) what was forecast; NaN: nothing.
        sums: (rows, figures, models, resources) faded sums, in the order of `Scores`.
    """

    at_us: Times
    made_us: Times
    horizon: Array
    due_us: Times
    amounts: Array
    sums: Array


def _empty(rows: int) -> _State:
    return _State(
        at_us=np.zeros(rows, np.int64),
        made_us=np.zeros(rows, np.int64),
        horizon=np.zeros(rows),
        due_us=np.zeros((rows, _SLOTS), np.int64),
        amounts=np.full((rows, len(_MODELS), len(RESOURCES), _SLOTS), np.nan),
        sums=np.zeros((rows, len(Scores._fields), len(_MODELS), len(RESOURCES))),
    )


class Accuracy:
    """Forecasts that wait, and what came of those that did, by workload."""

    def __init__(self, period_seconds: float) -> None:
        """Start empty; observations come every `period_seconds`."""
        self._period_seconds = period_seconds
        self._rows: dict[Workload, int] = {}
        self._state = _empty(0)

    def score(self, at_us: int, used: Mapping[Workload, tuple[float, float]]) -> None:
        """Score the forecasts of this time, to within half a period, and before.

        Args:
            at_us: Event time.
            used: Cores and bytes of all pods of each workload then.
        """
        observed = [name for name in used if name in self._rows]
        rows = np.array([self._rows[name] for name in observed], np.intp)
        state = self._state
        # A clock that was set back: what waits would wait for a time that does not come for long.
        back = rows[state.at_us[rows] - at_us > _LATE_PERIODS * self._period_seconds * 1e6]
        state.due_us[back], state.made_us[back] = 0, 0
        usage = np.array([used[name] for name in observed]).reshape(-1, 1, len(RESOURCES), 1)
        seconds = np.maximum(at_us - state.at_us[rows], 0) / 1e6 * (state.at_us[rows] > 0)
        half_life = np.maximum(_HORIZONS * state.horizon[rows], _LEAST_SECONDS)
        state.sums[rows] *= np.exp2(-seconds / half_life)[:, None, None, None]
        due = (state.due_us[rows] > 0) & (state.due_us[rows] - self._period_seconds / 2 * 1e6 <= at_us)
        late = at_us - state.due_us[rows] > _LATE_PERIODS * self._period_seconds * 1e6
        figures = _figures(state.amounts[rows], usage, (due & ~late)[:, None, None, :])
        state.sums[rows] += figures.sum(axis=4)
        state.due_us[rows] = np.where(due, 0, state.due_us[rows])
        state.at_us[rows] = at_us
        self._forget(at_us)

    def wait(self, at_us: int, horizons: Sequence[float], made: Mapping[Workload, Amounts]) -> None:
        """Let forecasts wait for their horizon; of those that come close behind one that waits, none.

        Args:
            at_us: Event time at which they were made.
            horizons: How far each looks ahead, seconds.
            made: By workload, and by model in cores and bytes.
        """
        fresh = [name for name in made if name not in self._rows][: _MOST_WORKLOADS - len(self._rows)]
        count = len(self._rows)
        self._rows.update((name, count + index) for index, name in enumerate(fresh))
        if (short := len(self._rows) - len(self._state.at_us)) > 0:
            self._state = table.extend(self._state, _empty(max(16, short, len(self._rows) // 2)))
        for horizon, (name, amounts) in zip(horizons, made.items(), strict=True):
            if name in self._rows:
                self._put(self._rows[name], at_us, horizon, amounts)

    def _put(self, row: int, at_us: int, horizon: float, amounts: Amounts) -> None:
        state, pause = self._state, max(self._period_seconds, horizon / _SLOTS)
        free = np.flatnonzero(state.due_us[row] == 0)
        state.at_us[row] = max(state.at_us[row], at_us)
        if not len(free) or (state.made_us[row] and at_us - state.made_us[row] < pause * 1e6):
            return
        slot = free[0]
        state.made_us[row], state.horizon[row] = at_us, horizon
        state.due_us[row, slot] = at_us + round(horizon * 1e6)
        for index, name in enumerate(_MODELS):
            state.amounts[row, index, :, slot] = amounts.get(name, (np.nan, np.nan))

    def of(self, workload: Workload) -> dict[str, Scores]:
        """Return the figures of a workload by model; models of which nothing was judged are left out."""
        row = self._rows.get(workload)
        if row is None:
            return {}
        weight = self._state.sums[row, -1]
        with np.errstate(invalid="ignore"):
            ratios = np.where(weight > 0, self._state.sums[row, :-1] / weight, 0.0).max(axis=2)
        return {
            name: Scores._make((*ratios[:, index].tolist(), float(weight[index].max())))
            for index, name in enumerate(_MODELS)
            if weight[index].any()
        }

    def _forget(self, at_us: int) -> None:
        """Drop workloads without an observation for long."""
        silent = at_us - self._state.at_us > _FORGET_SECONDS * 1e6
        kept = {name: row for name, row in self._rows.items() if not silent[row]}
        if len(kept) < len(self._rows):
            self._state = table.take(self._state, np.array(list(kept.values()), np.intp))
            self._rows = {name: row for row, name in enumerate(kept)}

    def dump(self) -> tuple[list[Workload], dict[str, NDArray[Any]]]:
        """Return names, and arrays."""
        return list(self._rows), table.flatten(table.take(self._state, np.arange(len(self._rows))), "accuracy.")

    def load(self, names: Sequence[Workload], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `dump` returned; states of before have nothing of it.

        Raises:
            ValueError: The arrays are not of these workloads.
        """
        self._rows, self._state = {}, _empty(0)
        if not names:
            return
        state = table.restore(_empty(0), dict(arrays), "accuracy.")
        if any(len(part) != len(names) for part in state):
            raise ValueError(f"state has not one row of accuracy for each of {len(names)} workloads")
        self._rows = {name: row for row, name in enumerate(names)}
        self._state = table.take(state, np.arange(len(names)))


def _figures(forecast: Array, used: Array, counted: NDArray[np.bool_]) -> Array:
    """Return (rows, figures, models, resources, slots) of what is judged, 0 elsewhere; in the order of `Scores`."""
    counts = counted & ~np.isnan(forecast) & ~np.isnan(used)
    above, below = np.maximum(used - forecast, 0.0), np.maximum(forecast - used, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        severity = np.where(used > 0, above / used, 0.0)
        unused = np.where(forecast > 0, below / forecast, 0.0)
    parts = (above > ROUNDING * used, severity, unused, np.ones_like(forecast))
    return np.stack([np.where(counts, part, 0.0) for part in parts], axis=1)
