"""The pin of a priority group: the one client that gets messages, until it is silent or unpinned."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.nats.jetstream.waiting import Bad, Queue, Request
from tests.support.nats.message import block

_WRONG = "423 Nats-Wrong-Pin-Id"


class Pin:
    """State of the group of one consumer; does nothing where the consumer has no `pinned_client` policy."""

    def __init__(
        self,
        config: Mapping[str, Any],
        new_identity: Callable[[], str],
        send: Callable[[str, bytes], None],
        changed: Callable[[str, Mapping[str, str]], None],
    ) -> None:
        """Describe a group.

        Args:
            config: The consumer's configuration.
            new_identity: Makes pin identities.
            send: Sends a header block to an inbox.
            changed: Called with `PINNED` and `UNPINNED`, with the fields of the advisory.
        """
        self._pinned = config.get("priority_policy") == "pinned_client"
        self._groups: list[str] = config.get("priority_groups", [])
        self._timeout = config.get("priority_timeout", 0) / 1e9
        self._new_identity, self._send, self._changed = new_identity, send, changed
        self._timer: asyncio.TimerHandle | None = None
        self.identity = ""
        self.since_ns = 0

    @property
    def groups(self) -> list[str]:
        """Names of the groups."""
        return self._groups

    def admit(self, request: Request, expired: Callable[[], None]) -> None:
        """Look at a new request; one of the pinned client proves that it is alive.

        Raises:
            Bad: The request may not wait.
        """
        if not self._groups:
            if request.pin:
                raise Bad("400 Bad Request - Not a Pinned Client Priority consumer")
            return
        if not request.group:
            raise Bad("400 Bad Request - Priority Group missing")
        if request.group not in self._groups:
            raise Bad("400 Bad Request - Invalid Priority Group")
        if self.identity and request.pin == self.identity:
            self._watch(expired)
        elif self.identity and request.pin:
            raise Bad("423 Nats-Pin-Id mismatch")

    def choose(self, queue: Queue, now_ns: int, expired: Callable[[], None]) -> Request | None:
        """Return the request that gets the next message, pinning its client where nobody is; None: no one may."""
        passed = 0
        while len(queue):
            request = queue.first()
            if not self._pinned or (self.identity and request.pin == self.identity):
                return request
            if request.pin:
                self._send(request.reply, request.status(_WRONG))
                queue.drop(request)
            elif not self.identity:
                self.identity, self.since_ns = self._new_identity(), now_ns
                request.pin = self.identity
                self._watch(expired)
                self._changed("PINNED", {"group": request.group, "pinned_id": self.identity})
                return request
            else:
                queue.cycle()
                passed += 1
                if passed >= len(queue):
                    return None
        return None

    def mark(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the header fields that a delivery gets in addition."""
        return {**headers, "Nats-Pin-Id": self.identity} if self._pinned else headers

    def release(self, reason: str) -> None:
        """Take the pin away from its client."""
        self.forget()
        self._changed("UNPINNED", {"group": self._groups[0], "reason": reason})

    def forget(self) -> None:
        """Drop the pin in silence."""
        self.identity, self.since_ns = "", 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _watch(self, expired: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._timeout, self._lapse, expired)

    def _lapse(self, expired: Callable[[], None]) -> None:
        if self.identity:
            self.release("timeout")
            expired()


def status(text: str) -> bytes:
    """Return a bare status message."""
    return block({}, text)
