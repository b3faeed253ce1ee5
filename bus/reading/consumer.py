"""A consumer of one reader's own: without acknowledgements, in memory, forgotten by the server when nobody uses it."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import nats.errors
from nats.aio.client import Client

from bus import api

log = logging.getLogger(__name__)

_IDLE_SECONDS = 300


class Renewed(nats.errors.Error):
    """The stream is not the one any more that the position is of: it was deleted and made anew."""


class Created(NamedTuple):
    """A consumer, the position that it begins behind, and the number of messages there."""

    name: str
    position: int
    pending: int


class Consumers:
    """Makes and deletes the consumers that a reader has one after another."""

    def __init__(
        self, client: Client, stream: str, subjects: Sequence[str], *, newest: bool, bound: bool, timeout_seconds: float
    ) -> None:
        """Describe them; see `pull.Reader`."""
        self._client, self._stream, self._subjects = client, stream, list(subjects)
        self._newest, self._bound, self._timeout = newest, bound, timeout_seconds
        self._born = ""

    async def create(self, position: int) -> Created:
        """Make one behind a position, or behind 0 if the stream was made anew since the last.

        Raises:
            Renewed: The stream was made anew, and the reader is bound to the one before.
            nats.errors.Error: There is none; also TimeoutError.
        """
        born = (await self._api(f"STREAM.INFO.{self._stream}", {}))["created"]
        if self._born not in ("", born):
            if self._bound:
                raise Renewed(f"stream {self._stream} was made anew")
            log.info("pull.renewed", extra={"stream": self._stream})
            position = 0
        config: dict[str, Any] = {
            "filter_subjects": self._subjects,
            "ack_policy": "none",
            "replay_policy": "instant",
            "inactive_threshold": _IDLE_SECONDS * 10**9,
            "mem_storage": True,
        }
        if self._newest and not position:
            config["deliver_policy"] = "last_per_subject"
        else:
            config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": position + 1}
        answer = await self._api(f"CONSUMER.CREATE.{self._stream}", {"stream_name": self._stream, "config": config})
        self._born = born  # only now: until there is a consumer, each attempt begins at the new stream's start
        return Created(answer["name"], position, int(answer.get("num_pending", 0)))

    async def delete(self, name: str) -> None:
        """Take one back; the server forgets it by itself if that fails."""
        try:
            await self._api(f"CONSUMER.DELETE.{self._stream}.{name}", {})
        except (nats.errors.Error, TimeoutError):
            log.debug("pull.consumer_left", extra={"consumer": name})

    async def _api(self, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        return await api.request(self._client, verb, request, self._timeout)
