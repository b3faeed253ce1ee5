"""Pull requests that wait at a consumer, and the one client that a priority group is pinned to."""

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.nats.message import block


class Bad(Exception):
    """A request that is answered with a status at once."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


@dataclass(slots=True)
class Request:
    """One pull request; times are those of the event loop, in seconds.

    Attributes:
        reply: Inbox that gets the messages.
        left: Messages still wanted.
        expires: When it ends; None: when it is fulfilled.
        heartbeat: Seconds between signs of life; 0: none.
        beat: When the next one is due.
        no_wait: It ends as soon as there is nothing more to send.
        group: Priority group.
        pin: The pin that the client believes to hold.
        delivered: Messages sent.
    """

    reply: str
    left: int
    expires: float | None
    heartbeat: float
    beat: float
    no_wait: bool
    group: str
    pin: str
    delivered: int = 0

    @property
    def due(self) -> float | None:
        """When something has to be done about it."""
        times = [time for time in (self.expires, self.beat if self.heartbeat else None) if time is not None]
        return min(times, default=None)

    def status(self, text: str) -> bytes:
        """Return a status message that says what is left of the request."""
        return block({"Nats-Pending-Messages": self.left, "Nats-Pending-Bytes": 0}, text)


def parse(reply: str, body: bytes, now: float) -> Request:
    """Read a pull request: nothing, a number, or a JSON object.

    Raises:
        Bad: It is none.
    """
    text = body.strip()
    if not text.startswith(b"{"):
        return Request(reply, int(text) if text.isdigit() else 1, None, 0, 0, no_wait=False, group="", pin="")
    try:
        asked: Mapping[str, Any] = json.loads(text)
    except ValueError as error:
        raise Bad(f"400 Bad Request - {error}") from error
    expires, heartbeat = asked.get("expires", 0) / 1e9, asked.get("idle_heartbeat", 0) / 1e9
    if heartbeat and heartbeat * 2 > expires:
        raise Bad("400 Bad Request - heartbeat value too large")
    return Request(
        reply,
        asked.get("batch", 0),
        now + expires if expires else None,
        heartbeat,
        now + heartbeat,
        no_wait=asked.get("no_wait", False),
        group=asked.get("group", ""),
        pin=asked.get("id", ""),
    )


class Queue:
    """Requests in turn: each gets one message, then the next one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._requests: deque[Request] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> "Any":
        return iter(list(self._requests))

    @property
    def wanted(self) -> int:
        """Messages that all requests still want."""
        return sum(request.left for request in self._requests)

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            Bad: Too many wait; one with heartbeats is dropped in silence, as the real server does.
        """
        if len(self._requests) >= self._most:
            raise Bad("" if request.heartbeat else "409 Exceeded MaxWaiting")
        self._requests.append(request)

    def first(self) -> Request:
        """Return the request whose turn it is."""
        return self._requests[0]

    def cycle(self) -> None:
        """Pass the turn on."""
        self._requests.rotate(-1)

    def drop(self, request: Request) -> None:
        """Take a request out."""
        self._requests = deque(each for each in self._requests if each is not request)

    def serve(self) -> Request:
        """Take one message off the first request and pass the turn on."""
        request = self._requests.popleft()
        request.left -= 1
        request.delivered += 1
        if request.left > 0:
            self._requests.append(request)
        return request

    def clear(self) -> None:
        """Forget all requests."""
        self._requests.clear()
