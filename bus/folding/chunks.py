"""The chunks of objects in an object store, each of at most half a megabyte.

The name of an object begins the name of its chunks, so that the next writer can list and purge those of a dead writer.
"""

import asyncio
import base64
import contextlib
import hashlib
from collections.abc import Mapping
from typing import Any

from nats.aio.client import Client
from nats.js import api
from nats.js.errors import APIError, NotFoundError

_CHUNK_BYTES = 512 << 10
_DIGEST = "SHA-256="


class Chunks:
    """Chunks of a bucket's objects."""

    def __init__(self, client: Client, bucket: str, *, timeout_seconds: float) -> None:
        """Name the bucket.

        Args:
            client: Connection.
            bucket: Name of an existing object store.
            timeout_seconds: Time limit for each request to the server, each of one chunk.
        """
        self._client, self._js = client, client.jetstream(timeout=timeout_seconds)
        self._stream, self._timeout = f"OBJ_{bucket}", timeout_seconds
        self._prefix = f"$O.{bucket}.C."

    async def write(self, identity: str, data: bytes) -> tuple[int, dict[str, Any]]:
        """Store an object's bytes, and return the first chunk's sequence and what the description says of them.

        If the server refuses a chunk, it removes those before it: what is left would fill a full bucket for good.
        Chunks are sent one after the other. The client copies again and again what a socket does not take at once, so
        sending several concurrently costs twice the work and saves no time.

        Raises:
            nats.errors.Error: A chunk was not stored; also TimeoutError.
        """
        size = min(_CHUNK_BYTES, self._client.max_payload)
        first, digest = await asyncio.gather(self._send(identity, data, size), asyncio.to_thread(_digest, data))
        chunks = -(-len(data) // size)
        return first, {
            "options": {"max_chunk_size": size},
            "nuid": identity,
            "size": len(data),
            "chunks": chunks,
            "digest": digest,
        }

    async def _send(self, identity: str, data: bytes, size: int) -> int:
        subject = self._prefix + identity
        starts = range(0, len(data), size)
        try:
            sequences = [(await self._js.publish(subject, data[start : start + size])).seq for start in starts]
        except APIError:
            await self.purge(identity)
            raise
        return sequences[0]

    async def read(self, info: Mapping[str, Any]) -> bytes:
        """Return the bytes of the object that has this description.

        Chunks are requested one by one. A consumer would first have to be created, which takes a cluster longer than
        everything else here, especially while replicas take over many tasks at once.

        Raises:
            ValueError: They are not the bytes that were written.
            KeyError: The description lacks a field; also TypeError.
            nats.errors.Error: The server did not answer; also TimeoutError.
        """
        subject = self._prefix + str(info.get("nuid", ""))
        wanted, pieces, size, sequence = int(info["size"]), list[bytes](), 0, 0
        while size < wanted:
            chunk = await self._next(subject, sequence + 1)
            if chunk is None:
                raise ValueError(f"has {size} bytes of {wanted}")
            piece, sequence = chunk.data or b"", chunk.seq or sequence + 1
            pieces.append(piece)
            size += len(piece)
        data = b"".join(pieces)
        if info["digest"] != await asyncio.to_thread(_digest, data):
            raise ValueError("does not have the digest it was written with")
        return data

    async def _next(self, subject: str, sequence: int) -> api.RawStreamMsg | None:
        """Return the first chunk from a sequence on. Any server may answer; if it has none, the leader is asked."""
        for direct in (True, False):
            with contextlib.suppress(NotFoundError):
                return await self._js.get_msg(self._stream, sequence, subject, direct=direct, next=True)
        return None

    async def identities(self, pattern: str) -> set[str]:
        """Return the identities of all chunks that match a pattern, from the bucket's leader."""
        subjects = (await self._js.stream_info(self._stream, self._prefix + pattern)).state.subjects or {}
        return {subject.removeprefix(self._prefix) for subject in subjects}

    async def purge(self, identity: str, *, before: int | None = None) -> None:
        """Remove chunks.

        Args:
            identity: Of which object; it may end with a wildcard.
            before: Only those of lower sequences; None: all.
        """
        await self._js.purge_stream(self._stream, subject=self._prefix + identity, seq=before)


def _digest(data: bytes) -> str:
    return _DIGEST + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
