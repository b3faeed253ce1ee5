"""Sources over a frozen `/proc` that tests change."""

import re
from pathlib import Path

import pytest
from prometheus_client import REGISTRY

from producers import file, source

FROZEN = Path(__file__).parents[1] / "proc"
A, B = 100.0, 100.1
FILES = ("stat", "meminfo", "pressure/cpu", "pressure/memory", "pressure/io", "diskstats", "1/net/dev", "loadavg")


def put(proc: Path, moment: str, *names: str) -> None:
    """Turn files to a moment, in place: an open descriptor sees the new content, as in the real /proc."""
    for name in names or FILES:
        (proc / name).write_bytes((FROZEN / moment / name).read_bytes())


def edit(proc: Path, name: str, pattern: str, replacement: str) -> None:
    content, count = re.subn(pattern, replacement, (proc / name).read_text(), flags=re.MULTILINE)
    assert count, f"{pattern} is not in {name}"
    (proc / name).write_text(content)


def failures(name: str) -> float:
    return REGISTRY.get_sample_value("spazio_source_failures_total", {"source": name}) or 0.0


class Rig:
    """Sources read together and guarded, as the sampler does it."""

    def __init__(self, *sources: source.Source) -> None:
        self.sources = sources
        self.files = file.Files([item.path for item in sources if item.path is not None])
        self.guarded = [source.Guarded(item) for item in sources]

    def __call__(self, now: float) -> dict[str, source.Values]:
        contents = iter(self.files.read())
        return {
            item.name: guarded.measure(b"" if item.path is None else next(contents), now)
            for item, guarded in zip(self.sources, self.guarded, strict=True)
        }


def near(*values: float | None) -> object:
    return tuple(None if value is None else pytest.approx(value, rel=1e-9) for value in values)
