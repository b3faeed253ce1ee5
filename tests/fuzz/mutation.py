"""Makes new inputs out of known ones: bytes are changed blindly, JSON by its values, and numbers by odd numbers."""

import copy
import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_NUMBERS = (
    b"0", b"-0", b"-1", b"1", b"255", b"65536", b"4294967296", b"9007199254740993", b"9223372036854775807",
    b"9223372036854775808", b"18446744073709551616", b"1e308", b"1e999", b"-1e999", b"5e-324", b"0.1", b"NaN",
    b"Infinity", b"1" * 400, b"9" * 5000, b"0x1f", b"1_000", b"\xd9\xa3",
)  # fmt: skip
_TOKENS = (
    b"", b"\0", b"\n", b"\r\n", b"\t", b" ", b",", b":", b"\"", b"'", b"{", b"}", b"[", b"]", b"null", b"true", b"\xff",
    b"\xfe\xff", b"\xef\xbb\xbf", b"\xc2\x85", b"\xe2\x80\xae", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b"%s", b"../",
    b"[" * 3000, b'{"a":' * 1500, b"&a [*a]", b"*a", b"<<: *a", b"!!binary x", b"2024-99-99", b"a" * 5000,
    "\N{ROCKET}".encode() * 300,
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**53, 2**53 + 1, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, 5e-324, "", "a",
    "\0", "\ud800", "\u202e", "-", ".", "_", "*", ">", " ", "1", "1e999", "NaN", "a" * 300, "\N{ROCKET}" * 500,
    "100m", "-1Gi", "1e400Ei", "2024-99-99T99:99:99Z", [], {}, [None], [[]], {"": ""}, {"a": None}, [0] * 100,
)  # fmt: skip

Mutation = Callable[[random.Random, bytearray], None]


def mutated(chance: random.Random, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """Return a new input made out of one of `seeds`; `tokens` are words of its language."""
    data = chance.choice(seeds)
    if chance.random() < 0.5 and (changed := _json(chance, data)) is not None:
        data = changed
        if chance.random() < 0.7:
            return data
    content = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        _bytes(chance, content, seeds, tokens)
    return bytes(content[: 1 << 20])


def _bytes(chance: random.Random, content: bytearray, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> None:
    start = chance.randrange(len(content) + 1)
    end = min(len(content), start + chance.choice((0, 1, 2, 8, 64, 1024)))
    kind = chance.randrange(8)
    if kind == 0 and start < len(content):
        content[start] ^= 1 << chance.randrange(8)
    elif kind == 1:
        content[start:end] = chance.randbytes(chance.choice((1, 2, 8)))
    elif kind == 2:
        del content[start:end]
    elif kind == 3:
        content[start:start] = content[start:end] * chance.choice((1, 2, 50))
    elif kind == 4:
        content[start:end] = chance.choice([*_TOKENS, *tokens])
    elif kind == 5:
        other = chance.choice(seeds)
        content[start:end] = other[chance.randrange(len(other) + 1) :]
    elif kind == 6 and (numbers := list(_NUMBER.finditer(content))):
        number = chance.choice(numbers)
        content[number.start() : number.end()] = chance.choice(_NUMBERS)
    else:
        del content[start:]


def _json(chance: random.Random, data: bytes) -> bytes | None:
    """Change a value, a key or an item of a JSON document; None: it is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    try:
        for _ in range(chance.choice((1, 1, 2, 5))):
            document = _changed(chance, document)
        text = json.dumps(document, ensure_ascii=chance.random() < 0.5)
    except RecursionError:  # nested more than once
        return None
    return text.encode(errors="surrogatepass")


def _changed(chance: random.Random, value: Any) -> Any:
    if not isinstance(value, dict | list) or not value or chance.random() < 0.15:
        nested = [value]
        for _ in range(chance.choice((0, 0, 0, 1, 500))):
            nested = [nested]
        return nested if chance.random() < 0.05 else copy.deepcopy(chance.choice(_VALUES))
    key = chance.choice(list(value) if isinstance(value, dict) else range(len(value)))
    kind = chance.random()
    if kind < 0.1:
        del value[key]
    elif kind < 0.2:
        extra = copy.deepcopy(chance.choice(_VALUES))
        if isinstance(value, dict):
            value[str(extra)] = value[key]
        else:
            value.append(extra)
    else:
        value[key] = _changed(chance, value[key])
    return value
