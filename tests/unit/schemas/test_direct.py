"""A derived decoder accepts nothing that its model refuses, and makes the same message."""

import json
import random
from typing import Annotated

import msgspec
import pytest
from annotated_types import Ge, Gt
from pydantic import Field, ValidationError, field_validator

from schemas import codec, direct
from schemas.codec import MESSAGES
from schemas.messages.base import Message
from schemas.messages.telemetry import POD_COLUMNS, PodUsageBlock
from tests.fuzz.mutation import mutated
from tests.unit.schemas.good import GOOD
from tests.unit.schemas.test_documents import FULL

DERIVED = sorted(kind for kind, message in MESSAGES.items() if direct.decoder(message) is not None)
_MUTATIONS = 500


def test_only_decisions_are_left_to_their_model() -> None:
    assert set(MESSAGES) - set(DERIVED) == {"decision"}


@pytest.mark.parametrize("kind", DERIVED)
def test_a_full_message_takes_the_derived_way_and_is_equal(kind: str) -> None:
    payload, decode = codec.encode(FULL[kind]), direct.decoder(MESSAGES[kind])
    assert decode is not None
    message = decode(payload)
    assert message == FULL[kind]
    assert codec.encode(message) == payload
    assert message.model_copy(update={"v": 1}) == FULL[kind]


@pytest.mark.parametrize("kind", DERIVED)
def test_what_it_accepts_the_model_accepts_as_an_equal_message(kind: str) -> None:
    model, decode = MESSAGES[kind], direct.decoder(MESSAGES[kind])
    assert decode is not None
    chance = random.Random(kind)
    seeds = [codec.encode(FULL[kind]), codec.encode(model.model_validate(GOOD[kind]))]
    accepted = 0
    for _ in range(_MUTATIONS):
        payload = mutated(chance, seeds, [name.encode() for name in model.model_fields])
        try:
            message = decode(payload)
        except ValueError:
            continue
        accepted += 1
        assert repr(message) == repr(model.__pydantic_validator__.validate_json(payload)), payload
    assert accepted > _MUTATIONS / 100


@pytest.mark.parametrize("value", ["1.0", "true", "null", '"1"', "2", "0", "1e0", "-1", "NaN", "1" * 400])
def test_a_number_of_another_type_or_size_is_refused_by_both(value: str) -> None:
    class _Message(Message):
        TITLE = "a count"
        count: Annotated[int, Ge(0), Gt(0), Field(lt=2)]

    decode = direct.decoder(_Message)
    assert decode is not None
    payload = f'{{"count": {value}}}'.encode()
    with pytest.raises(ValidationError):
        _Message.__pydantic_validator__.validate_json(payload)
    with pytest.raises((msgspec.ValidationError, msgspec.DecodeError)):
        decode(payload)
    assert decode(b'{"count": 1}') == _Message(count=1)


def test_no_decoder_is_derived_for_a_model_with_a_validator_of_a_field() -> None:
    class _Message(Message):
        TITLE = "a name"
        name: str

        @field_validator("name")
        @classmethod
        def _short(cls, value: str) -> str:
            return value[:3]

    assert direct.decoder(_Message) is None
    assert codec.decode(_Message, b'{"name": "abcdef"}').name == "abc"


def pods(names: list[str], second: int) -> PodUsageBlock:
    full = FULL["pods"]
    assert isinstance(full, PodUsageBlock)
    return full.model_copy(
        update={
            "seq": second,
            "pods": names,
            **{column: getattr(full, column)[:1] * len(names) for column in (*POD_COLUMNS, "ages", "kinds")},
            "names": [f"name-{name}" for name in names],
        }
    )


def test_seconds_that_list_the_same_pods_share_what_they_repeat() -> None:
    sent = [pods(["a", "b"], 1), pods(["a", "b"], 2), pods(["a", "c"], 3)]
    first, second, third = [codec.decode(PodUsageBlock, codec.encode(each)) for each in sent]
    assert [first, second, third] == sent
    assert first.names is second.names
    assert first.pods is second.pods
    assert third.pods == ["a", "c"]


_SWAPS = [
    (b',"pods":', b',"x":1,"pods":'),  # not a field
    (b',"pods":', b',"containers":[1],"pods":'),  # a field of the repeated ones, before them
    (b',"cpu_cores":', b',"cpu_cores":[0.5],"pods":["b"],"cpu_cores":'),  # a second list of pods
    (b',"cpu_cores":', b',"containers":[7],"cpu_cores":'),  # the last of two counts
    (b',"cpu_cores":', b',"seq":7,"cpu_cores":'),  # a field of the others, among the repeated ones
    (b',"cpu_cores":', b',,"cpu_cores":'),
    (b',"cpu_cores":', b',"ages":null,"cpu_cores":'),
    (b',"pods":', b'"pods":'),
    (b'"boot":"', b'"boot":",\\"pods\\":'),
    (b'"names":["', b'"names":["\\",\\"cpu_cores\\":'),
    (b'"names":["', b'"names":["\xff'),
    (b'"containers":[', b'"containers":[-'),
]


@pytest.mark.parametrize(("old", "new"), _SWAPS)
def test_repeated_fields_are_read_as_the_model_reads_them_wherever_they_stand(old: bytes, new: bytes) -> None:
    plain = codec.encode(pods(["a"], 1))
    assert plain.count(old) == 1
    payload = plain.replace(old, new)
    decode = direct.decoder(PodUsageBlock)
    assert decode is not None
    for _ in range(2):  # the second time, repeated fields are those of the first
        decode(plain)
        try:
            expected = repr(PodUsageBlock.__pydantic_validator__.validate_json(payload))
        except ValidationError:
            with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
                decode(payload)
            continue
        try:
            assert repr(decode(payload)) == expected
        except msgspec.ValidationError:
            assert repr(codec.decode(PodUsageBlock, payload)) == expected


def test_a_block_whose_fields_come_in_another_order_is_read_without_the_model() -> None:
    sent = pods(["a"], 1)
    fields = json.loads(codec.encode(sent))
    moved = {name: fields.pop(name) for name in ("pods", "cpu_cores", "namespaces")}
    decode = direct.decoder(PodUsageBlock)
    assert decode is not None
    assert decode(json.dumps({"v": 1, **moved, **fields}, separators=(",", ":")).encode()) == sent


def test_repeated_fields_that_nobody_repeats_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct, "_RECENT_BYTES", 50_000)
    direct.decoder.cache_clear()
    try:
        kept = codec.decode(PodUsageBlock, codec.encode(pods(["stays"], 1))).pods
        decode = direct.decoder(PodUsageBlock)
        for number in range(2000):
            assert codec.decode(PodUsageBlock, codec.encode(pods([f"p{number}"], 1))).pods == [f"p{number}"]
            assert codec.decode(PodUsageBlock, codec.encode(pods(["stays"], number))).pods is kept
        assert len(decode._recent) + len(decode._earlier) < 400  # type: ignore[union-attr]
    finally:
        direct.decoder.cache_clear()
