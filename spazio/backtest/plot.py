"""Two pictures of the study: the frontier of savings and violations, and whether stated probabilities came true."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spazio import count
from spazio.backtest import ours, score, study

Array = NDArray[np.float64]

FLOOR = 1e-4
_GRID = np.arange(0.05, 0.9801, 0.005)
_COLOURS = {"Borg-default": "#7f7f7f", "RC-like": "#2ca02c", "N-sigma": "#ff7f0e", "Max": "#9467bd"}
_OURS = "#1f4e9c"
_MARKED = (0.3, 0.1, 0.01, 0.001, 1e-4)


def check() -> None:
    """See that plots can be drawn, before the long work.

    Raises:
        RuntimeError: matplotlib is not installed; the message says how to install it.
    """
    _figure()


def write(days: Mapping[str, study.Day], folder: Path) -> None:
    """Draw `frontier.png` and `calibration.png`.

    Raises:
        RuntimeError: matplotlib is not installed; the message says how to install it.
    """
    figure = _figure()
    frontier(days, figure, folder / "frontier.png")
    calibration(days, figure, folder / "calibration.png")


def frontier(days: Mapping[str, study.Day], figure: Callable[..., Any], path: Path) -> None:
    """Draw violation rate against savings, means over days; each peer at its best setting in hindsight."""
    drawn = figure(figsize=(8.5, 5.5), layout="constrained")
    axes = drawn.subplots()
    least = np.full(len(_GRID), np.inf)
    for family, colour in _COLOURS.items():
        rates = np.mean([_least(day, family) for day in days.values()], axis=0)
        least = np.fmin(least, rates)
        axes.plot(
            100 * _GRID, 100 * np.maximum(rates, FLOOR), color=colour, label=f"{family}, best setting in hindsight"
        )
    own = np.array([[_rate(day.own, level) for level in _GRID] for day in days.values()])
    middle, low, high = (100 * np.maximum(part, FLOOR) for part in (own.mean(axis=0), own.min(axis=0), own.max(axis=0)))
    axes.fill_between(100 * _GRID, low, high, color=_OURS, alpha=0.15, lw=0, label="calibrated, from best to worst day")
    axes.plot(100 * _GRID, middle, color=_OURS, lw=2.5, label="calibrated, learned elsewhere")
    _mark(axes, days)
    axes.set(xlabel="savings, % of limits", ylabel="violation rate, % of times", yscale="log")
    left = 100 * _GRID[np.argmax(least > FLOOR)] - 15  # where the first peer cannot do without violations
    right = 100 * _GRID[~np.isnan(own).all(axis=0)][-1] + 3
    axes.set(xlim=(max(left, 0), right), ylim=(100 * FLOOR * 0.9, 100))
    axes.set_title(f"Savings and violations of predicted peaks, mean of {count.of(len(days), 'day')}")
    axes.annotate(
        f"at most {100 * FLOOR:g} % is drawn at the lower edge",
        (0.01, 0.02),
        xycoords="axes fraction",
        fontsize=8,
        color="#555555",
    )
    _dress(axes)
    drawn.savefig(path, dpi=130)


def calibration(days: Mapping[str, study.Day], figure: Callable[..., Any], path: Path) -> None:
    """Draw seen against stated probability of a violation."""
    drawn = figure(figsize=(6.2, 5.8), layout="constrained")
    axes = drawn.subplots()
    chosen = ours.PROBABILITIES >= 1e-3
    stated = 100 * ours.PROBABILITIES[chosen]
    axes.plot([0.1, 100], [0.1, 100], color="#555555", ls="--", lw=1, label="seen as stated")
    seen = np.array([100 * day.own.violation[chosen].mean(axis=1) for day in days.values()])
    for name, rates in zip(days, seen, strict=True):
        axes.plot(stated, np.maximum(rates, 0.01), lw=1, marker=".", ms=4, alpha=0.7, label=f"day {name}")
    axes.plot(stated, np.maximum(seen.mean(axis=0), 0.01), color=_OURS, lw=2.5, label="mean of days")
    axes.set(xscale="log", yscale="log", xlim=(0.09, 100), ylim=(0.009, 100))
    axes.set(xlabel="stated probability of a violation, %", ylabel="seen, % of times")
    axes.set_title("Does the calibrated predictor keep its word?\nEach day with what was learned elsewhere")
    _dress(axes)
    drawn.savefig(path, dpi=130)


def _dress(axes: Any) -> None:
    plain = _plain()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(loc="upper left", fontsize=9)


def _mark(axes: Any, days: Mapping[str, study.Day]) -> None:
    for stated in _MARKED:
        knob = ours.knob(stated)
        saved = 100 * np.mean([day.own.savings[knob].mean() for day in days.values()])
        seen = 100 * np.mean([_rate(day.own, saved / 100) for day in days.values()])
        axes.plot(saved, max(seen, 100 * FLOOR), "o", color=_OURS, ms=5)
        label = f"states {100 * stated:g} %"
        axes.annotate(label, (saved, seen), (8, -9), textcoords="offset points", fontsize=8, color=_OURS)


def _least(day: study.Day, family: str) -> Array:
    curves = [curve for curve in day.peers if curve.family == family]
    rates = np.array([[_rate(curve, level) for level in _GRID] for curve in curves])
    return np.where(np.isnan(rates).all(axis=0), np.nan, np.fmin.reduce(rates))


def _rate(curve: score.Curve, level: float) -> float:
    rate = score.at(curve, level)
    return np.nan if rate is None else float(rate.violation.mean())


def _figure() -> Callable[..., Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RuntimeError(
            "plots need matplotlib, which is not installed: pip install '.[plots]' in a checkout"
        ) from error
    return Figure


def _plain() -> Any:
    from matplotlib.ticker import FuncFormatter

    return FuncFormatter(lambda value, _: f"{value:g}")
