"""Every kind of message, and the subjects that they come on."""

import json
from collections.abc import Callable
from functools import partial

from processors import decode
from schemas import codec, subject
from schemas.codec import MESSAGES
from schemas.messages.base import Message
from tests.fuzz.session import Target
from tests.fuzz.targets import choice
from tests.unit.schemas.good import GOOD
from tests.unit.schemas.test_documents import FULL


def target() -> Target:
    """Return the target."""
    readers: dict[str, Callable[[bytes], object]] = {
        kind: partial(_round, message) for kind, message in MESSAGES.items()
    }
    readers["subject"] = _subject
    readers["batch"] = _batch
    good = {kind: [json.dumps(fields).encode()] for kind, fields in GOOD.items()}
    for kind, message in FULL.items():
        good.setdefault(kind, []).append(codec.encode(message))
    good["subject"] = [b"n1", b"my=5Fhost_example", b"a_b"]
    good["batch"] = [json.dumps(GOOD[kind]).encode() for kind in ("samples", "edge", "model")]
    return Target("messages", choice.seeds(readers, good), choice.opened(readers), (codec.Refused, ValueError), _TOKENS)


_TOKENS = tuple(f'"{name}":'.encode() for name in ("v", "node", "at_us", "seq", "values", "metrics", "pods"))


def _round(message: type[Message], payload: bytes) -> None:
    """What is accepted can be sent again, and is then the same."""
    decoded = codec.decode(message, payload)
    assert codec.decode(message, codec.encode(decoded)) == decoded


def _subject(data: bytes) -> None:
    """A token of any text is one token that says the text again, and names of others are refused with a reason."""
    text = data.decode(errors="replace")[:253]
    token = subject.token(text) if text else "-"
    assert not set(token) & set(" .*>\t\r\n\0")
    if text:
        assert subject.name(token) == text
    subject.name(text)


def _batch(payload: bytes) -> None:
    """What a partition decodes together it accepts or refuses message by message."""
    stored = [
        (f"spazio.part.0.{kind}.{node}", payload) for kind in ("samples", "edge", "pods") for node in ("n1", "a_b")
    ]
    stored.append(("spazio.model", payload))
    items, refused = decode.messages(stored, "spazio.model")
    assert len(items) + len(refused) == len(stored)
    assert all(reason and reason.isprintable() for _, reason in refused)
