"""The contract as documents: JSON Schema of each message, AsyncAPI of the bus, tables of settings and metrics.

All of them are made from the code that is in force, so they cannot say anything else; the copies in `docs/` are held
against it by a test.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas import codec, live, settings
from schemas.messages.base import VERSION
from schemas.metric import METRICS
from schemas.subject import Names

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NODE = {
    "node": {"description": "node name as one token: a dot as _, any other byte outside A-Z a-z 0-9 - as =XX in hex"}
}
_WORKLOAD = {
    "namespace": {"description": "namespace as one token"},
    "workload": {"description": "kind and name of what owns the pods, as one token: Deployment/web"},
}
_POD = {
    "namespace": {"description": "namespace as one token"},
    "pod": {"description": "name of the pod as one token"},
}
_PARTITION = {"partition": {"description": "number of a shard of nodes, from 0"}}
_DEAD = {
    "name": "dead",
    "title": "A message that nobody could use, as it came",
    "contentType": "application/octet-stream",
    "headers": {
        "type": "object",
        "required": ["Spazio-Error", "Spazio-Consumer"],
        "properties": {
            "Nats-Msg-Id": {
                "type": "string",
                "description": "dead:<stream>:<sequence>, and :<part> from the second on",
            },
            "Spazio-Error": {"type": "string", "description": "why it was refused"},
            "Spazio-Consumer": {"type": "string", "description": "who refused it"},
            "Spazio-Part": {"type": "string", "description": "2/3: second of three pieces of a message of full size"},
        },
    },
}


@dataclass(frozen=True, slots=True)
class _Channel:
    """One kind of subject: its name here, its address, what it carries, and a sentence on when."""

    name: str
    address: str
    message: str
    summary: str
    parameters: dict[str, dict[str, str]]


def _channels(prefix: str) -> Iterator[_Channel]:
    names = Names(prefix)
    of, stored = names.of, f"Kept in {names.telemetry}, under " + names.part("{partition}", "%s", "{node}")
    yield _Channel("samples", of("samples", "{node}"), "samples", f"Once a second. {stored % 'samples'}", _NODE)
    yield _Channel(
        "containers", of("containers", "{node}"), "containers", f"At once on an event. {stored % 'containers'}", _NODE
    )
    yield _Channel("pods", of("pods", "{node}"), "pods", f"Once a second. {stored % 'pods'}", _NODE)
    edge = "Once a second, instead of samples"
    yield _Channel("edge", of("edge", "{node}"), "edge", f"{edge}. {stored % 'edge'}", _NODE)
    yield _Channel("nodefacts", of("nodefacts", "{node}"), "nodefacts", f"On a change. {stored % 'nodefacts'}", _NODE)
    yield _Channel(
        "podfacts",
        of("podfacts", "{node}"),
        "podfacts",
        f"On a change; {{node}} is - while the pod is bound to none. {stored % 'podfacts'}",
        _NODE,
    )
    yield _Channel("model", names.model, "model", f"The global model, once a second. Kept in {names.telemetry}", {})
    kept = f"Kept in {names.estimates}"
    yield _Channel("smoothed", of("smoothed", "{node}"), "smoothed", f"Once a second, unless off. {kept}", _NODE)
    yield _Channel(
        "availability",
        of("availability", "{node}"),
        "availability",
        f"At once on a change, at most once a second, else every few seconds. {kept}",
        _NODE,
    )
    yield _Channel(
        "model_partition",
        of("model", "partition", "{partition}"),
        "model",
        f"Sums over the nodes of a shard, once a second. {kept}",
        _PARTITION,
    )
    yield _Channel("model_local", of("model", "local", "{node}"), "model", f"One node's model. {kept}", _NODE)
    yield _Channel(
        "prediction",
        of("prediction", "{node}"),
        "prediction",
        f"Once a minute where it has changed, at once where by much. {kept}",
        _NODE,
    )
    yield _Channel(
        "reject", of("reject", "{node}"), "reject", f"At once on a change, else every few seconds. {kept}", _NODE
    )
    yield _Channel(
        "workloads",
        of("workloads", "partition", "{partition}"),
        "workloads",
        f"Sums over the nodes of a shard, every 15 s. {kept}",
        _PARTITION,
    )
    yield _Channel(
        "forecast",
        of("forecast", "{namespace}", "{workload}"),
        "forecast",
        f"Every 15 s for each workload. {kept}",
        _WORKLOAD,
    )
    yield _Channel(
        "cursor", of("cursor", "{partition}"), "cursor", f"With the rows of each fold, in one batch. {kept}", _PARTITION
    )
    yield _Channel(
        "dead",
        names.dead("{subject}"),
        "dead",
        f"On bad input. Kept in {names.events}",
        {"subject": {"description": "subject that the message came on; several tokens"}},
    )
    yield _Channel(
        "decision",
        of("decision", "{namespace}", "{pod}"),
        "decision",
        f"On each attempt to place a pod. Kept in {names.events}",
        _POD,
    )
    bucket = names.availability_bucket
    yield _Channel(
        "availability_cache",
        f"$KV.{bucket}.{{node}}",
        "availability",
        f"Scheduler cache: key-value bucket {bucket}, key {{node}}; too old is absent",
        _NODE,
    )
    bucket = names.nodes_bucket
    yield _Channel(
        "nodes_bucket", f"$KV.{bucket}.{{node}}", "nodefacts", f"Key-value bucket {bucket}, key {{node}}", _NODE
    )
    bucket = names.pods_bucket
    yield _Channel(
        "pods_bucket",
        f"$KV.{bucket}.{{uid}}",
        "podfacts",
        f"Key-value bucket {bucket}, key {{uid}}: pods that the API server has",
        {"uid": {"description": "UID of the pod"}},
    )
    bucket = names.reservations_bucket
    yield _Channel(
        "reservations_bucket",
        f"$KV.{bucket}.{{node}}",
        "reservations",
        f"Key-value bucket {bucket}, key {{node}}: places held for pods that are not bound yet",
        _NODE,
    )


def json_schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema (draft 2020-12) of every message, by file name."""
    result = {}
    for kind, message in codec.MESSAGES.items():
        generated = _standing_alone(message.model_json_schema())
        head = {"$schema": _DIALECT, "title": message.TITLE, "description": generated["description"]}
        result[f"{kind}.json"] = head | {key: value for key, value in generated.items() if key not in head}
    return result


