"""A recording of virtual machines' CPU: read it, check it, draw nodes from it.

A row is one sample: `day`, `vm`, `sample` (0 to 287, five minutes each) and `cpu_percent` (of a virtual core). A
machine of one day is a request of one core. Days need not follow one another, and machines need not return.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from spazio import count

Array = NDArray[np.float64]
Percent = NDArray[Any]  # (machines, samples), bytes if all are whole numbers: they sort eight times faster

COLUMNS = ("day", "vm", "sample", "cpu_percent")
# Types of the columns of a CSV file, whose first rows do not tell them: whole numbers may come before others.
_TYPES = {"day": pl.String, "vm": pl.String, "sample": pl.Float64, "cpu_percent": pl.Float64}
SAMPLES = 288
SAMPLE_SECONDS = 300


def read(path: Path) -> Mapping[str, Percent]:
    """Return each day's usage (machines, samples) in percent of a core, days in order.

    Raises:
        ValueError: The file is not such a recording; the message names what is wrong, where, and the remedy.
    """
    frame = _load(path)
    missing = [name for name in COLUMNS if name not in frame.columns]
    if missing:
        have = ", ".join(frame.columns)
        raise ValueError(f"{path} has no column {', '.join(missing)} (it has {have}): rename or add it")
    frame = frame.select(COLUMNS).cast({"day": pl.String, "vm": pl.String})
    _check_values(path, frame)
    percent = frame["cpu_percent"]
    if (percent == percent.round()).all():
        frame = frame.with_columns(cpu_percent=percent.cast(pl.UInt8))
    frame = frame.sort("day", "vm", "sample")
    _check_days(path, frame)
    days = {}
    for (day,), part in frame.group_by("day", maintain_order=True):
        days[str(day)] = part["cpu_percent"].to_numpy().reshape(-1, SAMPLES)
    return days


def draw(percent: Percent, size: int, seed: int) -> Percent:
    """Return nodes (nodes, size, samples) of machines drawn without replacement; those left over are left out."""
    order = np.random.default_rng(seed).permutation(len(percent))
    count = len(percent) // size
    drawn: Percent = percent[order[: count * size]].reshape(count, size, -1)
    return drawn


def read_csv(path: Path, types: Mapping[str, type[pl.DataType]]) -> pl.DataFrame:
    """Read a CSV file with these types of columns; other columns are text."""
    return pl.read_csv(path, schema_overrides=types, infer_schema=False)


def _load(path: Path) -> pl.DataFrame:
    if not path.is_file():
        raise ValueError(f"{path} is not a file: give a Parquet or CSV file with columns {', '.join(COLUMNS)}")
    try:
        return read_csv(path, _TYPES) if path.suffix == ".csv" else pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        kind = "CSV" if path.suffix == ".csv" else "Parquet"
        raise ValueError(f"{path} cannot be read as {kind}: {error}") from error


def _check_values(path: Path, frame: pl.DataFrame) -> None:
    if frame.is_empty():
        raise ValueError(f"{path} has no rows")
    for name in ("sample", "cpu_percent"):
        if not frame[name].dtype.is_numeric():
            raise ValueError(f"{path}: column {name} is {frame[name].dtype}: it must be a number")
    wrong = frame.filter(
        pl.any_horizontal(pl.all().is_null())
        | ~pl.col("cpu_percent").is_between(0, 100)
        | ~pl.col("sample").is_between(0, SAMPLES - 1)
    )
    if not wrong.is_empty():
        row = ", ".join(f"{name} {value}" for name, value in wrong.row(0, named=True).items())
        wanted = f"cpu_percent must be 0 to 100, sample 0 to {SAMPLES - 1}, and nothing may be missing"
        raise ValueError(f"{path}: {count.of(len(wrong), 'row')} out of range, the first is {row}: {wanted}")


def _check_days(path: Path, frame: pl.DataFrame) -> None:
    counts = frame.group_by("day", "vm").agg(pl.len().alias("rows"), pl.col("sample").n_unique().alias("samples"))
    wrong = counts.filter((pl.col("rows") != SAMPLES) | (pl.col("samples") != SAMPLES)).sort("day", "vm")
    if not wrong.is_empty():
        day, vm, rows, samples = wrong.row(0)
        lacking = f"{count.of(len(wrong), 'machine')} without a whole day"
        message = f"{path}: {lacking}, the first is vm {vm} on day {day} with {count.of(rows, 'row')}"
        raise ValueError(
            f"{message} and {samples} different samples of {SAMPLES}: leave it out, or fill what is missing"
        )
