"""A day of history: `python -m benchmarks.history [--nodes 1000] [--hours 24] [--sampled 20]`.

The sink's own writer writes availability, a row for each node and second, every minute of the day, and its upkeep runs
every ten minutes: merging, roll-ups, retention. In the last ten minutes a simulated cluster of `--sampled` nodes fills
samples, pods, containers and facts through the whole writer. Then the questions of docs/sql.md are asked, of the whole
day and of its last fifteen minutes, while the last hour is not closed yet. At last it is closed, and the result has the
bytes a row of availability, the bytes a value of the samples, and those of Prometheus on the same samples.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.history import prometheus, questions, simulated
from benchmarks.history.availability import TABLE, Day
from schemas import metric
from schemas.messages.telemetry import SampleBlock
from schemas.sections.service import History
from sinks.history import layout, parquet, view
from sinks.history.layout import HOUR_US, Name
from sinks.history.upkeep import rollup
from sinks.history.upkeep.upkeep import Upkeep

_START_US = 1_763_596_800_000_000  # midnight
_CREATED = "20251120T000000000000Z"
_FLUSH, _TIDY, _SAMPLED = 60, 600, 600  # seconds
_PASSES = 20  # of the upkeep, after which no roll-up is left to be made
_SETTINGS = History(retention_1s_seconds=7 * 86_400)  # all roll-ups, to compare their sizes


def fill(folder: Path, keeper: Upkeep, nodes: int, hours: int) -> int:
    """Write availability of so many hours with the upkeep that happens meanwhile; returns the number of rows."""
    day, sequence = Day(nodes, _START_US), 0
    for flush, frame in enumerate(day.frames(hours * 3600, _FLUSH), 1):
        name = Name(_CREATED, sequence + 1, sequence + frame.height)
        rows = frame.with_columns(sequence=pl.arange(name.first, name.last + 1, eager=True))
        written = [(layout.write(path, content), path) for path, content in parquet.by_hour(folder, TABLE, rows, name)]
        for hidden, path in written:
            layout.settle(hidden, path)
        sequence = name.last
        layout.write_cursor(folder, "ESTIMATES", _CREATED, sequence)
        if flush * _FLUSH % _TIDY == 0:
            keeper.run(_START_US + flush * _FLUSH * 1_000_000, _SETTINGS)
    return sequence


def close(folder: Path, keeper: Upkeep, now_us: int) -> None:
    """Let the upkeep run until nothing is left for it."""
    keeper.run(now_us, _SETTINGS)
    for _ in range(_PASSES):
        if rollup.jobs(folder, now_us, _SETTINGS, {}):
            keeper.run(now_us, _SETTINGS)


def sizes(folder: Path) -> Counter[str]:
    """Return the bytes of the files of each table."""
    result = Counter[str]()
    for path, _ in layout.files(folder):
        result[path.parents[2].name] += path.stat().st_size
    return result


def measure(folder: Path, nodes: int, hours: int, sampled: int) -> dict[str, Any]:
    """Fill a folder, ask, and return the figures."""
    view.create(folder)
    keeper = Upkeep(folder)
    began, worked = time.perf_counter(), time.process_time()
    rows = fill(folder, keeper, nodes, hours)
    took = {"seconds": round(time.perf_counter() - began), "cpu_seconds": round(time.process_time() - worked)}
    end_us = _START_US + hours * HOUR_US
    began_us = end_us - _SAMPLED * 1_000_000
    blocks = list(simulated.write(folder, f"{_CREATED[:-1]}S", sampled, began_us, _SAMPLED))
    close(folder, keeper, end_us)
    asked = {"whole": questions.times(folder, recent=False), "recent": questions.times(folder, recent=True)}
    close(folder, keeper, end_us + 2 * HOUR_US)
    stored = sizes(folder)
    values = sum(value is not None for block in blocks for value in block.values)
    return {
        "nodes": nodes,
        "rows": rows,
        "written": took,
        "bytes_a_row_of_availability": round(stored["availability"] / rows, 2),
        "bytes_a_sample_value": round(stored["samples"] / values, 3),
        "prometheus": peer(blocks),
        "bytes": dict(stored),
        "samples": {"nodes": sampled, "seconds": _SAMPLED, "values": values, "metrics": len(metric.NAMES)},
        "seconds_a_question": asked["whole"],
        "seconds_a_recent_question": asked["recent"],
        "slowest": {form: max(given.values()) for form, given in asked.items()},
    }


def peer(blocks: list[SampleBlock]) -> dict[str, Any]:
    """Return the bytes that Prometheus takes for a sample, or why it was not asked."""
    if prometheus.MISSING:
        return {"skipped": prometheus.MISSING}
    with tempfile.TemporaryDirectory() as folder:
        return dict(prometheus.bytes_a_sample(Path(folder), blocks))


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--sampled", type=int, default=20, help="nodes whose samples, pods and facts are written")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), asked.nodes, asked.hours, asked.sampled), indent=2))


if __name__ == "__main__":
    main()
