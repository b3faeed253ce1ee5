"""The table of messages: one row is enough for a kind to be known to codec, documents and streams."""

import re
from typing import ClassVar

import pytest

from bus import layout
from processors import decode
from schemas import channel, codec, document, role, settings
from schemas.channel import CHANNELS, Channel, Store, Token
from schemas.messages.base import Message, NodeName
from schemas.sections.generator import SIMULATED_KINDS
from schemas.subject import Names
from sinks.history.table import TABLES

LAB = Names("lab")
SETTINGS = settings.load({"prefix": "lab"}, environ={})


class Temperature(Message):
    """A made-up message."""

    TITLE: ClassVar[str] = "How warm a node is"

    node: NodeName
    degrees: float


def subjects(name: str, rows: tuple[Channel, ...]) -> list[str]:
    (config,) = (config for config in layout.configs(SETTINGS, rows) if config.name == name)
    return config.subjects or []


def test_one_row_is_enough_for_codec_documents_and_stream() -> None:
    rows = (*CHANNELS, Channel("temperature", Temperature, channel.ESTIMATES, "Once an hour"))
    message = Temperature(node="a.b", degrees=36.6)
    kind = channel.messages(rows)["temperature"]
    assert codec.decode_from(kind, codec.encode(message), LAB.node("temperature", "a.b")) == message
    assert channel.messages(rows).keys() - codec.MESSAGES.keys() == {"temperature"}

    content = document.asyncapi("lab", rows)
    described = content["channels"]["temperature"]
    assert described["address"] == "lab.temperature.{node}"
    assert described["description"] == "Once an hour. Kept in LAB_ESTIMATES"
    assert described["messages"] == {"temperature": {"$ref": "#/components/messages/temperature"}}
    assert described["parameters"].keys() == {"node"}
    assert content["operations"]["publish_temperature"]["channel"] == {"$ref": "#/channels/temperature"}
    assert content["components"]["messages"]["temperature"]["title"] == Temperature.TITLE
    assert document.json_schemas(rows)["temperature.json"]["properties"].keys() == {"v", "node", "degrees"}

    before = subjects("LAB_ESTIMATES", CHANNELS)
    assert subjects("LAB_ESTIMATES", rows) == [*before, "lab.temperature.*"]


def test_a_row_of_telemetry_is_stored_by_partition() -> None:
    rows = (*CHANNELS, Channel("temperature", Temperature, channel.TELEMETRY, "Once an hour"))
    assert channel.telemetry_kinds(rows) == (*channel.TELEMETRY_KINDS, "temperature")
    assert channel.agent_kinds(rows) == channel.AGENT_KINDS
    measured = Channel("temperature", Temperature, channel.TELEMETRY, "Once an hour", by_agent=True)
    assert channel.agent_kinds((*CHANNELS, measured)) == (*channel.AGENT_KINDS, "temperature")
    assert "lab.temperature.*" in subjects("LAB_TELEMETRY", rows)
    described = document.asyncapi("lab", rows)["channels"]["temperature"]["description"]
    assert described == "Once an hour. Kept in LAB_TELEMETRY, under lab.part.{partition}.temperature.{node}"


def test_a_row_of_a_new_bucket_is_a_bucket_of_the_server() -> None:
    rack = Token("rack", "where it stands")
    bucket = Store("WARMTH", "newest temperature of each rack", bucket=True)
    rows = (*CHANNELS, Channel("temperature", Temperature, bucket, "Bucket {bucket}", (rack,), "warmth_bucket"))
    assert subjects("KV_LAB_WARMTH", rows) == ["$KV.LAB_WARMTH.>"]
    described = document.asyncapi("lab", rows)["channels"]["warmth_bucket"]
    assert described["address"] == "$KV.LAB_WARMTH.{rack}"
    assert described["description"] == "Bucket LAB_WARMTH"
    assert described["parameters"] == {"rack": {"description": "where it stands"}}


@pytest.mark.parametrize("row", CHANNELS, ids=lambda row: row.name)
def test_each_row_keeps_what_its_own_filter_matches(row: Channel) -> None:
    example = re.sub(r"\{\w+\}", "7", row.address(LAB))
    name = f"{'KV_' if row.store.bucket else ''}LAB_{row.store.name}"
    patterns = [*subjects(name, CHANNELS), *([] if row.store.bucket else [row.filter(LAB)])]
    matches = [re.escape(each).replace(r"\*", r"[^.]+").replace(">", ".+") for each in patterns]
    assert len([each for each in matches if re.fullmatch(each, example)]) == 2 - row.store.bucket


def test_rows_have_names_of_their_own_and_a_kind_has_one_type() -> None:
    assert len({row.name for row in CHANNELS}) == len(CHANNELS)
    assert len({(row.kind, row.message) for row in CHANNELS}) == len({row.kind for row in CHANNELS})
    assert {store.name for store in channel.stores() if not store.bucket} == {
        "TELEMETRY",
        "ESTIMATES",
        "EVENTS",
        "DEAD",
    }


def test_a_kind_is_by_node_if_all_its_subjects_are() -> None:
    by_node = channel.kinds_by_node()
    assert {"samples", "availability", "podfacts", "reject"} <= by_node
    others = {"model", "forecast", "decision", "cursor", "dead", "workloads", "subspace", "shortage", "trust"}
    assert by_node.isdisjoint({*others, "reservations"})
    for kind in by_node:
        assert "node" in codec.MESSAGES[kind].model_fields
    assert {table.name for table in TABLES if not table.by_node} == {
        *("models", "forecasts", "decisions", "subspaces", "trust"),
    }


def test_each_estimate_is_published_by_a_role_and_by_no_other() -> None:
    names = Names()
    estimates = channel.of_store(channel.ESTIMATES)
    publishers = {row.publisher for row in estimates}
    assert {"process", "history"} <= publishers
    services = [each for each in role.ROLES if each.name not in (role.ADMIN, role.READER, role.REGION)]
    assert publishers <= {each.name for each in services}
    for row in estimates:
        allowed = {each.name for each in services if row.filter(names) in each.grant(names).publish}
        assert allowed == {row.publisher}, row


def test_a_partition_decodes_every_kind_that_telemetry_stores_by_node() -> None:
    assert decode.OTHERS.keys() | {"samples", "edge"} == set(channel.TELEMETRY_KINDS)
    assert set(SIMULATED_KINDS) <= set(channel.TELEMETRY_KINDS)
    assert set(channel.AGENT_KINDS) == set(channel.TELEMETRY_KINDS) - {"nodefacts", "podfacts"}


def test_no_subject_of_the_contract_leaves_its_stream() -> None:
    assert set(subjects("LAB_ESTIMATES", CHANNELS)) >= {
        "lab.availability.*",
        "lab.smoothed.*",
        "lab.prediction.*",
        "lab.reject.*",
        "lab.cursor.*",
        "lab.forecast.*.*",
        "lab.model.partition.*",
        "lab.model.local.*",
        "lab.workloads.partition.*",
    }
    assert subjects("LAB_EVENTS", CHANNELS) == ["lab.decision.>"]
    assert subjects("LAB_DEAD", CHANNELS) == ["lab.dead.>"]
    assert set(subjects("LAB_TELEMETRY", CHANNELS)) >= {
        *(f"lab.{kind}.*" for kind in ("samples", "containers", "pods", "edge", "nodefacts", "podfacts")),
        "lab.model",
    }
