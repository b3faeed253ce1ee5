"""What was observed of every workload of the cluster, and how long its pods take to be ready.

Workloads go by name, so one that is renamed is a new one, and the old one is dropped when its last observation is
older than its window. How far back the window reaches follows the workload's own initialization time.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.forecast import series
from processors.forecast.sums import RESOURCES, Sum, Workload

Array = NDArray[np.float64]

_LEAST_OBSERVATIONS = 5
_LEAST_WINDOW = 20  # periods: a line through fewer is a line through noise
_LEAST_SPAN = 0.5  # of the horizon: a forecast reaches at most twice as far ahead as observations reach back
_LONGEST_SECONDS = 3600.0  # horizon: one stuck pod must not make a workload look a day ahead


class Params(NamedTuple):
    """What the settings say of it.

    Attributes:
        seconds: Period of observations.
        history_multiple: Observations are kept for so many initialization times; through more of them, a line answers
            a ramp when it is too late.
        initialization_seconds: Where no pod of a workload has been ready yet.
        memory_bytes: Bound on all observations; the oldest go first, then the workloads with fewest pods.
    """

    seconds: int = 15
    history_multiple: float = 2.0
    initialization_seconds: float = 60.0
    memory_bytes: int = 64 << 20


class Seen(NamedTuple):
    """Workloads that can be forecast now, and what that takes.

    Attributes:
        names: Of the workloads.
        now: Last sums of each.
        initialization: (workloads,) mean seconds from creation to ready.
        horizon: (workloads,) that within bounds: how far to look ahead, seconds.
        observations: (workloads,) how many there are.
        seconds: (observations,) when they were made, before now.
        values: (workloads, resources, observations) amounts; NaN: missing.
    """

    names: list[Workload]
    now: list[Sum]
    initialization: Array
    horizon: Array
    observations: NDArray[np.int64]
    seconds: Array
    values: Array


class History:
    """Observations by workload."""

    def __init__(self, params: Params) -> None:
        """Start empty."""
        self._params = params
        self._names: list[Workload] = []
        self._initialization = np.zeros(0)
        self._series = series.init(len(RESOURCES))

    def observe(self, at_us: int, sums: Mapping[Workload, Sum]) -> Seen:
        """Take in the cluster's sums of one time; return what can be forecast.

        A workload is left out until it was observed often enough, over half of its horizon, and while no pod runs.
        """
        named = _most(sums, self._params.memory_bytes // _row_bytes(_LEAST_WINDOW))
        old_names = set(self._names)
        fresh = [name for name in named if name not in old_names]
        self._names = self._names + fresh
        before = [*self._initialization.tolist(), *(np.nan for _ in fresh)]
        now = [named.get(name) for name in self._names]
        self._initialization = np.array([_initialization(total, old) for total, old in zip(now, before, strict=True)])
        self._series = series.update(
            series.extend(self._series, len(fresh)),
            at_us,
            np.array([total.used if total else (np.nan, np.nan) for total in now]).reshape(-1, len(RESOURCES)),
            np.maximum(self._params.history_multiple * self._horizon(), _LEAST_WINDOW * self._params.seconds),
            limit=max(1, self._params.memory_bytes // _row_bytes(max(1, len(self._names)))),
        )
        self._tidy()
        return self._seen(at_us, named)

    def _horizon(self) -> Array:
        return np.clip(self._known_initialization(), self._params.seconds, _LONGEST_SECONDS)

    def _known_initialization(self) -> Array:
        return np.where(np.isnan(self._initialization), self._params.initialization_seconds, self._initialization)

    def _tidy(self) -> None:
        """Drop workloads of which no observation is left."""
        kept = np.asarray(np.isfinite(self._series.values).any(axis=(1, 2)))
        self._names = [name for name, keeps in zip(self._names, kept.tolist(), strict=True) if keeps]
        self._initialization = self._initialization[kept]
        self._series = self._series._replace(values=self._series.values[kept])

    def _seen(self, at_us: int, total: Mapping[Workload, Sum]) -> Seen:
        count, span = series.observed(self._series)
        horizon = self._horizon()
        here = np.array([name in total for name in self._names], dtype=np.bool_)
        rows = np.flatnonzero(here & (count >= _LEAST_OBSERVATIONS) & (span >= _LEAST_SPAN * horizon))
        names = [self._names[row] for row in rows.tolist()]
        return Seen(
            names,
            [total[name] for name in names],
            self._known_initialization()[rows],
            horizon[rows],
            count[rows],
            series.seconds(self._series, at_us),
            self._series.values[rows],
        )

    def dump(self) -> tuple[list[Workload], dict[str, NDArray[Any]]]:
        """Return names, and arrays."""
        return self._names, {**self._series._asdict(), "initialization": self._initialization}

    def load(self, names: list[Workload], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `dump` returned.

        Raises:
            KeyError: An array is missing.
            ValueError: An array is of another shape.
        """
        state = series.State(arrays["at_us"], arrays["values"])
        wanted = (len(names), len(RESOURCES), len(state.at_us))
        if state.values.shape != wanted or arrays["initialization"].shape != wanted[:1]:
            raise ValueError(f"state has observations of shape {state.values.shape} for {len(names)} workloads")
        self._names, self._series, self._initialization = names, state, arrays["initialization"]


def _row_bytes(observations: int) -> int:
    return observations * len(RESOURCES) * np.dtype(np.float64).itemsize


def _most(sums: Mapping[Workload, Sum], limit: int) -> dict[Workload, Sum]:
    """Return named workloads with pods that run; those with most pods if they are too many, ties by name."""
    running = {name: total for name, total in sums.items() if total.pods > 0 and all(name)}
    most = sorted(running, key=lambda name: (-running[name].pods, name))[: max(1, limit)]
    return {name: running[name] for name in most}


def _initialization(now: Sum | None, before: float) -> float:
    """Return the mean initialization time of the pods that are ready, or what it was before; NaN: never known."""
    if now is None or not now.initialized or not np.isfinite(now.initialization_seconds):
        return before
    return max(0.0, now.initialization_seconds / now.initialized)
