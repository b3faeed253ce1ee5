"""Protocol Buffers' wire format, as far as containerd's events and containers need it.

Field numbers identify the fields, without generated code: containerd's generated code breaks with every second release
of its runtime library. See https://protobuf.dev/programming-guides/encoding/.
"""

from collections.abc import Iterator

Value = int | bytes

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield the number and value of each field: an integer, or bytes for text, messages and maps' entries.

    Raises:
        ValueError: This is not a message.
    """
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        kind = key & 7
        if kind == _VARINT:
            number, position = _varint(message, position)
            yield key >> 3, number
            continue
        if kind == _BYTES:
            size, position = _varint(message, position)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind} of field {key >> 3}")
        piece = message[position : position + size]
        position += size
        if len(piece) != size:
            raise ValueError(f"field {key >> 3} is cut off")
        yield key >> 3, piece if kind == _BYTES else int.from_bytes(piece, "little")


def content(message: bytes, number: int) -> bytes:
    """Return the bytes of a field, the last ones if it is repeated; empty if it is missing."""
    last = b""
    for field, value in fields(message):
        if field == number and isinstance(value, bytes):
            last = value
    return last


def text(message: bytes, number: int) -> str:
    """Return a field's text; empty if it is missing."""
    return content(message, number).decode(errors="replace")


def number(message: bytes, field: int) -> int:
    """Return a field's integer; 0 if it is missing."""
    return next((value for key, value in fields(message) if key == field and isinstance(value, int)), 0)


def repeated(message: bytes, number: int) -> list[bytes]:
    """Return all values of a field of bytes."""
    return [value for field, value in fields(message) if field == number and isinstance(value, bytes)]


def texts(message: bytes, number: int) -> dict[str, str]:
    """Return a map of text to text."""
    return {text(entry, 1): text(entry, 2) for entry in repeated(message, number)}


def field(number: int, value: int | str | bytes) -> bytes:
    """Return one encoded field.

    >>> field(1, "abc").hex(), field(2, 300).hex()
    ('0a03616263', '10ac02')
    """
    if isinstance(value, int):
        return _encoded(number << 3 | _VARINT) + _encoded(value)
    piece = value.encode() if isinstance(value, str) else value
    return _encoded(number << 3 | _BYTES) + _encoded(len(piece)) + piece


def _encoded(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _varint(message: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    for byte in message[position : position + _LONGEST_VARINT]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position + shift // 7
    raise ValueError(f"a number is cut off at byte {position}")
