"""`spazio backtest TEST --train TRAIN`: the predictors as they run live, over recordings of many days.

Horizons roll, days are linked by their dates, machines have requests of their own, and come and go. `recording` reads
and draws nodes, `predictors` predicts at every time, `score` judges, `compare` sets ours beside peers that were
tuned on the other recording.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spazio.backtest.rolling import compare, predictors, recording, score


class Report(NamedTuple):
    """What came out at one horizon."""

    hours: float
    days: int
    nodes: int
    comparison: list[compare.Row]
    stated: list[compare.Stated]
    shipped: list[compare.Shipped]


def run(
    test: Path,
    train: Path,
    out_dir: Path,
    *,
    hours: Sequence[float] = (1, 6, 24),
    machines: int = 20,
    draws: int = 2,
    seed: int = 0,
    progress: Callable[[str], None],
) -> list[Report]:
    """Compare all predictors on one recording, the peers tuned on another; writes `rolling.txt` and `rolling.json`.

    Args:
        test: Parquet or CSV file as `recording` describes it.
        train: Another one; the same file tunes peers in hindsight.
        out_dir: Folder, made if it is not there.
        hours: Horizons.
        machines: Machines of a node.
        draws: How often nodes are drawn.
        seed: Of the draws and the bootstrap.
        progress: Called with each step.

    Raises:
        ValueError: A file or a number is not as it must be.
    """
    if machines < 1 or draws < 1 or not hours or min(hours) * 3600 < recording.STEP_SECONDS:
        raise ValueError("machines and draws must be at least 1, and a horizon at least five minutes")
    tested, trained = (recording.read(path, machines=machines, draws=draws, seed=seed) for path in (test, train))
    reports = []
    for horizon in hours:
        seconds = round(horizon * 3600)
        progress(f"horizon {horizon:g} h")
        best, best_trained = score.future(tested, seconds), score.future(trained, seconds)
        own = predictors.ours(tested, best, seconds)
        if not own.judged.sum():
            progress(f"no horizon of {horizon:g} h was recorded whole: left out")
            continue
        peers = list(predictors.peers(tested, best))
        tuned = list(predictors.peers(trained, best_trained))
        rows = compare.compare(own, peers, tuned, seed=seed)
        days, nodes = own.judged.shape
        reports.append(Report(horizon, days, nodes, rows, compare.stated(own), compare.shipped(peers)))
    out_dir.mkdir(parents=True, exist_ok=True)
    (out_dir / "rolling.txt").write_text(text(reports), encoding="utf-8")
    (out_dir / "rolling.json").write_text(json.dumps(_plain(reports), indent=1) + "\n", encoding="utf-8")
    return reports


def text(reports: Sequence[Report]) -> str:
    """Return the tables to read, in percent."""
    return "\n".join(line for report in reports for line in _lines(report)) + "\n"


def _lines(report: Report) -> list[str]:
    lines = [f"Horizon {report.hours:g} h, {report.days} days, {report.nodes} nodes.", ""]
    titles = f"{'ours':>6} {'peer':>6} {'ours - peer, 95 %':>18}  with the knob of the training"
    lines.append(f"Savings at equal violations{'':26}{titles}")
    for row in report.comparison:
        gap = f"{100 * row.low:.1f} to {100 * row.high:.1f}"
        tuned = f"{100 * row.tuned_savings:.1f} at {100 * row.tuned_violation:.2f}"
        note = "  empty: a constant is as good" if row.is_empty else ""
        figures = f"{100 * row.ours:6.1f} {100 * row.theirs:6.1f} {gap:>18}  {tuned}"
        lines.append(f"{100 * row.violation:5.1f} %  {row.peer:44} {figures}{note}")
    lines += ["", "stated    seen  worst tenth of nodes  worst day  savings  moved a day"]
    for stated in report.stated:
        head = f"{100 * stated.stated:6.1f} {100 * stated.seen:7.2f} {100 * stated.worst_nodes:21.2f}"
        lines.append(f"{head} {100 * stated.worst_day:10.2f} {100 * stated.savings:8.1f} {100 * stated.moved:12.1f}")
    lines += ["", "As shipped: violations, savings, moved a day"]
    lines += [
        f"{peer.peer:14} {100 * peer.violation:7.2f} {100 * peer.savings:6.1f} {100 * peer.moved:6.1f}"
        for peer in report.shipped
    ]
    return [*lines, ""]


def _plain(reports: Sequence[Report]) -> list[dict[str, object]]:
    parts = ("comparison", "stated", "shipped")
    return [
        {"hours": report.hours, "days": report.days, "nodes": report.nodes}
        | {name: [_finite(row._asdict()) for row in getattr(report, name)] for name in parts}
        for report in reports
    ]


def _finite(row: dict[str, object]) -> dict[str, object]:
    """Return the row with every NaN as None: JSON knows no NaN."""
    return {name: None if isinstance(value, float) and np.isnan(value) else value for name, value in row.items()}
