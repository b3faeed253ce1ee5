"""What no server takes: found before it is sent, withheld, counted, and buried with the reason.

The server ends the connection of a client whose subject is too long, and refuses a payload above its limit; a publisher
that tried again would never send anything else. So every publisher asks here first. A withheld message harms no
other: the rest goes on. The same message is withheld at each attempt, so a fold that is repeated publishes the same.
"""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from nats.aio.client import Client
from prometheus_client import Counter

from bus.publishing import dead
from schemas.subject import MAXIMUM_SUBJECT_BYTES, Names, is_subject, kind_of

log = logging.getLogger(__name__)

HEADER_BYTES = 512  # of the headers that a publisher adds; the server counts them as payload
_MOST_BURIED = 1024  # messages that were buried, so that one that comes again and again is buried once
_SHOWN = 200

WITHHELD = Counter(
    "spazio_publish_withheld_total",
    "messages not published, since no server takes them, by publisher and reason",
    ["publisher", "reason"],
)

Item = TypeVar("Item")


class Excess(NamedTuple):
    """Why a message cannot be published: the label of the metric, and a sentence."""

    cause: str
    reason: str


def excess(subject: str, payload_bytes: int, largest: int) -> Excess | None:
    """Return why no server takes a message; None: it does.

    Args:
        subject: Subject, as it would be sent.
        payload_bytes: Size of the payload.
        largest: Largest payload of the server, in bytes.
    """
    if len(subject) > MAXIMUM_SUBJECT_BYTES:
        return Excess(
            "subject_too_long",
            f"subject has {len(subject)} bytes, a server takes {MAXIMUM_SUBJECT_BYTES}: use shorter names",
        )
    if not is_subject(subject):
        return Excess(
            "subject_malformed", "subject has an empty token, a wildcard, a space or a byte that is not ASCII"
        )
    if payload_bytes > largest - HEADER_BYTES:
        return Excess(
            "too_large",
            f"payload has {payload_bytes} bytes, the server takes {largest - HEADER_BYTES}: raise its max_payload",
        )
    return None


class Bounds:
    """Withholds what no server takes, for one publisher."""

    def __init__(self, client: Client, names: Names, publisher: str, *, timeout_seconds: float) -> None:
        """Describe the publisher.

        Args:
            client: Connection; its server says what the largest payload is.
            names: Subjects in use.
            publisher: Name of the publisher in metrics and dead letters.
            timeout_seconds: Time limit for one attempt to store a dead letter.
        """
        self._client, self._names, self._publisher = client, names, publisher
        self._timeout = timeout_seconds
        self._logged: set[tuple[str, str]] = set()
        self._buried: OrderedDict[str, None] = OrderedDict()

    async def fitting(self, items: Sequence[Item], message: Callable[[Item], tuple[str, bytes]]) -> list[Item]:
        """Return the items whose message the server takes; withhold the others.

        Args:
            items: In the order in which they are published.
            message: Returns subject and payload of an item.
        """
        kept: list[Item] = []
        for item in items:
            subject, payload = message(item)
            limit = excess(subject, len(payload), self._client.max_payload)
            if limit is None:
                kept.append(item)
            else:
                await self.withhold(subject, payload, limit)
        return kept

    async def withhold(self, subject: str, payload: bytes, limit: Excess) -> None:
        """Count a message, log the first of its cause, and bury it, unless the same was buried before."""
        WITHHELD.labels(self._publisher, limit.cause).inc()
        cause = kind_of(subject) if "." in subject else "", limit.cause
        level = logging.DEBUG if cause in self._logged else logging.WARNING
        self._logged.add(cause)
        log.log(
            level,
            "message.withheld",
            extra={"publisher": self._publisher, "subject": subject[:_SHOWN], "reason": limit.reason},
        )
        digest = hashlib.blake2b(subject.encode() + b"\0" + payload, digest_size=12).hexdigest()
        # The numbers of a message change each time; what is wrong with it is most often its subject.
        mark = hashlib.blake2b(f"{limit.cause} {subject}".encode(), digest_size=12).hexdigest()
        if mark in self._buried:
            return
        self._buried[mark] = None
        if len(self._buried) > _MOST_BURIED:
            self._buried.popitem(last=False)
        await dead.store(
            self._client,
            self._names,
            dead.Letter(subject, payload, limit.reason, self._publisher, f"dead:withheld:{digest}"),
            timeout_seconds=self._timeout,
        )
