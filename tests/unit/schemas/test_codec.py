"""Whatever bytes come from outside, they are a message or `Refused` with a sentence, and never anything else."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec
from schemas.codec import MESSAGES, Refused
from schemas.messages.base import Message
from schemas.messages.estimate import Availability, Model
from schemas.messages.telemetry import SampleBlock

BLOCK: dict[str, Any] = {
    "v": 1, "node": "n1", "boot": "b", "seq": 7, "at_us": 1_700_000_000_000_000, "step_us": 500_000,
    "metrics": ["cpu_util", "pods"], "values": [0.25, None, 1, 3.0],
}  # fmt: skip
GOOD: dict[str, dict[str, Any]] = {
    "samples": BLOCK | {"cpus": 4, "memory_bytes": 1 << 33},
    "smoothed": BLOCK,
    "containers": {
        "v": 1, "node": "a.b", "boot": "b", "at_us": 1, "boottime_us": 2, "event": "exited",
        "container": "c", "sources": ["docker", "cgroup"], "pod": "p",
    },
    "pods": {
        "v": 1, "node": "a", "boot": "b", "seq": 3, "at_us": 4, "span_us": 1_000_000, "system_cpu_cores": 0.25,
        "pods": ["u"], "namespaces": [None], "names": ["n"], "workloads": ["w"], "containers": [1], "cpu_cores": [0.5],
        "memory_bytes": [1e6], "cpu_pressure": [None], "memory_pressure": [0.0], "io_pressure": [1.0],
        "throttled": [0.5],
    },
    "edge": {
        "v": 1, "node": "a.b", "boot": "b", "seq": 3, "at_us": 4, "step_us": 200_000,
        "usage": [0.5, None, 0], "pods": 2, "waiting": 0.25,
        "size": {"cpus": 4, "memory_bytes": 1 << 33, "pressure": False}, "moment": [0.25, -0.1, 1],
    },
    "nodefacts": {
        "v": 1, "node": "a", "uid": "u", "version": 3, "at_us": 4, "created_us": 1, "ready": True,
        "unschedulable": False, "allocatable": {"cpu": 1.5}, "capacity": {}, "labels": {"a": ""}, "annotations": {},
        "taints": [{"key": "k", "value": "", "effect": "NoExecute"}], "deleted": False,
    },
    "podfacts": {
        "v": 1, "node": "-", "pod": "u", "namespace": "s", "name": "n", "version": 3, "at_us": 4, "phase": "Pending",
        "created_us": 1, "requests": {}, "limits": {}, "labels": {}, "annotations": {}, "workload": "s/n",
        "deleted": False, "terminating": False,
    },
    "availability": {
        "v": 1, "node": "my_host", "at_us": 2**53 - 1, "seq": 0, "available": 1.5, "lower": 0.0, "upper": 1e300,
        "signal": 0.1, "cost": 5e-324, "capacity": 1, "pods": 3, "binding": "cpu", "mode": "capacity",
        "churn": True, "prior": 0.5, "usage": {"cpu": 0.1, "memory": 0.30000000000000004}, "explained": 1.0,
        "gap": 0.0, "since_us": 0,
    },
    "model": {
        "v": 1, "scope": "partition", "at_us": 1, "features": ["cpu", "memory"], "moment": [1.0, -0.5, 1.0],
        "nodes": 2, "pods": 1, "cost": [0.1, 0.2], "partition": 3,
    },
    "decision": {
        "v": 1, "namespace": "s", "name": "n", "pod": "u", "at_us": 4, "outcome": "placed", "node": "a",
        "mode": "argmax", "guaranteed": True, "note": "x", "workload": "s/n", "strategies": {"availability": 1.0},
        "nodes": 2, "feasible": 1, "refused": {"full": 1}, "seconds": 0.001,
        "ranked": [{
            "node": "a", "score": 50.0, "scores": {"availability": 50.0}, "room": 3.5, "reserved": 1.0,
            "state": "fresh",
        }],
        "refusals": [{"node": "b", "reason": "full", "needs": ["room for 1 more"]}],
    },
    "market": {
        "v": 1,
        "at_us": 7,
        "since_us": 1,
        "markets": [{"type": "m5", "zone": "a", "spot": True, "hours": 3.5, "price": 0.2, "interruptions": 1}],
    },
    "shortage": {
        "v": 1, "replica": "e-1", "at_us": 7, "until_us": 9, "pods": 3,
        "waiting": [{"workload": "s/n", "pods": 3, "since_us": 4}], "full": ["a.b"], "stranded": [],
    },
    "reservations": {
        "v": 1, "node": "a.b",
        "pods": {
            "u": {
                "namespace": "s", "name": "n", "workload": "s/n", "at_us": 4, "until_us": 5, "requests": {"cpu": 0.5},
            },
        },
    },
    "prediction": {
        "v": 1, "node": "a", "at_us": 4, "horizon_seconds": 3600.0, "model": "max",
        "peak": {"cpu": 1.5, "memory": 2e9}, "violation": 0.05,
        "peaks": {"node": {"max": {"cpu": 1.5, "memory": 2e9}}, "system": {}},
        "capacity": {"cpu": 4, "memory": 8e9}, "requested": {"cpu": 2, "memory": 4e9},
        "unpredicted": {"cpu": 0, "memory": 0}, "reclaimable": {"cpu": 0.5, "memory": 0}, "formula": "mixed",
        "mid": {"mixed": {"cpu": 0.5, "memory": 0}}, "batch": {"cpu": 1, "memory": 1e9},
        "accuracy": {"max": {"violations": 0.25, "severity": 0.1, "savings": -0.5, "settled": 4.5}},
        "windows": 7, "reason": "change",
    },
    "reject": {
        "v": 1, "node": "a", "at_us": 4, "seq": 3, "reject": True, "score": 0.75, "threshold": 0.5, "rank": 2,
        "spikes": [1, -1], "weights": [0.75, 0.25], "since_us": 4,
    },
    "subspace": {
        "v": 1, "scope": "global", "at_us": 1, "metrics": ["a", "b"], "basis": [0.6, 0.8, -0.8, 0.6], "nodes": 3,
        "sigma": [2.0, 0.5],
    },
    "workloads": {
        "v": 1, "partition": 3, "at_us": 4, "chunk": 0, "namespaces": ["s"], "kinds": ["Deployment"],
        "workloads": ["w"], "pods": [2], "ready": [1], "cpu": [0.5], "memory": [1e6], "requested_cpu": [1],
        "requested_memory": [2e6], "initialized": [1], "initialization_seconds": [12.5],
    },
    "forecast": {
        "v": 1, "namespace": "s", "kind": "Deployment", "workload": "w", "at_us": 4, "pods": 2, "ready": 1,
        "initialization_seconds": 12.5, "horizon_seconds": 12.5, "observations": 4,
        "requested": {"cpu": 1, "memory": 2e6}, "current": {"cpu": 0.5, "memory": 1e6}, "model": "linear",
        "forecast": {"cpu": 0.75, "memory": 1e6}, "forecasts": {"linear": {"cpu": 0.75, "memory": 1e6}},
        "target": 0.8, "desired": 2, "raises": True,
    },
    "cursor": {"v": 1, "stream": "S", "created": "20250101T000000000000Z", "sequence": 1},
}  # fmt: skip
SAMPLES = GOOD["samples"]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def packed(content: object) -> bytes:
    return json.dumps(content).encode()


def refusal(kind: str, payload: bytes) -> str:
    with pytest.raises(Refused) as caught:
        codec.decode(MESSAGES[kind], payload)
    return str(caught.value)


def try_all(payload: bytes) -> None:
    """Decode as every kind; anything but a message and a readable refusal fails."""
    for kind in MESSAGES.values():
        reason = ""
        try:
            assert isinstance(codec.decode_from(kind, payload, "spazio.samples.n1"), kind)
        except Refused as refused:
            reason = str(refused)
        assert reason == "" or len(reason.split()) > 1
        assert "\n" not in reason


def test_every_kind_has_an_example_here() -> None:
    assert GOOD.keys() == MESSAGES.keys()


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_goes_and_comes_back_the_same(kind: str) -> None:
    message: Message = codec.decode(MESSAGES[kind], packed(GOOD[kind]))
    payload = codec.encode(message)
    assert json.loads(payload) == GOOD[kind]
    assert codec.decode(MESSAGES[kind], payload) == message
    assert codec.encode(codec.decode(MESSAGES[kind], payload)) == payload


@given(st.floats(0, allow_nan=False, allow_infinity=False), st.integers(0, 2**53 - 1))
def test_numbers_survive_to_the_last_bit(number: float, at_us: int) -> None:
    message = codec.decode(Availability, packed(GOOD["availability"] | {"available": number, "at_us": at_us}))
    again = codec.decode(Availability, codec.encode(message))
    assert (again.available, again.at_us) == (number, at_us)


@given(st.binary(max_size=64))
def test_arbitrary_bytes_are_refused_or_read(payload: bytes) -> None:
    try_all(payload)


@given(JSON)
def test_arbitrary_json_is_refused_or_read(content: object) -> None:
    try_all(packed(content))


def test_a_reason_is_one_line_whatever_names_a_sender_has_thought_of() -> None:
    reason = refusal("nodefacts", packed(GOOD["nodefacts"] | {"allocatable": {"\n": None}}))
    assert reason == r"allocatable.'\n': Input should be a valid number"


@given(st.data())
def test_a_message_with_arbitrary_fields_replaced_or_gone_is_refused_or_read(data: st.DataObject) -> None:
    good = GOOD[data.draw(st.sampled_from(sorted(GOOD)))]
    changed = data.draw(st.dictionaries(st.sampled_from(sorted(good)), JSON, max_size=3))
    gone = data.draw(st.sets(st.sampled_from(sorted(good)), max_size=2))
    try_all(packed({key: value for key, value in (good | changed).items() if key not in gone}))


@given(st.sampled_from(sorted(GOOD)), st.data())
def test_a_message_that_is_cut_off_or_damaged_is_refused_or_read(kind: str, data: st.DataObject) -> None:
    payload = packed(GOOD[kind])
    place = data.draw(st.integers(0, len(payload) - 1))
    assert len(refusal(kind, payload[:place])) > 10
    try_all(payload[:place] + data.draw(st.binary(min_size=1, max_size=2)) + payload[place + 1 :])


@pytest.mark.parametrize(
    "payload",
    [
        b"", b"\x00", b"\xff\xfe", b"null", b"[]", b"7", b'"n1"', b"{", b"{}", b"{}{}", b"\xef\xbb\xbf{}",
        b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000, b'{"v":' + b"9" * 5000 + b"}", b'{"node":"\\ud800"}',
    ],
)  # fmt: skip
def test_classics_of_garbage_are_refused_in_a_sentence(payload: bytes) -> None:
    for kind in MESSAGES:
        assert len(refusal(kind, payload).split()) > 1


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["samples", "availability", "model"])
def test_numbers_that_are_not_finite_are_refused_and_named(kind: str, number: float) -> None:
    field = {"samples": "values", "availability": "available", "model": "moment"}[kind]
    content = GOOD[kind] | {field: number if kind == "availability" else [number] * len(GOOD[kind][field])}
    assert refusal(kind, packed(content)).startswith(field)


@pytest.mark.parametrize("literal", [b"1e999", b"-1e999"])
def test_a_number_that_overflows_is_refused(literal: bytes) -> None:
    payload = packed(SAMPLES).replace(b"0.25", literal)
    assert "values.0: " in refusal("samples", payload)


def test_a_message_that_is_not_finite_cannot_even_be_made() -> None:
    with pytest.raises(ValueError, match="finite"):
        SampleBlock.model_validate(SAMPLES | {"values": [math.nan, 1.0]})


@pytest.mark.parametrize("kind", MESSAGES)
@pytest.mark.parametrize("version", [2, 3, 10**6])
def test_a_newer_contract_is_refused_for_that_reason_alone(kind: str, version: int) -> None:
    content: dict[str, Any] = {"v": version, "node": 7, "new": True}
    assert refusal(kind, packed(content)) == f"contract version {version} is newer than 1, the newest known here"


@pytest.mark.parametrize("version", [0, -1, "1", 1.5, True, None, []])
def test_what_is_no_version_is_refused(version: object) -> None:
    assert refusal("samples", packed(SAMPLES | {"v": version})).startswith("v: ")


@pytest.mark.parametrize("kind", MESSAGES)
def test_fields_of_a_newer_peer_are_ignored(kind: str) -> None:
    message = codec.decode(MESSAGES[kind], packed(GOOD[kind] | {"tomorrow": [1]}))
    assert json.loads(codec.encode(message)) == GOOD[kind]


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
def test_a_fault_is_told_with_its_place(kind: str, change: dict[str, Any], message: str) -> None:
    assert message in refusal(kind, packed(GOOD[kind] | change))


def test_of_many_faults_three_are_told_and_the_rest_counted() -> None:
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
