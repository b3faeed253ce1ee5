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
from schemas.messages.estimate import Availability
from schemas.messages.telemetry import SampleBlock
from tests.unit.schemas.good import GOOD, SAMPLES, packed, refusal

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


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


@pytest.mark.slow
@given(JSON)
def test_arbitrary_json_is_refused_or_read(content: object) -> None:
    try_all(packed(content))


def test_a_reason_is_one_line_whatever_names_a_sender_has_thought_of() -> None:
    reason = refusal("nodefacts", packed(GOOD["nodefacts"] | {"allocatable": {"\n": None}}))
    assert reason == r"allocatable.'\n': Input should be a valid number"


@pytest.mark.slow
@given(st.data())
def test_a_message_with_arbitrary_fields_replaced_or_gone_is_refused_or_read(data: st.DataObject) -> None:
    good = GOOD[data.draw(st.sampled_from(sorted(GOOD)))]
    changed = data.draw(st.dictionaries(st.sampled_from(sorted(good)), JSON, max_size=3))
    gone = data.draw(st.sets(st.sampled_from(sorted(good)), max_size=2))
    try_all(packed({key: value for key, value in (good | changed).items() if key not in gone}))


@given(st.sampled_from(sorted(GOOD)), st.data())
def test_a_message_that_is_cut_off_or_damaged_is_refused_or_read(kind: str, data: st.DataObject) -> None:
    payload = packed(GOOD[kind])
    offset = data.draw(st.integers(0, len(payload) - 1))
    assert len(refusal(kind, payload[:offset])) > 10
    try_all(payload[:offset] + data.draw(st.binary(min_size=1, max_size=2)) + payload[offset + 1 :])


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
