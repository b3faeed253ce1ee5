"""What came out of the study: a table to read, the same as CSV and JSON."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spazio import plain
from spazio.backtest import ours, stability, study

STATED = (0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001)


class Stated(NamedTuple):
    """Stated probability of the predictor on one day, and what was seen; means over nodes."""

    day: str
    stated: float
    seen: float
    severity: float
    savings: float


class Report(NamedTuple):
    """All rows: `comparison` with the best peer, `calibration` and `stability`; `nodes` of one draw per day."""

    nodes: Mapping[str, int]
    comparison: Sequence[study.Row]
    calibration: Sequence[Stated]
    stability: Sequence[stability.Stability]


def calibration(days: Mapping[str, study.Day]) -> list[Stated]:
    """Return stated and seen probabilities of a violation, day by day."""
    rows = []
    for day, scored in days.items():
        curve = scored.own
        for stated in STATED:
            knob = ours.knob(stated)
            figures = (float(part[knob].mean()) for part in (curve.violation, curve.severity, curve.savings))
            rows.append(Stated(day, stated, *figures))
    return rows


def holds(row: study.Row) -> str:
    """Return whether ours violates no more than the peer: yes (in 95 of 100 resamples), about (in the mean), or no."""
    if row.high <= 0:
        return "yes"
    return "about" if row.difference <= 0 else "no"


def text(report: Report) -> str:
    """Return the tables to read, rates in percent."""
    lines = [
        "Violation rate at equal savings, % of times. Each day is tested with what the other days taught.",
        "hindsight: with the peer's configuration that is the best on the tested day itself.",
        "",
        f"{'day':10} {'savings':>7} {'ours':>6} {'peer':>6} {'ours - peer, 95 %':>17} {'<=':>5} {'hindsight':>9}  peer",
    ]
    hindsight = {(row.day, row.savings): row.theirs for row in report.comparison if row.against == study.HINDSIGHT}
    chosen = [row for row in report.comparison if row.against != study.HINDSIGHT]
    lines += [_compared(row, hindsight.get((row.day, row.savings), np.nan)) for row in chosen]
    lines += ["", "What our predictor states of itself, and what was seen, %.", ""]
    lines.append(f"{'day':10} {'stated':>7} {'seen':>7} {'severity':>8} {'savings':>7}")
    for stated in report.calibration:
        figures = f"{100 * stated.seen:7.2f} {100 * stated.severity:8.3f} {100 * stated.savings:7.1f}"
        lines.append(f"{stated.day:10} {100 * stated.stated:7.1f} {figures}")
    lines += ["", "What the Mid tier would have got by how fast it may rise in an hour, % of a node.", ""]
    lines.append(f"{'day':10} {'bound':>7} {'lent':>7} {'moved a day':>11} {'rise in 2 h':>11}")
    for steady in report.stability:
        bound = "none" if steady.rise_per_hour == stability.AT_ONCE else f"{100 * steady.rise_per_hour:.0f}"
        figures = f"{100 * steady.lent:7.1f} {100 * steady.movement:11.1f} {100 * steady.rise:11.1f}"
        lines.append(f"{steady.day:10} {bound:>7} {figures}")
    return "\n".join(lines) + "\n"


def write(report: Report, folder: Path) -> None:
    """Write `report.txt`, `comparison.csv`, `calibration.csv`, `stability.csv` and `report.json`."""
    (folder / "report.txt").write_text(text(report), encoding="utf-8")
    _write_csv(folder / "comparison.csv", study.Row._fields, report.comparison)
    _write_csv(folder / "calibration.csv", Stated._fields, report.calibration)
    _write_csv(folder / "stability.csv", stability.Stability._fields, report.stability)
    whole = {
        "nodes": dict(report.nodes),
        "comparison": [row._asdict() for row in report.comparison],
        "calibration": [row._asdict() for row in report.calibration],
        "stability": [row._asdict() for row in report.stability],
    }
    (folder / "report.json").write_text(json.dumps(plain.value(whole), indent=1) + "\n", encoding="utf-8")


def _compared(row: study.Row, hindsight: float) -> str:
    gap = f"{100 * row.low:.2f} to {100 * row.high:.2f}"
    rates = f"{100 * row.savings:7.1f} {100 * row.ours:6.2f} {100 * row.theirs:6.2f}"
    return f"{row.day:10} {rates} {gap:>17} {holds(row):>5} {100 * hindsight:9.2f}  {row.peer}"


def _write_csv(path: Path, names: Sequence[str], rows: Sequence[tuple[object, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        writer.writerows(rows)
