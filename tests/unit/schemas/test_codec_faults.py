"""Whose subject a message may come on, and how its faults are reported."""

import json
from typing import Any

import pytest

from schemas import codec
from schemas.codec import MESSAGES, Refused
from schemas.messages.estimate import Model
from schemas.messages.telemetry import SampleBlock
from tests.unit.schemas.good import GOOD, SAMPLES, packed, refusal


@pytest.mark.parametrize(
    ("source", "node"),
    [("spazio.samples.a_b", "a.b"), ("spazio.part.3.samples.my=5Fhost", "my_host"), ("$KV.B.Z=C3=BC", "Zü")],
)
def test_a_node_may_speak_on_its_own_subject(source: str, node: str) -> None:
    assert codec.decode_from(SampleBlock, packed(SAMPLES | {"node": node}), source).node == node


@pytest.mark.parametrize(
    "source", ["spazio.samples.n2", "spazio.samples.n1x", "spazio.n1.samples", "spazio.part.1.samples.N1"]
)
def test_a_node_may_not_speak_on_another_subject(source: str) -> None:
    with pytest.raises(Refused, match="payload is of node 'n1', whose subject token is n1, not "):
        codec.decode_from(SampleBlock, packed(SAMPLES), source)


def test_a_message_without_a_node_may_come_on_any_subject() -> None:
    assert codec.decode_from(Model, packed(GOOD["model"]), "spazio.model.partition.3").partition == 3


@pytest.mark.parametrize("node", ["", "my node", "a\tb", "n\n", "\x00", 254 * "n"])
def test_a_name_that_no_node_may_have_is_refused(node: str) -> None:
    assert "node: a node name has 1 to 253 characters" in refusal("samples", packed(SAMPLES | {"node": node})).replace(
        "Value error, ", ""
    )


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("samples", {"values": [1.0]}, "1 values do not fill rows of 2 metrics"),
        ("samples", {"values": []}, "values: "),
        ("samples", {"metrics": ["pods", "pods"]}, "named twice"),
        ("samples", {"metrics": []}, "metrics: "),
        ("samples", {"metrics": ["m" * 65]}, "metrics.0: "),
        ("samples", {"seq": "7"}, "seq: "),
        ("samples", {"at_us": 2**53}, "at_us: "),
        ("samples", {"cpus": 0}, "cpus: "),
        ("samples", {"step_us": 0.5}, "step_us: "),
        ("samples", {"values": [True, 1.0]}, "values.0: "),
        ("availability", {"prior": 1.1}, "prior: "),
        ("availability", {"lower": -0.1}, "lower: "),
        ("availability", {"mode": "guess"}, "mode: "),
        ("availability", {"usage": {"cpu": 2}}, "usage.cpu: "),
        ("model", {"moment": [1.0]}, "2 features need 3 moments and 2 costs"),
        ("containers", {"event": "paused"}, "event: "),
        ("containers", {"sources": []}, "sources: "),
        ("cursor", {"sequence": -1}, "sequence: "),
    ],
)
def test_a_fault_is_reported_with_its_place(kind: str, change: dict[str, Any], message: str) -> None:
    assert message in refusal(kind, packed(GOOD[kind] | change))


def test_of_many_faults_three_are_reported_and_the_rest_counted() -> None:
    assert refusal("samples", b"{}").count("; ") == 2
    assert refusal("samples", b"{}").endswith("(and 6 more)")


@pytest.mark.parametrize(("kind", "field"), [("samples", "values"), ("pods", "pods"), ("pods", "cpu_cores")])
def test_a_list_of_thousands_of_wrong_values_is_refused_at_the_first(kind: str, field: str) -> None:
    messages = refusal(kind, packed(GOOD[kind] | {field: [{}] * 2000}))
    assert messages.startswith(f"{field}.0: ")
    assert f"{field}.1" not in messages
    assert "more)" not in messages


@pytest.mark.parametrize("kind", sorted(GOOD))
def test_a_large_message_that_lacks_fields_is_refused_for_the_same_reason_as_a_small_one(kind: str) -> None:
    required = {name for name, field in MESSAGES[kind].model_fields.items() if field.is_required()}
    for absent in required - {"v"}:
        small = {name: value for name, value in GOOD[kind].items() if name != absent}
        large = small | {"padding": "x" * 5000}
        assert refusal(kind, json.dumps(large).encode()) == refusal(kind, json.dumps(small).encode())
    newer = refusal(kind, json.dumps({"v": 2, "padding": "x" * 5000}).encode())
    assert newer == "contract version 2 is newer than 1, the newest known here"
    assert "Field required" in refusal(kind, json.dumps({"padding": "x" * 5000}).encode())
    assert refusal(kind, b'{"padding": "' + b"x" * 5000)
    assert refusal(kind, json.dumps(["x" * 5000]).encode())


def test_names_of_fields_may_be_written_with_escapes() -> None:
    text = json.dumps(GOOD["samples"] | {"padding": "x" * 5000}).replace('"node"', '"n\\u006fde"')
    assert codec.decode(SampleBlock, text.encode()).node == "n1"
