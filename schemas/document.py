"""The contract as documents: JSON Schema of each message, AsyncAPI of the bus, tables of settings and metrics.

All of them are made from the code that is in force, so they cannot say anything else; the copies in `docs/` are held
against it by a test.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schemas import channel, live, settings
from schemas.channel import CHANNELS, Channel, Channels
from schemas.messages.base import VERSION
from schemas.metric import METRICS
from schemas.subject import Names

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DEAD = {
    "name": "dead",
    "title": "A message that could not be used, as it came",
    "contentType": "application/octet-stream",
    "headers": {
        "type": "object",
        "required": ["Spazio-Error", "Spazio-Consumer", "Spazio-Subject"],
        "properties": {
            "Nats-Msg-Id": {
                "type": "string",
                "description": "dead:<stream>:<sequence>, or dead:withheld:<digest> of a message that no server takes; "
                "and :<part> from the second on",
            },
            "Spazio-Error": {"type": "string", "description": "why it was refused"},
            "Spazio-Consumer": {"type": "string", "description": "who refused it"},
            "Spazio-Subject": {
                "type": "string",
                "description": "subject of the message, at most 1,000 characters of it; one that has more than 500 "
                "bytes or is malformed is not in the letter's subject, which is <prefix>.dead.long",
            },
            "Spazio-Part": {"type": "string", "description": "2/3: second of three pieces of a message of full size"},
            "Spazio-Cut": {
                "type": "string",
                "description": "4096/400000: only the first 4,096 bytes of 400,000, since too many came of its node",
            },
        },
    },
}


def json_schemas(channels: Channels = CHANNELS) -> dict[str, dict[str, Any]]:
    """Return the JSON Schema (draft 2020-12) of every message, by file name."""
    result = {}
    for kind, message in channel.messages(channels).items():
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


def asyncapi(prefix: str = "spazio", channels: Channels = CHANNELS) -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document of the bus; payloads refer to the files of `json_schemas` in `schemas/`."""
    names = Names(prefix)
    messages: dict[str, Any] = {
        kind: {
            "name": kind,
            "title": message.TITLE,
            "contentType": "application/json",
            "payload": {"$ref": f"./schemas/{kind}.json"},
        }
        for kind, message in channel.messages(channels).items()
    }
    addresses, operations = {}, {}
    for store in channel.stores(channels):
        for row in channel.of_store(store, channels):
            addresses[row.name] = _address(row, names)
            operations[f"publish_{row.name}"] = {
                "action": "send",
                "channel": {"$ref": f"#/channels/{row.name}"},
                "messages": [{"$ref": f"#/channels/{row.name}/messages/{row.kind}"}],
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
        "channels": addresses,
        "operations": operations,
        "components": {"messages": messages | {"dead": _DEAD}},
    }


def _address(row: Channel, names: Names) -> dict[str, Any]:
    """Return one channel of AsyncAPI."""
    described: dict[str, Any] = {
        "address": row.address(names),
        "description": row.description(names),
        "messages": {row.kind: {"$ref": f"#/components/messages/{row.kind}"}},
    }
    if row.variables:
        described["parameters"] = {token.name: {"description": token.description} for token in row.variables}
    return described


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
