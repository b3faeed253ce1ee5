"""Decode an HTTP/1.1 response from bytes in any portions, and lines of its body, without I/O.

So a reader may cancel and resume at any time, and every way to split a response gives the same result.
"""

import re

_LONGEST_HEAD = 1 << 16
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,12})[ \t]*(?:;.*)?")


class Decoder:
    """One response, decoded from bytes in any portions.

    Attributes:
        status: Status code; 0 until the head is complete.
        ended: Whether the body is complete.
    """

    def __init__(self) -> None:
        self.status, self.ended = 0, False
        self._waiting = b""
        self._chunked = False
        self._left: int | None = None  # of the body or chunk; None: until the connection ends, or a chunk size follows
        self._gap = b""  # line end that follows a chunk

    def feed(self, data: bytes) -> bytes:
        """Decode bytes and return the part of the body that they complete.

        Raises:
            ValueError: This is not HTTP/1.1.
        """
        self._waiting += data
        if not self.status and not self._head():
            return b""
        if not self._chunked:
            return self._plain()
        body = []
        while (piece := self._chunk()) is not None:
            body.append(piece)
        return b"".join(body)

    def close(self) -> None:
        """Note that the connection has ended.

        Raises:
            ConnectionError: It ended in the middle of the response.
        """
        self.ended = self.ended or bool(self.status and not self._chunked and self._left is None)
        if not self.ended:
            raise ConnectionResetError("the connection ended in the middle of a response")

    def _head(self) -> bool:
        head, end, rest = self._waiting.partition(b"\r\n\r\n")
        if not end:
            if len(head) > _LONGEST_HEAD or not b"HTTP/1.".startswith(head[:7]):
                raise ValueError(f"no HTTP response: {bytes(head[:40])!r}")
            return False
        match = _STATUS.match(head)
        if match is None:
            raise ValueError(f"no HTTP response: {bytes(head[:40])!r}")
        fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:] if b":" in line)
        self._chunked = b"chunked" in fields.get(b"transfer-encoding", b"")
        if not self._chunked and b"content-length" in fields:
            self._left = _length(fields[b"content-length"])
        self.status, self._waiting = int(match[1]), rest
        return True

    def _plain(self) -> bytes:
        body = self._waiting if self._left is None else self._waiting[: self._left]
        self._waiting = b""
        if self._left is not None:
            self._left -= len(body)
            self.ended = self._left == 0
        return body

    def _chunk(self) -> bytes | None:
        """Return the available bytes of the current chunk; None when more bytes are needed."""
        if self.ended:
            return None
        if not self._left:
            size = self._size()
            if not size:
                self.ended = size == 0
                return None
            self._left = size
        piece = self._waiting[: self._left]
        self._left -= len(piece)
        self._waiting = self._waiting[len(piece) :]
        if not self._left:
            self._gap = b"\r\n"
        return piece or None

    def _size(self) -> int | None:
        """Return the size of the next chunk, 0 for the last one; None until its line is complete."""
        line, end, rest = self._waiting.removeprefix(self._gap).partition(b"\r\n")
        if not end:
            if len(line) > _LONGEST_HEAD:
                raise ValueError("a chunk's size does not end")
            return None
        match = _CHUNK.fullmatch(line)
        if match is None:
            raise ValueError(f"no size of a chunk: {bytes(line[:40])!r}")
        self._waiting, self._gap = rest, b""
        return int(match[1], 16)


def _length(text: bytes) -> int:
    """Return the length of a body; a negative one would make the result depend on the portions."""
    if _LENGTH.fullmatch(text.strip()) is None:
        raise ValueError(f"no length of a body: {text[:40]!r}")
    return int(text)


class Lines:
    """Splits bytes in any portions into whole lines; a line above the limit is None."""

    def __init__(self, longest: int) -> None:
        self._longest, self._begun, self._skipping = longest, b"", False

    def feed(self, data: bytes) -> list[bytes | None]:
        """Decode bytes and return the lines that they complete, without empty ones."""
        *complete, begun = data.split(b"\n")
        lines: list[bytes | None] = []
        for piece in complete:
            line, self._begun = self._begun + piece, b""
            if self._skipping or len(line) > self._longest:
                lines.append(None)
                self._skipping = False
            elif line.strip():
                lines.append(line)
        self._begun += begun
        if len(self._begun) > self._longest:
            self._begun, self._skipping = b"", True
        return lines
