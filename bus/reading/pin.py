"""What a server's answers say of the pin of a lease, and whether somebody else uses it.

The server sends a lease's messages to each client that names its pin. Every role that reads the stream may ask for the
pin and pull messages under it, which are then missing in the count of the holder's. One such hole has honest causes,
as a server that was killed; several within a minute have none. Such a role may also name the lease when it creates a
consumer of its own, and so change the lease's; that is seen in its configuration.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from bus import api
from bus.reading import tap

GROUP = "owner"
_PIN = b"Nats-Pin-Id: "
_MOST_HOLES = 4
_WITHIN_SECONDS = 60.0
_WAITING = 4096  # open requests of standby replicas at most
# What no version of a lease has differently: a consumer that does is a stranger's.
_OWN = ("durable_name", "deliver_subject", "ack_policy", "deliver_policy", "priority_groups", "priority_policy")


class Waiting:
    """State of a standby's request: pinned, or ended by the server, possibly because no server handles it."""

    def __init__(self) -> None:
        self.pin = ""
        self.over = self.unserved = False
        self.heard = asyncio.Event()

    def collect(self, _subject: bytes, reply: bytes, _data: bytes, headers: bytes | None) -> None:
        """Take in an answer."""
        if reply:
            # The server's header comes last; a stored message may have one of the same name.
            self.pin = (headers or b"").rpartition(_PIN)[2].partition(b"\r\n")[0].decode(errors="replace")
        elif (status := tap.fields(headers)["Status"]) != "100":
            self.over = True
            self.unserved = status == "503"
        self.heard.set()


class Holes:
    """Times at which messages were missing that the server had sent under a pin."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=_MOST_HOLES)

    def add(self, now: float) -> bool:
        """Record one; tell whether somebody else pulls under this pin, and begin again if so."""
        self._times.append(now)
        if len(self._times) < _MOST_HOLES or now - self._times[0] > _WITHIN_SECONDS:
            return False
        self._times.clear()
        return True


def config(consumer: str, subjects: Sequence[str], failover_seconds: float) -> dict[str, Any]:
    """Return the configuration of a lease's consumer."""
    return {
        "name": consumer,
        "durable_name": consumer,
        "filter_subjects": [*subjects],
        "ack_policy": "none",
        "deliver_policy": "all",
        "replay_policy": "instant",
        "max_waiting": _WAITING,
        "mem_storage": True,
        "priority_groups": [GROUP],
        "priority_policy": "pinned_client",
        "priority_timeout": api.nanoseconds(failover_seconds),
    }


def foreign(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """Return the fields in which a consumer is a stranger's; one that a stranger has changed has no durable name."""
    return [key for key in _OWN if present.get(key) != wanted.get(key)]


def pins(info: dict[str, Any]) -> set[str]:
    """Return the pins that the server's description of a consumer names."""
    return {pin for group in info.get("priority_groups") or [] if (pin := group.get("pinned_client_id"))}
