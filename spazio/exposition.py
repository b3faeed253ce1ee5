"""The table of all Prometheus metrics, collected from the code itself."""

import contextlib
import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client import REGISTRY
from prometheus_client.core import Metric

_PACKAGES = ("sinks", "bus", "kube", "producers", "processors", "spazio")
_LEFT_OUT = ("spazio.__main__", "spazio.command.agent")  # running them; they have no metrics of their own
_PREFIX = "spazio_"


class Entry(NamedTuple):
    """One metric: its full name, type, labels and meaning."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


def table() -> str:
    """Return a markdown table of all metrics, by name."""
    _load()
    rows = [
        f"| `{entry.name}` | {entry.kind} | {', '.join(f'`{label}`' for label in entry.labels)} | {entry.meaning} |"
        for entry in sorted({entry.name: entry for entry in _entries()}.values())
    ]
    return "\n".join(["| metric | type | labels | meaning |", "| --- | --- | --- | --- |", *rows]) + "\n"


def _load() -> None:
    """Import every module, so that its metrics are registered, except those whose packages are not installed."""
    for package in map(importlib.import_module, _PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name not in _LEFT_OUT:
                with contextlib.suppress(ImportError):
                    importlib.import_module(module.name)


def _entries() -> Iterator[Entry]:
    from sinks.metrics import prediction, service

    # The metrics of a process have objects with label names; of what the metrics sink collects, families have them.
    registered = {id(collector): collector for collector in REGISTRY._names_to_collectors.values()}  # noqa: SLF001 # the library has no other way
    for collector in registered.values():
        labels = tuple(getattr(collector, "_labelnames", ()))
        yield from _of(collector.describe() if hasattr(collector, "describe") else (), labels)
    for family in (*service.Nodes(1.0).collect(), *prediction.Predictions(prediction.Ages(1, 1, 1)).collect()):
        yield from _of([family], tuple(getattr(family, "_labelnames", ())))


def _of(families: Iterable[Metric], labels: tuple[str, ...]) -> Iterator[Entry]:
    for family in families:
        if family.name.startswith(_PREFIX):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield Entry(name, family.type, labels, family.documentation)
