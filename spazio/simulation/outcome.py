"""What a run comes to, and what several seeds of it come to together."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spazio.simulation.engine import Run
from spazio.simulation.scenario import Scenario

_POINTS = (25, 50, 75, 90, 95, 99)
# Student's t at 97.5 %, by degrees of freedom from 1; beyond them within half a per cent of the formula below.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


class Interval(NamedTuple):
    """A mean over seeds.

    Attributes:
        mean: Over those seeds that have the figure.
        half: Half the width of its 95 % confidence interval; None: one seed only.
        seeds: How many have it.
        lacking: How many do not, as the end of a job that does not end in time.
    """

    mean: float
    half: float | None
    seeds: int = 1
    lacking: int = 0


def of(run: Run, scenario: Scenario) -> dict[str, float]:
    """Return the figures of one run, in seconds unless stated; NaN: there is none."""
    own = run.population
    created, ended = np.isfinite(run.since), np.isfinite(run.ended)
    batch = own.threads > 0
    figures = {
        "job_seconds": _job(run, batch),
        "unfinished": float(np.count_nonzero(created & batch & ~ended)),
        "unbound": float(np.count_nonzero(created & np.isnan(run.bound))),
    }
    took = (run.ended - run.bound)[batch & ended]
    waited = (run.bound - run.since)[np.isfinite(run.bound)]
    for name, values in (("pod_seconds", took), ("wait_seconds", waited)):
        figures |= _distribution(name, *np.unique(values, return_counts=True))
    figures |= _by_workload(run, scenario, ended)
    values, counts = np.array(sorted(run.slowdowns.items()), dtype=np.float64).reshape(-1, 2).T
    figures |= _distribution("serving_slowdown", values, counts)
    return figures | {
        "over_node_seconds": float(run.over_seconds),
        "over_share": run.over_seconds / max(1, run.busy_seconds),
        "utilization_mean": _mean(np.array(run.utilization)),
        "kills": float(run.kills),
        "refusals": float(run.refusals),
    }


def together(seeds: Sequence[Mapping[str, float]]) -> dict[str, Interval]:
    """Return the mean of each figure over the seeds that have it, with its interval (Student's t)."""
    names = dict.fromkeys(name for figures in seeds for name in figures)
    return {name: _interval([figures.get(name, math.nan) for figures in seeds]) for name in names}


def _interval(values: Sequence[float]) -> Interval:
    kept = [value for value in values if math.isfinite(value)]
    counts = len(kept), len(values) - len(kept)
    if not kept:
        return Interval(math.nan, None, *counts)
    mean = float(np.mean(kept))
    if len(kept) < 2:
        return Interval(mean, None, *counts)
    spread = float(np.std(kept, ddof=1)) / math.sqrt(len(kept))
    freedom = len(kept) - 1
    factor = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96 + 2.6 / freedom
    return Interval(mean, factor * spread, *counts)


def _job(run: Run, batch: NDArray[np.bool_]) -> float:
    """Return the time from the first creation to the end of the last batch pod; NaN: not all have ended."""
    if not batch.any() or not np.isfinite(run.ended[batch]).all():
        return math.nan
    return float(run.ended[batch].max() - run.population.created[batch].min())


def _by_workload(run: Run, scenario: Scenario, ended: NDArray[np.bool_]) -> dict[str, float]:
    """Return how long the pods of each workload took; empty: there is one only."""
    names = [group.name for group in scenario.pods]
    batch = sorted({group.name for group in scenario.pods if group.kind == "batch"})
    if len(set(names)) < 2:
        return {}
    figures, workload = {}, np.array(names)[run.population.group]
    for name in batch:
        took = (run.ended - run.bound)[(workload == name) & ended]
        figures[f"pod_seconds_mean.{name}"] = _mean(took)
        figures[f"pod_seconds_std.{name}"] = float(took.std()) if len(took) else math.nan
    return figures


def _distribution(name: str, values: NDArray[np.float64], counts: NDArray[Any]) -> dict[str, float]:
    """Return figures of values in ascending order, each of which occurs so often; percentiles as numpy has them."""
    if not len(values):
        return {}
    ends = np.cumsum(counts)
    ranks = np.array(_POINTS) / 100 * (ends[-1] - 1)
    below, above = (values[np.searchsorted(ends, edge, side="right")] for edge in (np.floor(ranks), np.ceil(ranks)))
    percentiles = below + (above - below) * (ranks % 1)
    points = {f"{name}_p{point}": value for point, value in zip(_POINTS, percentiles.tolist(), strict=True)}
    mean = np.average(values, weights=counts)
    spread = np.sqrt(np.average((values - mean) ** 2, weights=counts))
    return {f"{name}_mean": float(mean), f"{name}_std": float(spread), **points,
            f"{name}_min": float(values[0]), f"{name}_max": float(values[-1])}  # fmt: skip


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else math.nan
