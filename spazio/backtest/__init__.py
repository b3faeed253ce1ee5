"""`spazio backtest FILE`: predictors of the peak against what usage then did, on a recording of whole days.

The steps: `trace` reads the recording and draws nodes, `peers` and `ours` predict at every time of each day, `score`
judges the predictions by the peak oracle, `study` compares at equal savings, `report` and `plot` write it down.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from processors.prediction.scoring import residuals
from processors.rows import table as rows
from spazio.backtest import plot, report, rolling, study, trace
from spazio.terminal import clean


def _print(message: str) -> None:
    print(clean.lines(message), file=sys.stderr, flush=True)


def run(
    path: Path,
    out_dir: Path,
    *,
    learned: Path | None = None,
    machines: int = 20,
    draws: int = 4,
    seed: int = 0,
    plots: bool = True,
    progress: Callable[[str], None] = _print,
) -> report.Report:
    """Back-test every predictor on a recording and write the outcome to a folder.

    Files: `report.txt`, `comparison.csv`, `calibration.csv`, `stability.csv`, `report.json`, `frontier.png`,
    `calibration.png` and `learned.npz`, which holds what all days together taught.

    Args:
        path: Parquet or CSV file as `trace` describes it.
        out_dir: Folder, made if it is not there.
        learned: `learned.npz` of another run: our predictor then learns nothing here. None: each day is tested with
            what the other days teach.
        machines: Machines of a node.
        draws: How often nodes are drawn; 1 is quicker and less sure.
        seed: Of the draws and the bootstrap.
        plots: False: no pictures, matplotlib is not needed.
        progress: Called with each step.

    Raises:
        ValueError: A file or a number is not as it must be.
        RuntimeError: Pictures are wanted and matplotlib is not installed.
    """
    if plots:
        plot.check()
    progress(f"reading {path}")
    days = trace.read(path)
    table = None if learned is None else load(learned)
    _check(days, path, machines=machines, draws=draws, alone=table is None)
    scored, taught = study.assess(days, size=machines, draws=draws, seed=seed, learned=table, progress=progress)
    progress("comparing")
    outcome = _report(scored, seed)
    _write(outcome, taught, out_dir)
    if plots:
        progress("drawing")
        plot.write(scored, out_dir)
    progress(f"written to {out_dir}")
    return outcome


def _report(scored: Mapping[str, study.Day], seed: int) -> report.Report:
    return report.Report(
        nodes={day: part.nodes for day, part in scored.items()},
        comparison=study.compare(scored, seed=seed),
        calibration=report.calibration(scored),
        stability=[row for part in scored.values() for row in part.steadiness],
    )


def roll(
    test: Path,
    train: Path | None,
    out_dir: Path,
    learned: Path | None = None,
    *,
    hours: Sequence[float] | None,
    machines: int,
    seed: int,
) -> str:
    """Compare the predictors as they run live over many days; returns the tables. Arguments are those of `rolling`.

    Raises:
        ValueError: A file or a number is not as it must be, peers have nothing to train on, or something was learned
            before.
    """
    if train is None:
        raise ValueError("--hours goes with --train: name a recording of other days that peers are tuned on")
    if learned is not None:
        raise ValueError(f"--learned {learned} does not go with --train, from which peers learn: leave one of them out")
    reports = rolling.run(
        test, train, out_dir, hours=hours or (1, 6, 24), machines=machines, seed=seed, progress=_print
    )
    return rolling.text(reports)


def _write(outcome: report.Report, taught: residuals.Table, out_dir: Path) -> None:
    out_dir.mkdir(parents=True, exist_ok=True)
    report.write(outcome, out_dir)
    np.savez_compressed(out_dir / "learned.npz", allow_pickle=False, **rows.flatten(taught))


def load(path: Path) -> residuals.Table:
    """Read what another run learned.

    Raises:
        ValueError: The file is not a `learned.npz`.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return rows.restore(residuals.empty(1), dict(file))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is not a learned.npz of a back-test: {error}") from error


def _check(days: Mapping[str, trace.Percent], path: Path, *, machines: int, draws: int, alone: bool) -> None:
    if machines < 1 or draws < 1:
        raise ValueError(f"machines and draws must be at least 1, not {machines} and {draws}")
    if alone and len(days) < 2:
        only = next(iter(days))
        raise ValueError(f"{path} has one day, {only}: give two or more, or what another run learned (learned.npz)")
    for day, part in days.items():
        if len(part) < 2 * machines:
            wanted = f"two nodes of {machines} need {2 * machines}"
            raise ValueError(
                f"{path}: day {day} has {len(part)} machines, {wanted}: add machines or make nodes smaller"
            )
