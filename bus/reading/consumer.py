"""A reader's own consumer: without acknowledgements, in memory, deleted by the server when it is unused."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client

from bus import api
from bus.reading import setback, slot
from bus.reading.setback import Mark, SetBack

log = logging.getLogger(__name__)

_IDLE_SECONDS = 300


class StreamRecreated(nats.errors.Error):
    """The stream was deleted and created again, so the reader's position has no meaning in it."""


class Created(NamedTuple):
    """A consumer, the message after which it begins, and the number of messages there."""

    name: str
    position: Mark
    pending: int


class Consumers:
    """Creates and deletes the successive consumers of a reader."""

    def __init__(
        self, client: Client, stream: str, subjects: Sequence[str], *, newest: bool, bound: bool, timeout_seconds: float
    ) -> None:
        """Describe the consumers; see `reader.Reader`."""
        self._client, self._stream, self._subjects = client, stream, list(subjects)
        self._newest, self._bound, self._timeout = newest, bound, timeout_seconds
        self._stream_created = ""
        self._unanswered: list[slot.Config] = []

    async def create(self, read: Mark) -> Created:
        """Create a consumer that begins after the last message read.

        It begins after 0 if the stream was recreated since the last one, and behind what the stream has kept if the
        server came back with less than it had.

        Raises:
            StreamRecreated: The stream was recreated, and the reader is bound to the one before.
            SetBack: The server came back with less than was read, and the reader is bound.
            nats.errors.Error: The consumer was not created; also TimeoutError.
        """
        position = read
        stream_created = (await self._api(f"STREAM.INFO.{self._stream}", {}))["created"]
        if self._stream_created not in ("", stream_created):
            if self._bound:
                raise StreamRecreated(f"stream {self._stream} was recreated")
            log.info("stream.recreated", extra={"stream": self._stream})
            position = Mark(0)
        elif position.sequence:
            position = await self._checked(position)
        config: dict[str, Any] = {
            "filter_subjects": self._subjects,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": _IDLE_SECONDS * 10**9,
            "mem_storage": True,
        }
        if self._newest and not position.sequence:
            config["deliver_policy"] = "last_per_subject"
        else:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": position.sequence + 1}
        if slot.needed(self._client, self._stream):
            answer = await slot.create(self._client, self._stream, config, self._timeout, unanswered=self._unanswered)
        else:
            request = {"stream_name": self._stream, "config": config}
            answer = await self._api(f"CONSUMER.CREATE.{self._stream}", request)
        # Only now: until a consumer exists, each attempt begins at the new stream's start.
        self._stream_created = stream_created
        return Created(answer["name"], position, int(answer.get("num_pending", 0)))

    async def _checked(self, read: Mark) -> Mark:
        try:
            await setback.check(self._client, self._stream, read, self._timeout)
        except SetBack as error:
            if self._bound:
                raise
            log.warning("stream.set_back", extra={"stream": self._stream, "reason": str(error)})
            return error.kept
        return read

    async def delete(self, name: str) -> None:
        """Delete a consumer; if that fails, or this user may not, the server deletes it after a while."""
        if not api.allowed(self._client, f"CONSUMER.DELETE.{self._stream}.{name}"):
            return
        try:
            await self._api(f"CONSUMER.DELETE.{self._stream}.{name}", {})
        except (nats.errors.Error, TimeoutError):
            log.debug("consumer.delete_failed", extra={"consumer": name})

    async def _api(self, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        return await api.request(self._client, verb, request, self._timeout)
