"""A recording of many days: read it, check it, draw nodes from it.

A row is one sample of a machine: `vm`, `seconds` (since the epoch, UTC), `cpu` and `cpu_request` (cores). Machines come
and go, days are linked by their dates, and each machine has a request of its own.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from spazio import count
from spazio.backtest import trace

Array = NDArray[np.float64]

COLUMNS = ("vm", "seconds", "cpu", "cpu_request")
_TYPES = {"vm": pl.String, "seconds": pl.Float64, "cpu": pl.Float64, "cpu_request": pl.Float64}  # in CSV
STEP_SECONDS = 300


class Nodes(NamedTuple):
    """Nodes that run the machines of a recording, as shares of what each node has; steps without a sample left out.

    A node has room for the requests of its machines at their most.

    Attributes:
        second: (steps,) time of each, rising.
        usage: (steps, nodes); NaN: none of its machines was there.
        request: (steps, nodes) of the machines that were there.
        draws: How often the machines were drawn: so many nodes have each machine.
    """

    second: NDArray[np.int64]
    usage: Array
    request: Array
    draws: int = 1


def read(path: Path, *, machines: int, draws: int, seed: int) -> Nodes:
    """Read a recording and draw nodes of so many machines from it.

    Raises:
        ValueError: The file is not such a recording, or has too few machines; the message says what to do.
    """
    frame = _load(path)
    step = (frame["seconds"] // STEP_SECONDS).to_numpy()
    steps, at = np.unique(step, return_inverse=True)
    names, of = np.unique(frame["vm"].to_numpy(), return_inverse=True)
    if len(names) < 2 * machines:
        raise ValueError(f"{path} has {len(names)} machines, two nodes of {machines} need {2 * machines}")
    count, usage, request = (np.zeros((len(steps), len(names))) for _ in range(3))
    np.add.at(count, (at, of), 1.0)
    np.add.at(usage, (at, of), frame["cpu"].to_numpy())
    np.add.at(request, (at, of), frame["cpu_request"].to_numpy())
    usage, request = usage / np.maximum(count, 1.0), request / np.maximum(count, 1.0)
    parts = []
    for draw in range(draws if machines > 1 else 1):
        order = np.random.default_rng(seed + draw).permutation(len(names))
        parts.append(order[: len(names) // machines * machines].reshape(-1, machines))
    chosen = np.concatenate(parts)
    asked = request[:, chosen].sum(axis=2)
    room = asked.max(axis=0)
    used = np.where(asked > 0, usage[:, chosen].sum(axis=2), np.nan)
    return Nodes(steps * STEP_SECONDS, np.clip(used / room, 0.0, 1.0), asked / room, len(parts))


def _load(path: Path) -> pl.DataFrame:
    if not path.is_file():
        raise ValueError(f"{path} is not a file: give a Parquet or CSV file with columns {', '.join(COLUMNS)}")
    try:
        frame = trace.read_csv(path, _TYPES) if path.suffix == ".csv" else pl.read_parquet(path)
        missing = [name for name in COLUMNS if name not in frame.columns]
        if missing:
            raise ValueError(f"{path} has no column {', '.join(missing)}: rename or add it")
        frame = frame.select(
            pl.col("vm").cast(pl.String),
            pl.col("seconds").cast(pl.Int64),
            pl.col("cpu", "cpu_request").cast(pl.Float64),
        )
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    good = frame.filter(
        pl.all_horizontal(pl.all().is_not_null())
        & pl.col("cpu").is_between(0, 1e6)
        & pl.col("cpu_request").is_between(0, 1e6, closed="right")
    )
    if len(good) != len(frame) or good.is_empty():
        wrong = len(frame) - len(good)
        raise ValueError(
            f"{path}: {wrong} of {count.of(len(frame), 'row')} out of range: "
            "cpu from 0, cpu_request above 0, nothing missing"
        )
    return good