def _standing_alone(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with the definitions of its parts put where they are referred to."""
    parts = schema.pop("$defs", {})

    def resolved(node: Any) -> Any:
        if isinstance(node, list):
            return [resolved(item) for item in node]
        if not isinstance(node, dict):
            return node
        name = node.get("$ref", "").rpartition("/")[2]
        rest = {key: resolved(value) for key, value in node.items() if key != "$ref"}
        return resolved(parts[name]) | rest if name else rest

    return {key: resolved(value) for key, value in schema.items()}


def asyncapi(prefix: str = "spazio") -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document of the bus; payloads refer to the files of `json_schemas` in `schemas/`."""
    messages: dict[str, Any] = {
        kind: {
            "name": kind,
            "title": message.TITLE,
            "contentType": "application/json",
            "payload": {"$ref": f"./schemas/{kind}.json"},
        }
        for kind, message in codec.MESSAGES.items()
    }
    channels, operations = {}, {}
    for channel in _channels(prefix):
        channels[channel.name] = {
            "address": channel.address,
            "description": channel.summary,
            "messages": {channel.message: {"$ref": f"#/components/messages/{channel.message}"}},
        }
        if channel.parameters:
            channels[channel.name]["parameters"] = channel.parameters
        operations[f"publish_{channel.name}"] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{channel.name}"},
            "messages": [{"$ref": f"#/channels/{channel.name}/messages/{channel.message}"}],
        }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "spazio",
            "version": str(VERSION),
            "description": "How many more pods fit on each node, from telemetry. "
            "Times are microseconds since the Unix epoch; numbers are finite; unknown fields are to be ignored.",
        },
        "defaultContentType": "application/json",
        "servers": {"loopback": {"host": "127.0.0.1:4222", "protocol": "nats", "description": "server of spazio up"}},
        "channels": channels,
        "operations": operations,
        "components": {"messages": messages | {"dead": _DEAD}},
    }


def settings_table() -> str:
    """Return a markdown table of every setting: how it is given, its default, when a change counts, its reason."""
    rows = []
    for section, field, info in settings.options():
        flat = settings.option_name(section, field)
        rows.append(
            (
                f"`--{flat.replace('_', '-')}`",
                f"`{settings.ENV}{flat.upper()}`",
                f"`[{section}] {field}`" if section else f"`{field}`",
                _default(info),
                "at once" if live.may_change(info) else "restart",
                info.description,
            )
        )
    return _table(("option", "environment", "TOML", "default", "a change", "meaning"), rows)


def metrics_table() -> str:
    """Return a markdown table of every metric that an agent measures."""
    rows = [
        (
            f"`{metric.name}`",
            metric.unit,
            "0 or more" if metric.high == math.inf else f"0 to {metric.high:g}",
            metric.source if " " in metric.source else f"`{metric.source}`",
            metric.meaning,
        )
        for metric in METRICS
    ]
    return _table(("metric", "unit", "range", "source", "meaning"), rows)


def _default(info: Any) -> str:
    if info.default_factory is not None:  # the data folder alone; its value is this machine's, not the contract's
        return "`$XDG_DATA_HOME/spazio`, else `~/.local/share/spazio`"
    value = info.default
    if value is None or value == "":
        return "none"
    if isinstance(value, tuple):
        return f"`{','.join(map(str, value))}`"
    if isinstance(value, Path):
        return f"`{value.as_posix()}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _table(heading: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heading, ("---",) * len(heading), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)
