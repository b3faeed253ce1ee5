"""Map columns of a file to metrics, and convert their units.

`name=column` uses a column unchanged, `name=column*1024` and `name=column/100` convert its unit. Names are those of the
table `samples`: `node`, a time, metrics, and `boot`, `seq`, `cpus`, `memory_bytes` where a file has them. A time is
`at_us`, or `time`, which is anything that DuckDB accepts as a timestamp, or `seconds` since the epoch. Names without an
entry use the column of the same name.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from schemas import metric

TIMES = ("at_us", "time", "seconds")
OTHERS = ("node", "boot", "seq", "cpus", "memory_bytes")
SHORT = {"cpu": "cpu_util", "memory": "memory_util"}

_ENTRY = re.compile(
    r"(?P<name>[a-z0-9_]+)=(?P<column>.+?)(?:(?P<sign>[*/])(?P<factor>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?))?"
)


class Column(NamedTuple):
    """Source of a column of `samples`: a column of the file, times a factor."""

    name: str
    source: str
    factor: float = 1.0


class Unmapped(ValueError):
    """An invalid map, or a file without a required column; the message names the entry or column and the reason."""


def parse(entries: Sequence[str]) -> list[Column]:
    """Read the entries of a map.

    >>> parse(["cpu=CPU %/100"])
    [Column(name='cpu_util', source='CPU %', factor=0.01)]

    Raises:
        Unmapped: An entry is not `name=column`, or its name does not exist.
    """
    columns = []
    for entry in entries:
        match = _ENTRY.fullmatch(entry.strip())
        if match is None:
            raise Unmapped(f"map: {entry!r} is not name=column, name=column*2 or name=column/100")
        name = SHORT.get(match["name"], match["name"])
        if name not in (*TIMES, *OTHERS, *metric.NAMES):
            names = ", ".join((*TIMES, *OTHERS, *metric.NAMES))
            raise Unmapped(f"map: there is no {name!r}; there are {names}")
        factor = float(match["factor"] or 1)
        if not factor:
            raise Unmapped(f"map: {entry!r} has the factor 0")
        columns.append(Column(name, match["column"], 1 / factor if match["sign"] == "/" else factor))
    return columns


def resolve(given: Sequence[Column], available: Sequence[str]) -> dict[str, Column]:
    """Return the columns to read by name: the given ones, then the file's columns with names of `samples`.

    Raises:
        Unmapped: The file lacks a given column, a time, the node, or every metric.
    """
    for column in given:
        if column.source not in available:
            raise Unmapped(f"map: the file has no column {column.source!r}; it has {', '.join(available)}")
    chosen = {column.name: column for column in given}
    timed = any(name in chosen for name in TIMES)
    for name in (*TIMES, *OTHERS, *metric.NAMES):
        if name in chosen or name not in available or (name in TIMES and timed):
            continue
        chosen[name] = Column(name, name)
        timed = timed or name in TIMES
    missing = [] if timed else ["a time (at_us, time or seconds)"]
    missing += [] if "node" in chosen else ["node"]
    missing += [] if any(name in chosen for name in metric.NAMES) else ["any metric (cpu_util, memory_util, ...)"]
    if missing:
        raise Unmapped(
            f"the file lacks {', '.join(missing)}; name the column with --map name=column. "
            f"It has {', '.join(available)}"
        )
    return chosen
