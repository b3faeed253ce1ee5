"""Streams and buckets on the server: created or updated at every start, and what is in them."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError, ServiceUnavailableError

from bus.api import allowed
from bus.health import Health
from bus.layout import configs
from bus.link import Connection
from schemas.settings import Settings

log = logging.getLogger(__name__)

PART = "streams"
_RETRY_SECONDS = 0.5
_PATIENCE_SECONDS = 5.0
_LOOK_SECONDS = 60.0  # a stream that somebody deletes is rare, and no reconnection shows it
_MISSING = (
    "the NATS server lacks some of the streams, and this service may not create them, or the server does not answer: "
    "start `spazio process`"
)
_NO_RESOURCES = (10023, 10047)
_NO_MESSAGE = 10037
_PAGE = 256  # consumers that the server lists at once
CREATED = "spazio.created"  # metadata of a restored stream: creation time of the original


class NoRoom(RuntimeError):
    """The server has too little disk space for a stream of the configured size."""


class Repartitioned(RuntimeError):
    """A stream was made again with another number of partitions: what has tasks of the former must start again."""


@dataclass(frozen=True, slots=True)
class Stream:
    """State of a stream.

    Attributes:
        name: Its name.
        created: Creation time in UTC; another time means another stream, whose sequences start again. A stream that
            was restored from a backup has the time of the original.
        first: Lowest sequence stored.
        last: Highest sequence stored.
        partitions: Number of partitions of its nodes; 0: it is not partitioned.
    """

    name: str
    created: datetime
    first: int
    last: int
    partitions: int

    @property
    def identity(self) -> str:
        """Creation time as a compact token."""
        return self.created.strftime("%Y%m%dT%H%M%S%fZ")


class Stored(NamedTuple):
    """A stored message; sequence 0: there is none."""

    payload: bytes
    sequence: int


class Consumer(NamedTuple):
    """A consumer of a stream, and its position.

    Attributes:
        name: Name under which several readers share it; empty: it has one reader.
        pending: Number of messages not yet sent to it.
        delivered: Stream sequence of the last message sent to it, or, with one reader, before the first; 0: none was.
        whole: It has all subjects.
    """

    name: str
    pending: int
    delivered: int
    whole: bool = False


async def ensure(client: Client, settings: Settings) -> None:
    """Create or update every stream and bucket; several services may do so concurrently.

    A service that may not create streams waits until one that may, the processors, has created them.

    Waits while the server's storage is starting. An existing stream keeps its number of partitions, since a change
    would move nodes between partitions.

    Raises:
        NoRoom: The server's disk is too small for the configured sizes.
    """
    js = client.jetstream(timeout=settings.nats.request_timeout_seconds)
    for wanted in configs(settings):
        while True:
            try:
                if await _ensure_stream(client, js, wanted):
                    break
                await asyncio.sleep(_RETRY_SECONDS)
            except (ServiceUnavailableError, nats.errors.TimeoutError, TimeoutError) as error:
                if getattr(error, "err_code", None) in _NO_RESOURCES:
                    raise _no_room(wanted) from error
                log.warning("stream.setup_failed", extra={"stream": wanted.name, "reason": str(error)})
                await asyncio.sleep(_RETRY_SECONDS)
            except APIError as error:
                if error.err_code not in _NO_RESOURCES:
                    raise
                raise _no_room(wanted) from error
            except nats.errors.Error as error:  # the connection broke meanwhile
                log.warning("stream.setup_failed", extra={"stream": wanted.name, "reason": repr(error)})
                await asyncio.sleep(_RETRY_SECONDS)


async def keep(client: Connection, settings: Settings, health: Health, *, ensured: int) -> None:
    """Create streams and buckets again where a server comes back without them, as one that has lost its disk.

    The same where somebody has deleted some, within a minute. Meanwhile the service is degraded; one that may not
    create them waits for one that may.

    Args:
        client: Connection.
        settings: Settings.
        health: Health of the service.
        ensured: How often the client had reconnected when `ensure` was last called.
    """
    loop = asyncio.get_running_loop()
    due = loop.time() + _LOOK_SECONDS
    while True:
        await asyncio.sleep(settings.nats.probe_seconds)
        reconnects = client.stats["reconnects"]
        if not client.is_connected or (reconnects == ensured and loop.time() < due):
            continue
        due = loop.time() + _LOOK_SECONDS
        if reconnects == ensured and not await _lacking(client, settings):
            health.recover(PART)
            continue
        try:
            async with health.within(PART, _PATIENCE_SECONDS, _MISSING):
                await ensure(client, settings)
        except (NoRoom, nats.errors.Error, TimeoutError) as error:
            health.degrade(PART, str(error))
        else:
            ensured = reconnects


async def _lacking(client: Client, settings: Settings) -> bool:
    """Tell whether the server lacks a stream; a server that does not answer is left to the watchdog."""
    with contextlib.suppress(nats.errors.Error, TimeoutError):
        return bool(await missing(client, settings))
    return False


def _no_room(wanted: api.StreamConfig) -> NoRoom:
    return NoRoom(
        f"the NATS server has no room for stream {wanted.name} of {wanted.max_bytes} bytes: free disk space, "
        "raise max_file_store in its configuration, or set nats telemetry_max_bytes, estimates_max_bytes and the "
        "other *_max_bytes lower"
    )


async def _ensure_stream(client: Client, js: JetStreamContext, wanted: api.StreamConfig) -> bool:
    """Create or update a stream; False: it does not exist, and this user may not create it."""
    assert wanted.name is not None  # every config of `configs` has a name
    try:
        present = (await js.stream_info(wanted.name)).config
    except NotFoundError:
        if not allowed(client, f"STREAM.CREATE.{wanted.name}"):
            return False
        await js.add_stream(wanted)
        return True
    shards, stored = (_shards(config) for config in (wanted, present))
    if shards != stored:
        level = logging.WARNING if stored < shards else logging.INFO
        log.log(level, "stream.partitions_kept", extra={"stream": wanted.name, "kept": stored, "asked": shards})
        wanted = wanted.evolve(subject_transform=present.subject_transform, metadata=present.metadata)
    fields = {key: value for key, value in _fields(wanted).items() if value is not None and key != "metadata"}
    stored_fields = _fields(present)
    if any(stored_fields.get(key) != value for key, value in fields.items()):
        if not allowed(client, f"STREAM.UPDATE.{wanted.name}"):
            return True
        await js.update_stream(present.evolve(**{key: getattr(wanted, key) for key in fields}))
        log.info("stream.updated", extra={"stream": wanted.name})
    return True


def _fields(config: api.StreamConfig) -> dict[str, Any]:
    """Return a configuration for comparison; the order of subjects does not matter."""
    return config.as_dict() | {"subjects": sorted(config.subjects or ())}


def _shards(config: api.StreamConfig) -> int:
    return int((config.metadata or {}).get("spazio.partitions", 0))


async def describe(client: Client, name: str) -> Stream:
    """Return the current state of a stream.

    Raises:
        NotFound: There is no such stream.
    """
    info = await client.jetstream().stream_info(name)
    assert info.created is not None  # the server always sends it
    created = datetime.fromisoformat((info.config.metadata or {}).get(CREATED, info.created.isoformat()))
    return Stream(name, created, info.state.first_seq, info.state.last_seq, _shards(info.config))


async def newest(client: Client, name: str, subject: str, timeout_seconds: float) -> Stored:
    """Return the newest message of a subject, from the stream's leader.

    Raises:
        NotFound: There is no such stream.
        BusError: It may not be read; also TimeoutError.
    """
    try:
        message = await client.jetstream(timeout=timeout_seconds).get_last_msg(name, subject)
    except NotFoundError as error:
        if error.err_code != _NO_MESSAGE:
            raise
        return Stored(b"", 0)
    return Stored(message.data or b"", message.seq or 0)


async def consumers(client: Client, name: str) -> list[Consumer]:
    """Return all consumers of a stream."""
    js, readers = client.jetstream(), list[Consumer]()
    while True:
        page = await js.consumers_info(name, offset=len(readers))
        for info in page:
            delivered = info.delivered.stream_seq if info.delivered else 0
            if info.config.durable_name and info.delivered and not info.delivered.consumer_seq:
                delivered = 0  # without a message for it the server reports how far it has looked
            whole = (info.config.filter_subjects or [info.config.filter_subject or ">"]) == [">"]
            readers.append(Consumer(info.config.durable_name or "", info.num_pending or 0, delivered, whole))
        if len(page) < _PAGE:
            return readers


async def missing(client: Client, settings: Settings) -> list[str]:
    """Return the names of required streams and buckets that do not exist."""
    js, absent = client.jetstream(), []
    for name in [config.name or "" for config in configs(settings)]:
        try:
            await js.stream_info(name)
        except NotFoundError:
            absent.append(name)
    return absent
