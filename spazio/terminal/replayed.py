"""What `spazio replay` says of a recording: its faults, what it lacks, and what came of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from producers.recorded.prepare import Fault, Prepared
from spazio import count
from spazio.terminal import clean

_EXAMPLE = "SELECT * FROM availability ORDER BY at_us LIMIT 5"


def sentence(result: dict[str, Any]) -> str:
    """Return the result of a replay as text."""
    kinds = ", ".join(f"{number} {kind}" for kind, number in result["messages"].items())
    lines = [f"{kinds} in {result['seconds']:.1f} s; {count.of(result['faulty'], 'row')} left out"]
    if not result["whole"]:
        lines.append("ended before the end of the recording")
    if result["history"]:
        lines.append(f"{count.of(result['availability'], 'row')} of availability:")
        lines.append(f'  spazio sql --history-dir {result["history"]} "{_EXAMPLE}"')
    return "\n".join(lines)


def lacking(metrics: Sequence[str]) -> str:
    """Return what a recording with these metrics cannot give, in one sentence; empty: nothing.

    >>> lacking(["cpu_util"])
    'the recording has no memory_util: peaks of cpu are predicted, but no availability is estimated'
    """
    resources = {"cpu": "cpu_util", "memory": "memory_util"}
    absent = [metric for metric in resources.values() if metric not in metrics]
    present = [name for name, metric in resources.items() if metric in metrics]
    if not absent:
        return ""
    rest = f"peaks of {present[0]} are predicted, but" if present else "no peaks are predicted, and"
    return f"the recording has no {' and no '.join(absent)}: {rest} no availability is estimated"


def unread(files: Sequence[Path]) -> str:
    """Return which files of an export are left out, and what to do, in one sentence; empty: there are none.

    >>> unread([Path("out/nodes.csv"), Path("out/pods.csv")])
    'nodes.csv and pods.csv are left out: of CSV only samples are read; `spazio export` without --format writes Parquet'
    """
    if not files:
        return ""
    left_out = f"{' and '.join(file.name for file in files)} {'is' if len(files) == 1 else 'are'} left out"
    return f"{left_out}: of CSV only samples are read; `spazio export` without --format writes Parquet"


def report_faults(prepared: Prepared, original: Callable[[str], str]) -> None:
    """Print the unusable rows, with file, row, column and value; `original` returns the file that was given."""
    for fault in prepared.faults:
        clean.complain(_located(fault._replace(file=original(fault.file))))
    if prepared.faulty > len(prepared.faults):
        clean.complain(f"and {prepared.faulty - len(prepared.faults)} more")


def _located(fault: Fault) -> str:
    value = f"is {fault.value!r}, which is not a possible value" if fault.value else "is missing"
    hint = "; name the column seconds if it has seconds since the epoch" if _is_epoch(fault) else ""
    if not hint and _is_above_one(fault):
        hint = (
            "; cpu and memory are shares from 0 to 1: divide others, as in --map memory=COLUMN/BYTES or cpu=COLUMN/100"
        )
    return f"{fault.file} row {fault.row}, column {fault.column!r}: {value}{hint}"


def _is_epoch(fault: Fault) -> bool:
    return fault.column == "time" and fault.value.replace(".", "", 1).isdigit()


def _is_above_one(fault: Fault) -> bool:
    try:
        return fault.column != "time" and float(fault.value) > 1
    except ValueError:
        return False
