"""The reservations on all nodes: places of pods that were decided and are not bound yet."""

import asyncio
from typing import Any

from bus import errors, subscription
from bus.client import Client
from bus.reading.reader import Reader
from bus.subscription import Subscription
from schemas.messages.placement import Reservations
from schemas.settings import Settings
from schemas.subject import Names
from sinks.dashboard.feed import newest

_FIRST_SECONDS = 0.5  # an empty bucket sends nothing


async def read(client: Client, settings: Settings) -> dict[str, Any]:
    """Return `{"reservations": […], "error": None}`, the newest first; or null, and why they cannot be read.

    Args:
        client: Connection.
        settings: All settings.
    """
    bucket, timeout_seconds = Names(settings.prefix).reservations_bucket, settings.nats.request_timeout_seconds
    reader = Reader(client, f"KV_{bucket}", [f"$KV.{bucket}.>"], newest=True, timeout_seconds=timeout_seconds)
    decode = subscription.or_deleted(subscription.of(Reservations))
    try:
        async with asyncio.timeout(timeout_seconds + _FIRST_SECONDS):
            async with Subscription(reader, decode, subscription.ignore, newest_only=True) as messages:
                nodes = await newest.changes(messages, _FIRST_SECONDS)
    except errors.REQUEST_FAILED as error:
        return {"reservations": None, "error": str(error) or type(error).__name__}
    listed = [
        {"node": node, "pod": uid, **held.model_dump()}
        for node, row in nodes.items()
        if row is not None
        for uid, held in row.pods.items()
    ]
    return {"reservations": sorted(listed, key=lambda each: -each["at_us"]), "error": None}
