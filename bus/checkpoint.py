"""State of a processor, kept where any replica finds it.

Two objects take turns, so that a write that is cut short leaves the one before it whole. What does not read back
as it was written, or was made by another version, is set aside with a message; replay rebuilds it.
"""

import asyncio
import json
import logging
from dataclasses import asdict, dataclass

import nats.errors
from nats.aio.client import Client
from nats.js.errors import NotFoundError
from nats.js.object_store import ObjectStore

log = logging.getLogger(__name__)

VERSION = 1
_SEPARATOR = b"\n"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """State as bytes, and what it is the state of.

    Attributes:
        stream: Identity of the input stream.
        sequence: Last input sequence folded into the state.
        body: The state.
    """

    stream: str
    sequence: int
    body: bytes


@dataclass(frozen=True, slots=True)
class _Header:
    version: int
    stream: str
    sequence: int
    length: int


class Store:
    """Checkpoints of one processor, by name."""

    def __init__(self, client: Client, bucket: str, *, timeout_seconds: float) -> None:
        self._js = client.jetstream(timeout=timeout_seconds)
        self._bucket = bucket
        self._objects: ObjectStore | None = None
        self._turn: dict[str, int] = {}

    async def save(self, name: str, checkpoint: Checkpoint) -> None:
        """Write a checkpoint over the older of the two under this name.

        Raises:
            nats.errors.Error, TimeoutError: The server did not take it; the one before is untouched.
        """
        header = _Header(VERSION, checkpoint.stream, checkpoint.sequence, len(checkpoint.body))
        turn = self._turn.get(name, 0)
        objects = await self._open()
        await objects.put(f"{name}.{turn}", json.dumps(asdict(header)).encode() + _SEPARATOR + checkpoint.body)
        self._turn[name] = 1 - turn

    async def load(self, name: str, stream: str) -> Checkpoint | None:
        """Return the newest sound checkpoint that belongs to `stream`, or None."""
        found: Checkpoint | None = None
        for turn in (0, 1):
            checkpoint = await self._read(f"{name}.{turn}")
            if checkpoint is None:
                continue
            if checkpoint.stream != stream:
                log.info("checkpoint.of_another_stream", extra={"checkpoint": f"{name}.{turn}"})
            elif found is None or checkpoint.sequence > found.sequence:
                found, self._turn[name] = checkpoint, 1 - turn
        return found

    async def _open(self) -> ObjectStore:
        if self._objects is None:
            self._objects = await self._js.object_store(self._bucket)
        return self._objects

    async def _read(self, name: str) -> Checkpoint | None:
        try:
            objects = await self._open()
            async with asyncio.timeout(10):
                data = (await objects.get(name)).data or b""
            return _parse(data)
        except NotFoundError:
            return None
        except (nats.errors.Error, TimeoutError, ValueError, TypeError, KeyError) as error:
            log.warning("checkpoint.set_aside", extra={"checkpoint": name, "reason": str(error)})
            return None


def _parse(data: bytes) -> Checkpoint:
    head, _, body = data.partition(_SEPARATOR)
    header = _Header(**json.loads(head))
    if header.version != VERSION:
        raise ValueError(f"made by version {header.version}; this is version {VERSION}")
    if header.length != len(body):
        raise ValueError(f"has {len(body)} bytes of {header.length}")
    return Checkpoint(header.stream, header.sequence, body)
