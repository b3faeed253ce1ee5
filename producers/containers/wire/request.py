"""One GET to a daemon behind a Unix socket, its body as it comes.

The agent pays neither the 10 MB nor the 300 ms that an HTTP library would cost it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from producers.containers.wire.response import Decoder

_READ = 1 << 16
_LONGEST_REFUSAL = 1 << 16


class Response:
    """A response whose head has come."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self._decoder, self._early = reader, Decoder(), b""

    async def head(self, target: str) -> None:
        """Wait for the head.

        Raises:
            ValueError: The server refuses; its own words are told.
        """
        while not self._decoder.status:
            self._early += await self._more()
        if self._decoder.status != 200:
            said = b""
            while len(said) < _LONGEST_REFUSAL and (piece := await self.read()):
                said += piece
            words = said.decode(errors="replace").strip()[:200]
            raise ValueError(f"GET {target.partition('?')[0]} is answered with {self._decoder.status}: {words}")

    async def read(self) -> bytes:
        """Return the next bytes of the body, empty at its end; waiting may be cancelled without a loss.

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
    """Ask for a resource, and close the connection at the end.

    Args:
        socket: Unix socket of the server.
        target: Path and query.
        timeout_seconds: How long connecting and the head may take together.

    Raises:
        OSError: Nobody listens there, we may not connect, or no answer came in time.
        ValueError: What answers is no HTTP server, or refuses.
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
        OSError: Nobody listens there, we may not connect, or it takes too long; says where.
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
        OSError: As `get`, or the answer takes longer than allowed.
        ValueError: As `get`, or the body has more bytes than `longest`.
    """
    body = bytearray()
    async with get(socket, target, timeout_seconds=timeout_seconds) as response:
        try:
            async with asyncio.timeout(timeout_seconds):
                while piece := await response.read():
                    body += piece
                    if len(body) > longest:
                        raise ValueError(f"GET {target.partition('?')[0]} is answered with more than {longest} bytes")
        except TimeoutError:
            raise TimeoutError(f"{socket} gives no whole answer within {timeout_seconds:g} s") from None
    return bytes(body)
