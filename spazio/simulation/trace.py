"""Pods and nodes of a scenario from CSV lists: what ran when, what it requested, and what it used.

A list of pods has the columns pod, arrival, duration (seconds; 0 counts as 1; empty: to the end), cpu_request,
memory_request, cpu_usage and memory_usage (quantities; empty: nothing is requested, and as much is used as is
requested); it may have workload and kind. A `serving` pod, the default, demands that CPU for the duration; a `batch`
one computes until it has used as much as that in all. A list of nodes has node, cpus and memory; it may have
allocatable_cpu, allocatable_memory and pods. The openb lists of Alibaba's cluster-trace-gpu-v2023 are read as they are:
they state no usage, and their GPUs are left out.
"""

import csv
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kube import quantity
from schemas import workload
from sinks.extender.state.pod_sums import nonzero

Row = Mapping[str, str]
Table = dict[str, Any]

_PODS = ("pod", "arrival", "duration", "cpu_request", "memory_request", "cpu_usage", "memory_usage")
_OPENB_PODS = ("name", "cpu_milli", "memory_mib", "creation_time", "deletion_time")
_NODES = ("node", "cpus", "memory")
_OPENB_NODES = ("sn", "cpu_milli", "memory_mib")
_LONGEST = 42  # of a class's name


class Misshapen(ValueError):
    """A list cannot be used; the message names the file, the line and the fault."""


def pods(path: Path, speed: float = 1.0) -> list[Table]:
    """Return the pods of a list, each as a table of a scenario.

    Args:
        path: The list.
        speed: By which times are divided.

    Raises:
        Misshapen, OSError: It cannot be read.
    """
    return _read(path, {_PODS: lambda row: _pod(row, speed), _OPENB_PODS: lambda row: _pod(_openb(row), speed)})


def nodes(path: Path) -> list[Table]:
    """Return the nodes of a list as tables of a scenario, equal ones together; raises as `pods`."""
    every = _read(path, {_NODES: _node, _OPENB_NODES: _openb_node})
    counted = Counter(tuple(table.items()) for table in every)
    return [dict(items) | {"count": count} for items, count in counted.items()]


def named(text: str, otherwise: str = "pod") -> str:
    """Return a name, such as a workload class, as a scenario may write it; `otherwise` if no letter of it may stay.

    >>> named("shop/Web_front"), named("-")
    ('shop-web-front', 'pod')
    """
    plain = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower())
    return plain.strip("-")[:_LONGEST].strip("-") or otherwise


def _read(path: Path, forms: Mapping[tuple[str, ...], Callable[[Row], Table]]) -> list[Table]:
    """Return a table for each row, by the form whose columns the list has."""
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        try:
            columns = set(reader.fieldnames or ())
            form = next((form for form in forms if columns.issuperset(form)), None)
            tables = [] if form is None else [forms[form](row) for row in reader]
        except (ValueError, TypeError, AttributeError, ArithmeticError, csv.Error) as error:
            raise Misshapen(f"{path}: line {max(1, reader.line_num)}: {error}") from error
    if form is None:
        wanted = " or ".join(",".join(each) for each in forms)
        raise Misshapen(f"{path}: line 1: the columns have to be {wanted}")
    if not tables:
        raise Misshapen(f"{path}: it lists nothing")
    return tables


def _pod(row: Row, speed: float) -> Table:
    asked = {
        resource: float(quantity.parse(row[f"{resource}_request"]))
        for resource in ("cpu", "memory")
        if row[f"{resource}_request"]
    }
    used = nonzero(asked) | {
        resource: float(quantity.parse(row[f"{resource}_usage"]))
        for resource in ("cpu", "memory")
        if row[f"{resource}_usage"]
    }
    seconds = (float(row["duration"]) or 1.0) / speed if row["duration"] else 0.0
    return {
        "name": named(row.get("workload") or workload.owner(row["pod"])),
        "count": 1,
        "at": float(row["arrival"]) / speed,
        "memory": used["memory"],
        **{f"{resource}_request": amount for resource, amount in asked.items() if amount > 0},
        **use(row.get("kind") or "serving", used["cpu"], seconds),
    }


def use(kind: str, cores: float, seconds: float) -> Table:
    """Return how a scenario's pods use so many cores for so many seconds; 0: to the end.

    Raises:
        ValueError: There is no such kind, or a batch pod does not end.
    """
    if kind == "serving":
        return {"kind": kind, "cores": cores, "seconds": seconds}
    if kind != "batch":
        raise ValueError(f"kind {kind!r} is neither serving nor batch")
    if not seconds * cores > 0:
        raise ValueError("a batch pod needs a duration and a CPU usage above 0")
    return {"kind": kind, "work": cores * seconds, "threads": max(1, round(cores)), "spread": 0.0}


def _openb(row: Row) -> Row:
    """Return a task of the openb list as a pod; one that is not deleted stays to the end."""
    lived = int(row["deletion_time"]) - int(row["creation_time"])
    return {
        "pod": row["name"],
        "arrival": row["creation_time"],
        "duration": str(max(lived, 0)),
        "cpu_request": f"{row['cpu_milli']}m",
        "memory_request": f"{row['memory_mib']}Mi",
        "cpu_usage": "",
        "memory_usage": "",
        "workload": f"task-{row['cpu_milli']}-{row['memory_mib']}",
    }


def _node(row: Row) -> Table:
    cpus, memory = float(quantity.parse(row["cpus"])), float(quantity.parse(row["memory"]))
    left = {"cpu": cpus, "memory": memory}
    reserved = {
        f"reserved_{resource}": whole - float(quantity.parse(text))
        for resource, whole in left.items()
        if (text := row.get(f"allocatable_{resource}"))
    }
    most = {"pods": int(row["pods"])} if row.get("pods") else {}
    return {"cpus": round(cpus), "memory": memory, **reserved, **most}


def _openb_node(row: Row) -> Table:
    return {"cpus": int(row["cpu_milli"]) // 1000, "memory": float(row["memory_mib"]) * 2.0**20}
