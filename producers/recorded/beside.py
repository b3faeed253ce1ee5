"""Messages of a history other than samples: container events, pod usage, facts.

The history sink wrote the rows after validation. The global model is among them if the history has its stream
position: then a replay repeats the recording exactly. Otherwise the replay's aggregator computes its own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from producers.recorded import prepare
from schemas import codec
from schemas.messages.base import Message
from schemas.messages.estimate import CLASS_COLUMNS, Model
from schemas.messages.facts import UNBOUND, NodeFacts, PodFacts
from schemas.messages.telemetry import ContainerEvent, PodUsageBlock

_BATCH = 10_000
_COLUMNS = {
    "pods": "pod",
    "namespaces": "namespace",
    "names": "name",
    "workloads": "workload",
    "containers": "containers",
    "cpu_cores": "cpu_cores",
    "memory_bytes": "memory_bytes",
    "cpu_pressure": "cpu_pressure",
    "memory_pressure": "memory_pressure",
    "io_pressure": "io_pressure",
    "throttled": "throttled",
}

_COUNTS = ("class_nodes",)

Row = Mapping[str, Any]


class Beside(NamedTuple):
    """A message of a recording; `position` is as in `Block`, `identity` is the end of its message id."""

    position: int
    at_us: int
    node: str
    message: Message
    identity: str

    def payload(self, shift_us: int) -> bytes:
        """Return the message, with its times moved later by `shift_us`."""
        if not shift_us:
            return codec.encode(self.message)
        moved = {
            name: value + shift_us
            for name, value in self.message
            if name.endswith("_us") and name not in ("boottime_us", "span_us") and value is not None
        }
        return codec.encode(self.message.model_copy(update=moved))


def read(
    connection: duckdb.DuckDBPyConnection, kind: str, files: Sequence[Path], streams: Sequence[str]
) -> Iterator[Beside]:
    """Yield the messages of one kind in order; by stream position if `streams` is not empty, else by time.

    Raises:
        pydantic.ValidationError: The rows are not from the history sink.
    """
    listed = "[" + ", ".join("'" + str(path).replace("'", "''") + "'" for path in files) + "]"
    source = (
        f"read_parquet({listed}, union_by_name = true, hive_partitioning = false, filename = '{prepare.FILE}', "
        "file_row_number = true)"
    )
    position = prepare.position(streams) if streams else "at_us"
    condition = "WHERE scope = 'global'" if kind == "model" else ""
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT * EXCLUDE ({prepare.FILE}, file_row_number), {position} AS place "  # noqa: S608 # our names
            f"FROM {source} {condition} ORDER BY place, node, {prepare.FILE}, file_row_number"
        )
        names = [column[0] for column in cursor.description or ()]
        yield from _MAKE[kind](dict(zip(names, row, strict=True)) for row in _rows(cursor))


def _rows(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while batch := cursor.fetchmany(_BATCH):
        yield from batch


def _events(rows: Iterable[Row]) -> Iterator[Beside]:
    for row in rows:
        event = ContainerEvent.model_validate(_without_nulls(row))
        identity = f"{event.boot}:{event.boottime_us}:{event.container}:{event.event}"
        yield Beside(row["place"], event.at_us, event.node, event, identity)


def _usage(rows: Iterable[Row]) -> Iterator[Beside]:
    for (at_us, node, boot, seq, span_us), grouped in groupby(
        rows, lambda row: (row["at_us"], row["node"], row["boot"], row["seq"], row["span_us"])
    ):
        listed = list(grouped)
        pods = [row for row in listed if row["pod"] is not None]
        system = next((row for row in listed if row["pod"] is None), {})
        block = PodUsageBlock.model_validate(
            {
                "node": node,
                "boot": boot,
                "seq": seq,
                "at_us": at_us,
                "span_us": span_us,
                "system_cpu_cores": system.get("cpu_cores"),
                "system_memory_bytes": system.get("memory_bytes"),
                **{name: [row[column] for row in pods] for name, column in _COLUMNS.items()},
                "ages": _ages([row.get("age") for row in pods]),
                "kinds": kinds if any(kinds := [row.get("kind") for row in pods]) else None,
            }
        )
        yield Beside(listed[0]["place"], at_us, node, block, f"{boot}:{seq}")


def _node_facts(rows: Iterable[Row]) -> Iterator[Beside]:
    for row in rows:
        facts = NodeFacts.model_validate(_without_nulls(row))
        yield Beside(row["place"], facts.at_us, facts.node, facts, f"{facts.uid}:{facts.version}:{facts.deleted}")


def _pod_facts(rows: Iterable[Row]) -> Iterator[Beside]:
    for row in rows:
        facts = PodFacts.model_validate({"node": UNBOUND} | _without_nulls(row))
        yield Beside(row["place"], facts.at_us, facts.node, facts, f"{facts.pod}:{facts.version}:{facts.deleted}")


def _models(rows: Iterable[Row]) -> Iterator[Beside]:
    for row in rows:
        fields = _without_nulls(row)
        sums = {field: _map(column, fields.pop(column)) for column, field in CLASS_COLUMNS.items() if column in fields}
        if "classes" in fields:
            fields["classes"] = {
                item.pop("class"): item
                | {name: by_class[label] for name, by_class in sums.items() if label in by_class}
                for item in fields["classes"]
                for label in (item["class"],)
            }
        model = Model.model_validate(fields)
        yield Beside(row["place"], model.at_us, "", model, str(model.at_us))


def _map(column: str, by_class: Mapping[str, float]) -> Mapping[str, float]:
    """Return a map of classes; counts are whole numbers, although maps of the table have amounts."""
    return {name: round(count) for name, count in by_class.items()} if column in _COUNTS else by_class


def _ages(ages: Sequence[int | None]) -> list[int] | None:
    """Return the pods' ages; None: the agent, or the version that recorded, did not report all of them."""
    present = [age for age in ages if age is not None]
    return present if present and len(present) == len(ages) else None


def _without_nulls(row: Row) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


_MAKE: Mapping[str, Callable[[Iterable[Row]], Iterator[Beside]]] = {
    "containers": _events,
    "pods": _usage,
    "nodefacts": _node_facts,
    "podfacts": _pod_facts,
    "model": _models,
}
