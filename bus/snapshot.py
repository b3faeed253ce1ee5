"""Snapshots of streams and buckets by the server's own API: their bytes, and a stream made from such bytes.

The server sends a snapshot in chunks and wants each of them acknowledged; its last message is empty and has a status.
The bytes are the server's own archive, compressed, with every message under its sequence and with its time; nothing
here looks into them. Consumers are left out: each service creates its own, at its own position.

A server from 2.15 on gives the restored stream a new creation time, by which cursors, checkpoints and files of the
history know it. So the original time is kept in the stream's metadata, where `stream.describe` finds it.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import Header
from nats.js.errors import NotFoundError

from bus import api, stream
from bus.link import cancellable

_COMPLETE = "204"
_CHUNK_BYTES = 256 << 10
_WINDOW_BYTES = 8 << 20  # sent without acknowledgement; the client must not drop any of it
_BATCH_MESSAGES = 1000  # the server takes no longer batch
_SILENCE_SECONDS = 30.0
_RESTORE_SECONDS = 120.0  # after the last chunk the server writes and checks the whole stream


class Incomplete(nats.errors.Error):
    """The server ended a snapshot before its end, or a part of it is missing."""


class Snapshot(NamedTuple):
    """What a snapshot is of.

    Attributes:
        name: Name of the stream.
        created: Its identity, as ISO 8601; it stays the same over a restore.
        config: Its configuration, as the server states it.
        state: Its state when the snapshot began, as the server states it.
    """

    name: str
    created: str
    config: dict[str, Any]
    state: dict[str, Any]

    @property
    def last(self) -> int:
        """Highest sequence of the snapshot."""
        return int(self.state["last_seq"])


async def names(client: Client, timeout_seconds: float) -> list[str]:
    """Return the names of all streams of the account, of buckets too.

    Raises:
        BusError: The server refuses to tell; also TimeoutError.
    """
    streams: list[str] = []
    while True:
        answer = await api.request(client, "STREAM.NAMES", {"offset": len(streams)}, timeout_seconds)
        page = answer.get("streams") or []
        streams += page
        if not page or len(streams) >= answer.get("total", 0):
            return streams


async def take(client: Client, name: str, write: Callable[[bytes], object], *, timeout_seconds: float) -> Snapshot:
    """Pass the bytes of a snapshot to `write`, and return what it is of.

    Messages that arrive after its begin are not in it. Messages that are deleted or replaced meanwhile may be missing.

    Args:
        client: Connection.
        name: Name of a stream, or of the stream of a bucket.
        write: Takes the bytes piece by piece.
        timeout_seconds: Time limit for a request.

    Raises:
        Incomplete: Not all bytes have arrived.
        BusError: The server refuses; also TimeoutError.
    """
    created = (await stream.describe(client, name)).created.isoformat()
    inbox = client.new_inbox()
    chunks = await client.subscribe(inbox, pending_msgs_limit=0, pending_bytes_limit=8 * _WINDOW_BYTES)
    try:
        wanted = {"deliver_subject": inbox, "no_consumers": True}
        wanted |= {"chunk_size": _CHUNK_BYTES, "window_size": _WINDOW_BYTES}
        answer = await api.request(client, f"STREAM.SNAPSHOT.{name}", wanted, max(timeout_seconds, _SILENCE_SECONDS))
        received = 0
        while True:
            with cancellable():
                message = await chunks.next_msg(timeout=_SILENCE_SECONDS)
            if not message.data:
                break
            received += 1
            _check_order(name, message, received)
            write(message.data)
            if message.reply:
                await client.publish(message.reply, b"")
    finally:
        await chunks.unsubscribe()
    headers = message.headers or {}
    if headers.get("Status", _COMPLETE) != _COMPLETE:
        reason = headers.get("Description") or headers["Status"]
        raise Incomplete(f"the server ended the snapshot of {name} early: {reason}")
    return Snapshot(name, created, answer["config"], answer["state"])


def _check_order(name: str, message: Msg, expected: int) -> None:
    """Check a chunk's number and size, which end its reply subject; the last chunk may have none.

    Raises:
        Incomplete: A chunk is missing or cut.
    """
    if message.reply:
        size, number = message.reply.split(".")[-2:]
        if (int(size), int(number)) != (len(message.data), expected):
            raise Incomplete(f"chunk {expected} of the snapshot of {name} did not arrive whole")


async def put(client: Client, snapshot: Snapshot, chunks: Iterable[bytes], *, timeout_seconds: float) -> None:
    """Create a stream from a snapshot.

    Args:
        client: Connection.
        snapshot: What it is of; its configuration may differ from the one it was taken with.
        chunks: Its bytes.
        timeout_seconds: Time limit for a request.

    Raises:
        Refused: The stream exists, the server has no room for it, or the bytes are damaged.
        Incomplete: The stream ends at another sequence than the snapshot.
        BusError: The server does not answer; also TimeoutError.
    """
    metadata = (snapshot.config.get("metadata") or {}) | {stream.CREATED: snapshot.created}
    begin = {"config": snapshot.config | {"metadata": metadata}, "state": snapshot.state}
    answer = await api.request(client, f"STREAM.RESTORE.{snapshot.name}", begin, max(timeout_seconds, _SILENCE_SECONDS))
    target = answer["deliver_subject"]
    for chunk in chunks:
        _raise_refusal(await client.request(target, chunk, timeout=_SILENCE_SECONDS))
    _raise_refusal(await client.request(target, b"", timeout=_RESTORE_SECONDS))
    restored = await stream.describe(client, snapshot.name)
    if restored.last < snapshot.last:
        raise Incomplete(f"{snapshot.name} was restored up to {restored.last}, not up to {snapshot.last}")


def _raise_refusal(message: Msg) -> None:
    error = json.loads(message.data).get("error") if message.data else None
    if error:
        raise api.Refused(error.get("description", "no reason given"), error.get("err_code", 0))


async def cut_batch(client: Client, name: str, *, timeout_seconds: float) -> int:
    """Delete an atomic batch at the end of a stream if the snapshot was taken in its middle.

    Its first rows would be there without the cursor, so they would be stored a second time.

    Returns:
        Highest sequence that is left as it was.

    Raises:
        BusError: The server refuses; also TimeoutError.
    """
    js, state = client.jetstream(timeout=timeout_seconds), await stream.describe(client, name)
    last, broken = state.last, ""
    for sequence in range(state.last, max(state.first - 1, state.last - _BATCH_MESSAGES), -1):
        try:
            headers = (await js.get_msg(name, sequence)).headers or {}
        except NotFoundError:
            continue
        batch = headers.get(Header.BATCH_ID.value, "")
        if not batch or Header.BATCH_COMMIT.value in headers or batch != (broken or batch):
            break
        await js.delete_msg(name, sequence)
        broken, last = batch, sequence - 1
    return last


async def set_ages(client: Client, name: str, max_age_seconds: float, *, timeout_seconds: float) -> None:
    """Set the age after which a stream deletes its messages; 0: never.

    Raises:
        BusError: The server refuses; also TimeoutError.
    """
    js = client.jetstream(timeout=timeout_seconds)
    config = (await js.stream_info(name)).config
    await js.update_stream(config.evolve(max_age=max_age_seconds))


async def delete(client: Client, name: str, *, timeout_seconds: float) -> None:
    """Delete a stream with everything in it.

    Raises:
        BusError: The server refuses; also TimeoutError.
    """
    await client.jetstream(timeout=timeout_seconds).delete_stream(name)
