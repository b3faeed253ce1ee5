"""Call gRPC methods of a daemon over a Unix socket, with failures as those of any socket."""

import contextlib
import importlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

_LONGEST_MESSAGE = 64 << 20
_OPTIONS = (("grpc.max_receive_message_length", _LONGEST_MESSAGE), ("grpc.enable_http_proxy", 0))
_SHORTAGE = "grpcio is not installed: pip install '.[containerd]' in a checkout"


class Daemon:
    """One connection.

    Args:
        socket: The daemon's socket.
        package: Common prefix of the names of its services.
        header: Key of the metadata that names a namespace.
        timeout_seconds: Default timeout of one answer.
    """

    def __init__(self, socket: Path, *, package: str, header: str, timeout_seconds: float) -> None:
        self._grpc = load()
        self._socket, self._package, self._header, self._timeout_seconds = socket, package, header, timeout_seconds
        self._channel = self._grpc.aio.insecure_channel(f"unix://{socket.absolute()}", options=_OPTIONS)

    async def ask(self, method: str, message: bytes, namespace: str = "", seconds: float | None = None) -> bytes:
        """Call a method with one answer.

        Raises:
            OSError: The daemon refuses, has ended, or exceeds the timeout.
            ValueError: It does not know the method.
        """
        with self._failures(method):
            answer: bytes = await self._channel.unary_unary(self._package + method)(
                message, timeout=seconds or self._timeout_seconds, metadata=self._metadata(namespace)
            )
        return answer

    async def stream(
        self, method: str, message: bytes, namespace: str = "", *, seconds: float | None = None
    ) -> AsyncIterator[bytes]:
        """Call a method with a stream of answers, which may be endless.

        Raises:
            OSError: As `ask`.
            ValueError: As `ask`.
        """
        call = self._channel.unary_stream(self._package + method)
        with self._failures(method):
            async for answer in call(message, timeout=seconds, metadata=self._metadata(namespace)):
                yield answer

    async def close(self) -> None:
        """Close the connection; cancels calls in progress."""
        await self._channel.close()

    def _metadata(self, namespace: str) -> tuple[tuple[str, str], ...]:
        return ((self._header, namespace),) if namespace else ()

    @contextmanager
    def _failures(self, method: str) -> Iterator[None]:
        try:
            yield
        except self._grpc.aio.AioRpcError as error:
            code = error.code()
            reason = f"{self._socket}: {method}: {code.name}: {error.details()}"
            if code is self._grpc.StatusCode.UNIMPLEMENTED:
                raise ValueError(reason) from None
            if code is self._grpc.StatusCode.DEADLINE_EXCEEDED:
                raise TimeoutError(reason) from None
            raise ConnectionError(reason) from None


def load() -> Any:
    """Import gRPC only when it is needed: it costs 10 MB and 100 ms.

    Raises:
        FileNotFoundError: It is not installed.
    """
    try:
        importlib.import_module("grpc.aio")
        return importlib.import_module("grpc")
    except ImportError as error:
        raise FileNotFoundError(_SHORTAGE) from error


@asynccontextmanager
async def dial(socket: Path, *, package: str, header: str, timeout_seconds: float) -> AsyncIterator[Daemon]:
    """Connect, and close at the end; sends nothing before the first call."""
    daemon = Daemon(socket, package=package, header=header, timeout_seconds=timeout_seconds)
    try:
        yield daemon
    finally:
        with contextlib.suppress(Exception):
            await daemon.close()
