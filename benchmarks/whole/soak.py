"""Whether memory and files stay bounded for hours: `python -m benchmarks.whole.soak NODES MINUTES PICTURE`.

`spazio up --nodes NODES` runs with everything on, after `--` with more of its options. Each quarter of a minute the
resident memory of every service and the bytes of the two folders that grow are read, and printed once a minute as a
line of JSON. At the end come the slope of each one's memory, by least squares over what follows the first twenty
minutes, the errors of the log and whether the accounts add up; a picture shows memory and files over time.
"""

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.agent import resident_bytes
from benchmarks.whole.__main__ import disk_bytes, errors, flow, running
from schemas import settings as all_settings
from schemas.settings import Settings
from spazio.service import addresses

_INTERVAL_SECONDS = 15.0
_LINES_EACH = 4
_SETTLED_MINUTES = 20.0
_MEGABYTE = 1e6
Series = dict[str, list[float]]


def observe(settings: Settings, minutes: float) -> tuple[list[float], Series, Series]:
    """Return the hours at which memory and files were read, and both in MB by service and by folder."""
    hours, memory, files = list[float](), defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
    began = time.monotonic()
    while (elapsed := time.monotonic() - began) < 60 * minutes:
        hours.append(elapsed / 3600)
        for name, pid in addresses.read(settings)["pids"].items():
            memory[name].append(resident_bytes(pid) / _MEGABYTE)
        for name, size in disk_bytes(settings).items():
            files[name].append(size / _MEGABYTE)
        if len(hours) % _LINES_EACH == 1:
            newest = [{name: round(values[-1], 1) for name, values in series.items()} for series in (memory, files)]
            line = {"minutes": round(elapsed / 60, 1), "memory_mb": newest[0], "files_mb": newest[1]}
            print(json.dumps(line), flush=True)
        time.sleep(_INTERVAL_SECONDS)
    return hours, memory, files


def slope(hours: Sequence[float], values: Sequence[float]) -> float | None:
    """Return MB an hour, by least squares over what follows the first minutes; None: it ended before that."""
    times, sizes = np.array(hours), np.array(values)
    settled = times >= _SETTLED_MINUTES / 60
    return round(float(np.polyfit(times[settled], sizes[settled], 1)[0]), 2) if settled.sum() > 1 else None


def draw(hours: Sequence[float], memory: Series, files: Series, path: Path) -> None:
    """Draw memory and files over time."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    panels = figure.subplots(1, 2)
    titles = ("resident memory", "files")
    for panel, series, title in zip(panels, (memory, files), titles, strict=True):
        for name, values in series.items():
            panel.plot(hours, values, label=name, lw=1)
        panel.set(xlabel="hours", ylabel="MB", title=title, ylim=(0, None))
        panel.grid(visible=True, alpha=0.3)
        panel.legend(fontsize=8)
    figure.savefig(path, dpi=80)


def main() -> None:
    """Print a line a minute, and the slopes at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nodes", nargs="?", type=int, default=300)
    parser.add_argument("minutes", type=float, nargs="?", default=120.0)
    parser.add_argument("picture", type=Path, nargs="?", default=Path("soak.png"))
    parser.add_argument("options", nargs="*", help="options of `spazio up`, after --")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = all_settings.load({"data_dir": str(Path(folder) / "data")}, environ={})
        with running(settings, asked.nodes, asked.options) as log:
            hours, memory, files = observe(settings, asked.minutes)
            status = flow(settings)
            logged = errors(log)
    draw(hours, memory, files, asked.picture)
    slopes = {name: slope(hours, values) for name, values in memory.items()}
    print(json.dumps({"mb_an_hour": slopes, "flow_status": status, "errors": logged}, indent=2))


if __name__ == "__main__":
    main()
