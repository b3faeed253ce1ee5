"""One GET to a daemon over a Unix socket, with a streamed body.

An HTTP library would cost the agent 10 MB and 300 ms.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from producers.containers.wire.response import Decoder

_READ = 1 << 16
_LONGEST_REFUSAL = 1 << 16


class Response:
    """A response, from its head on."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self._decoder, self._early = reader, Decoder(), b""

    async def head(self, target: str) -> None:
        """Wait for the head.

        Raises:
            ValueError: The server refuses; the message has its reason.
        """
        while not self._decoder.status:
            self._early += await self._more()
        if self._decoder.status != 200:
            body = b""
            while len(body) < _LONGEST_REFUSAL and (piece := await self.read()):
                body += piece
            reason = body.decode(errors="replace").strip()[:200]
            raise ValueError(f"GET {target.partition('?')[0]} is answered with {self._decoder.status}: {reason}")

    async def read(self) -> bytes:
        """Return the next bytes of the body, empty at its end; cancellation loses no bytes.

        Raises:
            ConnectionError: The connection ended before the body did.
        """
        body, self._early = self._early, b""
        while not body and not self._decoder.ended:
            body = await self._more()
        return body

    async def _more(self) -> bytes:
        data = await self._reader.read(_READ)
        if data:
            return self._decoder.feed(data)
        self._decoder.close()
        return b""


@asynccontextmanager
async def get(socket: Path, target: str, *, timeout_seconds: float) -> AsyncIterator[Response]:
    """Request a resource, and close the connection at the end.

    Args:
        socket: Unix socket of the server.
        target: Path and query.
        timeout_seconds: Timeout of connecting, and of the head.

    Raises:
        OSError: No server listens, the connection is refused, or the answer is late.
        ValueError: The peer is not an HTTP server, or refuses the request.
    """
    reader, writer = await connect(socket, timeout_seconds=timeout_seconds)
    try:
        response = Response(reader)
        try:
            async with asyncio.timeout(timeout_seconds):
                writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                await writer.drain()
                await response.head(target)
        except TimeoutError:
            raise TimeoutError(f"{socket} gives no answer within {timeout_seconds:g} s") from None
        yield response
    finally:
        writer.transport.abort()


async def connect(socket: Path, *, timeout_seconds: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a Unix socket.

    Raises:
        OSError: No server listens, the connection is refused, or it is late; the message has the socket's path.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            return await asyncio.open_unix_connection(socket)
    except TimeoutError:
        raise TimeoutError(f"{socket} takes no connection within {timeout_seconds:g} s") from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(socket)) from error


async def fetch(socket: Path, target: str, *, timeout_seconds: float, longest: int) -> bytes:
    """Return the whole body of a resource.

    Raises:
        OSError: As `get`, or the body is late.
        ValueError: As `get`, or the body has more bytes than `longest`.
    """
    async with get(socket, target, timeout_seconds=timeout_seconds) as response:
        try:
            async with asyncio.timeout(timeout_seconds):
                body = await _whole(response, target, longest)
        except TimeoutError:
            raise TimeoutError(f"{socket} gives no whole answer within {timeout_seconds:g} s") from None
    return body


async def _whole(response: Response, target: str, longest: int) -> bytes:
    """Read a body to its end.

    Raises:
        ValueError: It has more bytes than `longest`.
    """
    body = bytearray()
    while piece := await response.read():
        body += piece
        if len(body) > longest:
            raise ValueError(f"GET {target.partition('?')[0]} is answered with more than {longest} bytes")
    return bytes(body)
