"""`spazio backtest TEST --train TRAIN`: the predictors as they run live, over recordings of many days.

Horizons roll, days are linked by their dates, machines have requests of their own, and come and go. `recording` reads
and draws nodes, `predictors` predicts at every time, `score` judges, `compare` sets ours beside peers that were
tuned on the other recording.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from spazio import count, plain
from spazio.backtest.rolling import compare, predictors, recording, score


class Report(NamedTuple):
    """What came out at one horizon; `taught` and `taught_saved` are of ours when it has learned from the training."""

    hours: float
    days: int
    nodes: int
    comparison: list[compare.Row]
    stated: list[compare.Stated]
    shipped: list[compare.Shipped]
    taught: list[compare.Stated]
    taught_saved: list[compare.Saved]


class _Recording(NamedTuple):
    """A recording, and what peers predict from at each of its times."""

    nodes: recording.Nodes
    past: list[predictors.Past]


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
        ValueError: A file or a number is not as it must be, or no horizon was recorded whole.
    """
    if machines < 1 or draws < 1 or not hours or min(hours) * 3600 < recording.STEP_SECONDS:
        raise ValueError("machines and draws must be at least 1, and a horizon at least five minutes")
    progress("reading")
    tested, trained = (_read(path, machines=machines, draws=draws, seed=seed) for path in (test, train))
    reports = []
    for horizon in hours:
        progress(f"horizon {horizon:g} h")
        report = _report(tested, trained, horizon, seed=seed)
        if report is None:
            progress(f"no horizon of {horizon:g} h was recorded whole: left out")
        else:
            reports.append(report)
    if not reports:
        asked = ", ".join(f"{each:g}" for each in hours)
        raise ValueError(f"{test} has no whole horizon of {asked} h: give a shorter --hours, or a longer recording")
    out_dir.mkdir(parents=True, exist_ok=True)
    (out_dir / "rolling.txt").write_text(text(reports), encoding="utf-8")
    (out_dir / "rolling.json").write_text(json.dumps(_plain(reports), indent=1) + "\n", encoding="utf-8")
    return reports


def _read(path: Path, *, machines: int, draws: int, seed: int) -> _Recording:
    nodes = recording.read(path, machines=machines, draws=draws, seed=seed)
    return _Recording(nodes, predictors.follow(nodes))


def _report(tested: _Recording, trained: _Recording, hours: float, *, seed: int) -> Report | None:
    """Return what comes out at one horizon; None: no horizon was recorded whole."""
    seconds = round(hours * 3600)
    best, best_trained = (score.future(part.nodes, seconds) for part in (tested, trained))
    own = predictors.ours(tested.nodes, best, seconds, predictors.fresh(seconds))
    if not own.judged.sum():
        return None
    learned = predictors.fresh(seconds)
    predictors.ours(trained.nodes, best_trained, seconds, learned)
    taught = predictors.ours(tested.nodes, best, seconds, learned)
    peers = list(predictors.peers(tested.nodes, tested.past, best))
    tuned = list(predictors.peers(trained.nodes, trained.past, best_trained))
    days, nodes = own.judged.shape
    return Report(
        hours=hours,
        days=days,
        nodes=nodes,
        comparison=compare.compare(own, peers, tuned, seed=seed),
        stated=compare.stated(own),
        shipped=compare.shipped(peers),
        taught=compare.stated(taught),
        taught_saved=compare.saved(taught),
    )


def text(reports: Sequence[Report]) -> str:
    """Return the tables to read, in percent."""
    return "\n".join(line for report in reports for line in _lines(report)) + "\n"


def _lines(report: Report) -> list[str]:
    lines = [f"Horizon {report.hours:g} h, {count.of(report.days, 'day')}, {count.of(report.nodes, 'node')}.", ""]
    titles = f"{'ours':>6} {'peer':>6} {'ours - peer, 95 %':>18}  with the knob of the training"
    lines.append(f"Savings at equal violations{'':26}{titles}")
    for row in report.comparison:
        gap = f"{100 * row.low:.1f} to {100 * row.high:.1f}"
        tuned = f"{100 * row.tuned_savings:.1f} at {100 * row.tuned_violation:.2f}"
        note = "  empty: a constant is as good" if row.is_empty else ""
        figures = f"{100 * row.ours:6.1f} {100 * row.theirs:6.1f} {gap:>18}  {tuned}"
        lines.append(f"{100 * row.violation:5.1f} %  {row.peer:44} {figures}{note}")
    lines += ["", *_stated(report.stated), "", "Ours after learning from the training: savings at equal violations"]
    lines += [f"{100 * row.violation:5.1f} %  {100 * row.savings:.1f}" for row in report.taught_saved]
    lines += ["", *_stated(report.taught)]
    lines += ["", "As shipped: violations, savings, moved a day"]
    lines += [
        f"{peer.peer:14} {100 * peer.violation:7.2f} {100 * peer.savings:6.1f} {100 * peer.moved:6.1f}"
        for peer in report.shipped
    ]
    return [*lines, ""]


def _stated(rows: Sequence[compare.Stated]) -> list[str]:
    lines = ["stated    seen  worst day  savings  moved a day  seen by tenths of the nodes"]
    for row in rows:
        head = f"{100 * row.stated:6.1f} {100 * row.seen:7.2f} {100 * row.worst_day:10.2f}"
        tenths = " ".join(f"{100 * part:.2f}" for part in row.tenths)
        lines.append(f"{head} {100 * row.savings:8.1f} {100 * row.moved:12.1f}  {tenths}")
    return lines


def _plain(reports: Sequence[Report]) -> list[dict[str, object]]:
    parts = ("comparison", "stated", "shipped", "taught", "taught_saved")
    return [
        {"hours": report.hours, "days": report.days, "nodes": report.nodes}
        | {name: [plain.value(row._asdict()) for row in getattr(report, name)] for name in parts}
        for report in reports
    ]
