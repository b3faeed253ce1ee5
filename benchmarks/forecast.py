"""Forecast models side by side: `python -m benchmarks.forecast [--planetlab FILE]`.

Synthetic series have a point every 15 seconds, as forecasts of workloads do: ramps after a constant load, steps, daily
waves, two-hour waves, spikes, random walks, all with noise. With a file of PlanetLab's CPU traces (columns day, vm,
sample, cpu_percent; a sample every 5 minutes) there are also sums of 20 machines each. At several times within a series
each model gets the window before, as long as `--multiple` horizons, and its forecast is compared with the series; the
times are the same for every multiple. The table has the mean absolute error and the pinball loss at 0.9, by which an
under-forecast counts nine times an over-forecast, both in percent of the series' mean. CPU time is that of the process.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.forecast import model

Array = NDArray[np.float64]

PERIOD, POINTS, LEAST = 15.0, 1500, 20
HORIZONS = (120.0, 600.0, 1800.0)
PLANETLAB_PERIOD, PLANETLAB_HORIZONS, MACHINES = 300.0, (300.0, 900.0, 1800.0), 20
QUANTILE = 0.9


class Case(NamedTuple):
    """Series (series, points) of one kind, and the horizons of its forecasts, seconds."""

    kind: str
    period: float
    series: Array
    horizons: tuple[float, ...]


class Score(NamedTuple):
    """Errors in percent of the series' mean, and CPU milliseconds per series; `silent`, the share without an answer."""

    error: float
    pinball: float
    milliseconds: float
    silent: float


def last(_seconds: Array, values: Array, _horizon: Array) -> Array:
    """Forecast the last value."""
    return values[:, -1]


def synthetic(chance: np.random.Generator, count: int) -> Iterator[Case]:
    """Yield series of every kind, with a mean near ten."""
    seconds = np.arange(POINTS) * PERIOD
    phase = chance.random((count, 1))
    begin = chance.uniform(3600, 9000, (count, 1))
    made = {
        "ramp": 10 + np.maximum(seconds - begin, 0) / 3600 * chance.uniform(5, 30, (count, 1)),
        "step": 10 + np.cumsum(_sparse(chance, count, 0.003) * chance.uniform(-3, 5, (count, POINTS)), axis=1),
        "day": 10 + 6 * np.sin(2 * np.pi * (seconds / 86_400 + phase)),
        "two hours": 10 + 4 * np.sin(2 * np.pi * (seconds / 7200 + phase)),
        "spikes": 10 + _smeared(_sparse(chance, count, 0.02) * chance.uniform(3, 12, (count, POINTS))),
        "walk": 10 + np.cumsum(chance.normal(0, 0.12, (count, POINTS)), axis=1),
    }
    for kind, series in made.items():
        noisy = np.maximum(series + chance.normal(0, 0.3, series.shape), 0.1)
        yield Case(kind, PERIOD, noisy, HORIZONS)


def _sparse(chance: np.random.Generator, count: int, share: float) -> Array:
    return (chance.random((count, POINTS)) < share).astype(np.float64)


def _smeared(spikes: Array) -> Array:
    """Extend each spike to a minute."""
    lasting: Array = np.maximum.reduce([np.roll(spikes, shift, axis=1) for shift in range(4)])
    return lasting


def planetlab(chance: np.random.Generator, file: Path, count: int) -> Case:
    """Return sums of randomly drawn machines, several of each day."""
    import polars as pl  # noqa: PLC0415 # only where there is a file

    sums: list[Array] = []
    days = pl.read_parquet(file).partition_by("day")
    for day in days:
        wide = day.pivot(on="sample", index="vm", values="cpu_percent").drop("vm").fill_null(0).to_numpy()
        order = chance.permutation(len(wide))
        groups = np.split(order[: max(1, count // len(days)) * MACHINES], max(1, count // len(days)))
        sums += [wide[group].sum(axis=0) / 100 for group in groups]
    shortest = min(map(len, sums))
    return Case("PlanetLab", PLANETLAB_PERIOD, np.array([series[:shortest] for series in sums]), PLANETLAB_HORIZONS)


def scored(case: Case, horizon: float, ahead: model.Model, *, multiple: float, first: int, times: int) -> Score:
    """Score a model at several times within every series, from point `first` on."""
    step = round(horizon / case.period)
    window = max(LEAST, round(multiple * step))
    ends = np.linspace(first, case.series.shape[1] - step - 1, times).astype(int)
    seconds = np.arange(1.0 - window, 1.0) * case.period
    seen = np.concatenate([case.series[:, end + 1 - window : end + 1] for end in ends])
    truth = np.concatenate([case.series[:, end + step] for end in ends])
    level = np.tile(case.series.mean(axis=1), times)
    began = time.process_time()
    forecast = ahead(seconds, seen, np.full(len(seen), horizon))
    spent = time.process_time() - began
    silent = np.isnan(forecast)
    missed = 100 * (truth - forecast)[~silent] / level[~silent]
    pinball = np.where(missed > 0, QUANTILE * missed, (QUANTILE - 1) * missed)
    return Score(float(np.abs(missed).mean()), float(pinball.mean()), 1e3 * spent / len(seen), float(np.mean(silent)))


def table(cases: list[Case], models: dict[str, model.Model], *, multiple: float, longest: float, times: int) -> None:
    """Print errors of every model by kind and horizon, their means, and the cost of a series."""
    print(f"history {multiple:g} horizons; mean absolute error / pinball loss, % of mean")
    print(f"{'series':10}{'ahead':>8}" + "".join(f"{name:>16}" for name in models))
    by_model: dict[str, list[Score]] = {name: [] for name in models}
    for case in cases:
        for horizon in case.horizons:
            first = max(LEAST, round(longest * horizon / case.period))
            row = {
                name: scored(case, horizon, ahead, multiple=multiple, first=first, times=times)
                for name, ahead in models.items()
            }
            for name, score in row.items():
                by_model[name].append(score)
            cells = "".join(f"{f'{score.error:.1f} / {score.pinball:.1f}':>16}" for score in row.values())
            print(f"{case.kind:10}{f'{horizon / 60:g} min':>8}{cells}", flush=True)
    lines: dict[str, Callable[[Array], str]] = {
        "mean": lambda mean: f"{mean[0]:.1f} / {mean[1]:.1f}",
        "CPU, ms a series": lambda mean: f"{mean[2]:.3f}",
        "without an answer": lambda mean: f"{mean[3]:.0%}",
    }
    for title, line in lines.items():
        print(f"{title:18}" + "".join(f"{line(np.mean(scores, axis=0)):>16}" for scores in by_model.values()))


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--planetlab", type=Path, help="Parquet file of PlanetLab's CPU traces")
    parser.add_argument("--multiple", type=float, nargs="+", default=[2.0, 4.0], help="window of a model, in horizons")
    parser.add_argument("--series", type=int, default=6, help="series of each kind")
    parser.add_argument("--times", type=int, default=8, help="forecasts of each series")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    chance = np.random.default_rng(asked.seed)
    cases = list(synthetic(chance, asked.series))
    if asked.planetlab:
        cases.append(planetlab(chance, asked.planetlab, asked.series))
    for missing in filter(None, map(model.missing, model.MODELS)):
        print(missing, file=sys.stderr)
    models = {"last value": last} | {name: model.MODELS[name] for name in model.available()}
    for multiple in asked.multiple:
        table(cases, models, multiple=multiple, longest=max(asked.multiple), times=asked.times)
    return 0


if __name__ == "__main__":
    sys.exit(main())
