"""Runs of the simulator, two or more side by side, whose figures are kept, so that an evaluation can be resumed.

A run is known by what it computes: the scenario without its name, the scheduler, the seed, and a hash of all code that
takes part. A change of any of them is another run.
"""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from spazio.simulation import engine, outcome
from spazio.simulation.outcome import Interval
from spazio.simulation.scenario import Scenario
from spazio.simulation.workers import workers

FOLDER = Path("build/evaluation")
_ROOT = Path(__file__).parents[2]
_CODE = ("schemas", "kube", "producers/simulated", "processors", "sinks/extender", "spazio/simulation")
_ALONE = ("spazio/in_process.py",)
_NAMES = {"name", "about", "schedulers"}  # of a scenario; they change nothing

Figures = Mapping[str, float]


class Run(NamedTuple):
    """A scenario, a scheduler, and a seed."""

    scenario: Scenario
    scheduler: str
    seed: int

    @property
    def key(self) -> str:
        """What its figures are kept by."""
        wanted = self.scenario.model_dump_json(exclude=_NAMES)
        text = "\n".join((wanted, self.scheduler, str(self.seed), code()))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


@lru_cache(maxsize=1)
def code() -> str:
    """Return a hash of everything that a run's figures depend on, beside the run itself."""
    files = [path for folder in _CODE for path in (_ROOT / folder).rglob("*.py")] + [_ROOT / name for name in _ALONE]
    total = hashlib.sha256(f"{sys.version_info[:2]} {np.__version__}".encode())
    for path in sorted(files):
        total.update(str(path.relative_to(_ROOT)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def figures(wanted: Sequence[Run], folder: Path, *, processes: int | None = None) -> dict[str, Figures]:
    """Return the figures of runs by key; those that the folder has are not run again.

    Args:
        wanted: The runs; equal ones are run once.
        folder: Where figures are kept.
        processes: Runs side by side; None: one for each CPU.
    """
    folder.mkdir(parents=True, exist_ok=True)
    runs = {run.key: run for run in wanted}
    results = {key: stored for key in runs if (stored := _stored(folder / f"{key}.json")) is not None}
    missing = {key: run for key, run in runs.items() if key not in results}
    for key, result in _run_all(missing, len(runs), processes):
        _store(folder / f"{key}.json", result)
        results[key] = result
    return results


def together(wanted: Sequence[Run], results: Mapping[str, Figures]) -> dict[str, Interval]:
    """Return the mean and interval of each figure over runs that differ in their seed."""
    return outcome.together([results[run.key] for run in wanted])


def _run_all(missing: Mapping[str, Run], total: int, processes: int | None) -> Iterator[tuple[str, Figures]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    if not missing:
        return
    with (
        workers(processes) as pool,
        Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar,
    ):
        task = bar.add_task("simulated runs", total=total, completed=total - len(missing))
        pending = {pool.submit(_figures, run): key for key, run in missing.items()}
        for done in as_completed(pending):
            yield pending[done], done.result()
            bar.advance(task)


def _figures(run: Run) -> Figures:
    return outcome.of(asyncio.run(engine.run(*run)), run.scenario)


def _stored(path: Path) -> Figures | None:
    """Return what is stored; None: nothing, or nothing that can be read."""
    try:
        stored: Figures = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return stored


def _store(path: Path, result: Figures) -> None:
    """Write a file that is whole or absent, whenever the program is killed."""
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(result))
    partial.replace(path)
