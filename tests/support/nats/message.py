"""Messages as they are stored, and the header block of the protocol."""

from collections.abc import Mapping
from typing import NamedTuple

from tests.support.nats.refusal import Refused

_LINE = b"NATS/1.0"
_END = b"\r\n\r\n"
_UNITS = {"s": 1, "m": 60, "h": 3600}


class Stored(NamedTuple):
    """One message of a stream.

    Attributes:
        subject: Subject that it is stored under.
        sequence: Its place in the stream.
        at_ns: When it was stored, in nanoseconds since the epoch.
        headers: Header block as it came; empty: none.
        data: Payload.
        expires_ns: When its own time to live ends; 0: never.
    """

    subject: str
    sequence: int
    at_ns: int
    headers: bytes
    data: bytes
    expires_ns: int = 0

    @property
    def size(self) -> int:
        """Bytes that the real server's file storage takes for it."""
        headers = len(self.headers) + 4 if self.headers else 0
        return 30 + len(self.subject.encode(errors="surrogateescape")) + headers + len(self.data)


def fields(block: bytes) -> dict[str, str]:
    """Return the fields of a header block."""
    headers_by_name: dict[str, str] = {}
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon:
            headers_by_name[name.decode(errors="replace").strip()] = value.decode(errors="replace").strip()
    return headers_by_name


def block(values: Mapping[str, object], status: str = "") -> bytes:
    """Return a header block, with an inline status like `404 No Messages` where there is one."""
    first = _LINE + (b" " + status.encode() if status else b"")
    return b"\r\n".join([first, *(f"{name}: {value}".encode() for name, value in values.items())]) + _END


def extend(old: bytes, values: Mapping[str, object]) -> bytes:
    """Return a header block with further fields; `old` may be empty."""
    if not old:
        return block(values)
    return old[:-2] + b"".join(f"{name}: {value}\r\n".encode() for name, value in values.items()) + b"\r\n"


def lifetime_seconds(text: str) -> int:
    """Return the time to live that `Nats-TTL` states; 0: for ever.

    >>> lifetime_seconds("7"), lifetime_seconds("2m"), lifetime_seconds("never")
    (7, 120, 0)

    Raises:
        Refused: The text is none.
    """
    if text.lower() == "never":
        return 0
    number, unit = (text[:-1], _UNITS[text[-1]]) if text[-1:] in _UNITS else (text, 1)
    if not number.isdigit():
        raise Refused(400, 10165, "invalid per-message TTL")
    return int(number) * unit
