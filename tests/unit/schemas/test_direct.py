"""A derived decoder accepts nothing that its model refuses, and makes the same message."""

import random
from typing import Annotated

import msgspec
import pytest
from annotated_types import Ge, Gt
from pydantic import Field, ValidationError, field_validator

from schemas import codec, direct
from schemas.codec import MESSAGES
from schemas.messages.base import Message
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
