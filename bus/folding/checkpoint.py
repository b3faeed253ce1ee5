"""Checkpoints of processor state, in a bucket that all replicas read.

Each name has two objects, written in turn, so that an interrupted write leaves the other one intact. A checkpoint that
is damaged or of another version is ignored with a log message; replay rebuilds the state. The bucket is an ordinary
object store, which other programs can list and read. This module does not use the client's own calls for it. Those read
through push consumers, and the client's reader fails on the server's newer acknowledgement subjects; they do not detect
a second writer; and they leave chunks behind when they are interrupted.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.js import api
from nats.js.errors import APIError

from bus import stream
from bus.api import WRONG_LAST_SEQUENCE
from bus.folding.chunks import Chunks
from bus.publishing import batch
from schemas import subject

log = logging.getLogger(__name__)

VERSION = 1
_SEPARATOR = b"\n"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """State as bytes, and the input that it covers.

    Attributes:
        stream: Identity of the input stream.
        sequence: Last input sequence folded into the state.
        body: The state.
        stored_us: When the server stored that message, in microseconds; 0: not known.
        published: Input sequence up to which the journal had rows when it was written.
    """

    stream: str
    sequence: int
    body: bytes
    stored_us: int = 0
    published: int = 0


@dataclass(frozen=True, slots=True)
class _Header:
    version: int
    stream: str
    sequence: int
    length: int
    stored_us: int = 0
    published: int = 0


class _Entry(NamedTuple):
    """Description of an object in the bucket; sequence 0: there is none."""

    sequence: int
    info: dict[str, Any]

    @property
    def identity(self) -> str:
        """Name of its chunks; empty: it has none."""
        return str(self.info.get("nuid", ""))


# Tells whether a checkpoint can be used.
Usable = Callable[[Checkpoint], Awaitable[bool]]


class Overtaken(nats.errors.Error):
    """Another writer has written this checkpoint since the last look-up."""


class Store:
    """Checkpoints of one processor, by name."""

    def __init__(self, client: Client, bucket: str, *, timeout_seconds: float) -> None:
        """Name the bucket.

        Args:
            client: Connection.
            bucket: Name of an existing object store.
            timeout_seconds: Time limit for each request to the server.
        """
        self._client, self._js = client, client.jetstream(timeout=timeout_seconds)
        self._timeout = timeout_seconds
        self._bucket, self._stream = bucket, f"OBJ_{bucket}"
        self._chunks = Chunks(client, bucket, timeout_seconds=timeout_seconds)
        self._turn: dict[str, int] = {}
        self._entries: dict[str, _Entry] = {}
        self._swept = set[str]()  # objects of which no interrupted write has left chunks

    async def save(self, name: str, checkpoint: Checkpoint) -> None:
        """Write a checkpoint over the older of the two under this name.

        Args:
            name: One subject token.
            checkpoint: What to write.

        Raises:
            Overtaken: Another writer has written under this name; the next attempt replaces that checkpoint.
            nats.errors.Error, TimeoutError: The server did not store it; the one before is unchanged.
        """
        header = _Header(
            VERSION,
            checkpoint.stream,
            checkpoint.sequence,
            len(checkpoint.body),
            checkpoint.stored_us,
            checkpoint.published,
        )
        turn = self._turn.get(name, 0)
        data = json.dumps(asdict(header)).encode() + _SEPARATOR + checkpoint.body
        for each in (turn, 1 - turn):  # a full bucket has no room for what an interrupted write of the other one left
            await self._sweep(f"{name}.{each}")
        await self._write(f"{name}.{turn}", data)
        self._turn[name] = 1 - turn

    async def load(self, name: str, stream: str, usable: Usable | None = None) -> Checkpoint | None:
        """Return the newest valid checkpoint of `stream`, or None.

        The older one is read only if the newer cannot be used. Each request has a time limit, and all of them together
        have none: over a slow link a large state takes long, and what could be written can be read.

        Args:
            name: One subject token.
            stream: Identity of the input stream.
            usable: Tells of a valid checkpoint, the newest first, whether it can be used; None: every one can.

        Raises:
            nats.errors.Error: The server did not answer, so it is unknown whether there is one. Also TimeoutError.
        """
        entries = await asyncio.gather(self._look_up(f"{name}.0"), self._look_up(f"{name}.1"))
        for turn in sorted((0, 1), key=lambda each: -entries[each].sequence):
            checkpoint = await self._read(f"{name}.{turn}", entries[turn])
            if checkpoint is None:
                continue
            if checkpoint.stream != stream:
                log.info(
                    "checkpoint.ignored", extra={"checkpoint": f"{name}.{turn}", "reason": "it is of another stream"}
                )
            elif usable is None or await usable(checkpoint):
                self._turn[name] = 1 - turn
                return checkpoint
        return None

    async def _look_up(self, name: str) -> _Entry:
        """Return the description of an object from the bucket; an invalid one counts as empty.

        Raises:
            nats.errors.Error: The server did not answer; also TimeoutError.
        """
        stored = await batch.last(self._client, self._stream, subject.description(self._bucket, name))
        try:
            info = json.loads(stored.payload) if stored.sequence else {}
        except ValueError:
            info = {}
        self._swept.discard(name)
        entry = self._entries[name] = _Entry(stored.sequence, info if isinstance(info, dict) else {})
        return entry

    async def _write(self, name: str, data: bytes) -> None:
        previous = self._entries.pop(name, None) or await self._look_up(name)
        self._swept.discard(name)
        identity = f"{name}.{self._client.new_inbox().rpartition('.')[2]}"
        first, content = await self._chunks.write(identity, data)
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        info = {"name": name, "bucket": self._bucket, "mtime": now, **content}
        headers = {
            api.Header.ROLLUP.value: "sub",
            api.Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(previous.sequence),
        }
        try:
            answer = await self._js.publish(
                subject.description(self._bucket, name), json.dumps(info).encode(), headers=headers
            )
        except APIError as error:
            await self._chunks.purge(identity)
            if error.err_code not in WRONG_LAST_SEQUENCE:
                raise
            raise Overtaken(f"checkpoint {name} was written by another writer") from error
        self._entries[name] = _Entry(answer.seq, info)
        await self._chunks.purge(f"{name}.*", before=first)
        if previous.identity and not previous.identity.startswith(f"{name}."):
            await self._chunks.purge(previous.identity)
        self._swept.add(name)

    async def _sweep(self, name: str) -> None:
        """Remove chunks that interrupted writes have left; a full bucket takes no write that would purge them.

        Raises:
            Overtaken: The description is another one at the bucket's leader.
            nats.errors.Error: The server did not answer; also TimeoutError.
        """
        if name in self._swept:
            return
        entry = self._entries.pop(name, None) or await self._look_up(name)
        left = await self._chunks.identities(f"{name}.*") - {entry.identity}
        if left:
            about = subject.description(self._bucket, name)
            if (await stream.newest(self._client, self._stream, about, self._timeout)).sequence != entry.sequence:
                raise Overtaken(f"checkpoint {name} was written by another writer")
        for identity in left:
            await self._chunks.purge(identity)
        self._entries[name] = entry
        self._swept.add(name)

    async def _read(self, name: str, entry: _Entry) -> Checkpoint | None:
        if not entry.sequence or entry.info.get("deleted"):
            return None
        try:
            return _parse(await self._chunks.read(entry.info))
        except (ValueError, TypeError, KeyError) as error:
            log.warning("checkpoint.set_aside", extra={"checkpoint": name, "reason": str(error)})
            return None


def _parse(data: bytes) -> Checkpoint:
    head, _, body = data.partition(_SEPARATOR)
    header = _Header(**json.loads(head))
    if header.version != VERSION:
        raise ValueError(f"made by version {header.version}; this is version {VERSION}")
    if header.length != len(body):
        raise ValueError(f"has {len(body)} bytes of {header.length}")
    return Checkpoint(header.stream, header.sequence, body, header.stored_us, header.published)
