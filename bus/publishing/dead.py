"""Dead letters: unusable messages, stored unchanged with the reason, for inspection.

The id of a dead letter contains stream and sequence of the original, so that it is stored once even if several
consumers refuse it. An original of the server's maximum payload leaves no space for headers; it is stored in numbered
parts, which concatenated are the original.
"""

import asyncio
import logging

import nats.errors
from nats.aio.client import Client
from prometheus_client import Counter

from bus.reading.progress import Received
from schemas.subject import Names, kind_and_node

log = logging.getLogger(__name__)

_HEADER_SPACE = 4096
_LONGEST_REASON = 1000
_LONGEST_SUBJECT = 500  # a longer one and its inbox would exceed the protocol's control line
_RETRY_SECONDS = 0.5

DEAD = Counter("spazio_dead_letters_total", "messages refused by a consumer", ["consumer", "kind"])


def original_subject(names: Names, subject: str) -> str:
    """Return the subject on which a message was published, given its stored subject."""
    if subject.startswith(names.of("part", "")):
        return names.of(*kind_and_node(subject))
    return subject


async def bury(
    client: Client, names: Names, consumer: str, stream: str, message: Received, reason: str, *, timeout_seconds: float
) -> None:
    """Store a refused message under `<prefix>.dead.<its subject>`; wait until it is stored.

    Args:
        client: Connection.
        names: Subjects in use.
        consumer: Name of the consumer that refuses it.
        stream: Stream of the message.
        message: The message.
        reason: Reason of the refusal, for people.
        timeout_seconds: Time limit for one attempt.
    """
    subject = original_subject(names, message.subject)
    letter_subject = names.dead(subject) if len(subject) <= _LONGEST_SUBJECT else names.of("dead", "long")
    DEAD.labels(consumer, kind_and_node(message.subject)[0]).inc()
    log.info("message.refused", extra={"subject": subject, "sequence": message.sequence, "reason": reason[:200]})
    room = client.max_payload - _HEADER_SPACE
    parts = [message.data]
    if len(message.data) > room:
        parts = [message.data[start : start + room] for start in range(0, len(message.data), room)]
    for number, part in enumerate(parts, 1):
        identity = f"dead:{stream}:{message.sequence}" + (f":{number}" if number > 1 else "")
        headers = {
            "Nats-Msg-Id": identity,
            "Spazio-Error": " ".join(reason.split())[:_LONGEST_REASON].encode("ascii", "replace").decode(),
            "Spazio-Consumer": consumer,
            "Spazio-Subject": subject[:_LONGEST_REASON].encode("ascii", "replace").decode(),
        }
        if len(parts) > 1:
            headers["Spazio-Part"] = f"{number}/{len(parts)}"
        await _store(client, letter_subject, part, headers, timeout_seconds)


async def _store(client: Client, subject: str, payload: bytes, headers: dict[str, str], timeout_seconds: float) -> None:
    js = client.jetstream(timeout=timeout_seconds)
    while True:
        try:
            await js.publish(subject, payload, headers=dict(headers))
        except (nats.errors.Error, TimeoutError, OSError) as error:
            log.warning("dead_letter.store_failed", extra={"reason": str(error)})
            await asyncio.sleep(_RETRY_SECONDS)
        else:
            return
