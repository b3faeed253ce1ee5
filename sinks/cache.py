"""The scheduler cache: the newest availability of each node in a key-value bucket, which forgets what is old.

Each write is one atomic batch of the changed rows and a cursor, refused if another writer has moved the cursor; so
two writers never take turns with old values. A row expires when its measurement is old, however late it was
written.
"""

import asyncio
import logging
import time

import nats.errors
from nats.aio.client import Client
from prometheus_client import Counter, Histogram

from bus import stream
from bus.health import UNSTORED, Health
from bus.publishing import batch, dead
from bus.reading.reader import Reader, Received
from schemas import codec
from schemas.messages.estimate import Availability, Cursor
from schemas.settings import Settings
from schemas.subject import Names, kind_and_node

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 1.0
_PATIENCE_SECONDS = 5.0

WRITTEN = Counter("spazio_cache_rows_total", "availabilities written to the scheduler cache")
STALE = Counter("spazio_cache_stale_total", "availabilities too old to be written")
AGE = Histogram(
    "spazio_cache_age_seconds",
    "age of an availability, from its last sample, when the cache has it",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
)


async def run(client: Client, settings: Settings, health: Health) -> None:
    """Keep the cache current until cancelled."""
    while True:
        try:
            await _follow(client, settings, health)
        except batch.Fenced as fenced:
            log.warning("cache.fenced", extra={"reason": str(fenced)})
        except (nats.errors.Error, TimeoutError) as error:
            log.warning("cache.retried", extra={"reason": repr(error)})
        await asyncio.sleep(_AGAIN_SECONDS)


async def _follow(client: Client, settings: Settings, health: Health) -> None:
    names, timeout = Names(settings.prefix), settings.nats.request_timeout_seconds
    estimates = await stream.describe(client, names.estimates)
    bucket, subject = f"KV_{names.availability_bucket}", names.of("cache", "cursor")
    position, expected = await batch.covered(client, bucket, subject, estimates)
    reader = Reader(
        client,
        names.estimates,
        [names.of("availability", "*")],
        after=position,
        newest=True,
        timeout_seconds=timeout,
        bound=True,
    )
    async with reader:
        while True:
            messages = await reader.read()
            rows, ages = [], []
            for message in {message.subject: message for message in messages}.values():
                try:
                    availability = codec.decode_from(Availability, message.data, message.subject)
                except codec.Refused as refusal:
                    await dead.bury(
                        client, names, "cache", names.estimates, message, str(refusal), timeout_seconds=timeout
                    )
                    continue
                age = max(0.0, time.time() - availability.at_us / 1e6)
                if age >= settings.cache.expiry_seconds:
                    STALE.inc()
                    continue
                rows.append(_row(names, message, age, settings))
                ages.append(availability.at_us)
            if rows:
                cursor = Cursor(stream=names.estimates, created=estimates.identity, sequence=reader.position)
                async with health.within("cache", _PATIENCE_SECONDS, UNSTORED):
                    expected = await batch.publish(
                        client,
                        bucket,
                        rows,
                        batch.Row(subject, codec.encode(cursor)),
                        expected,
                        timeout_seconds=timeout,
                    )
                WRITTEN.inc(len(rows))
            for at_us in ages:
                AGE.observe(max(0.0, time.time() - at_us / 1e6))


def _row(names: Names, message: Received, age: float, settings: Settings) -> batch.Row:
    key = kind_and_node(message.subject)[1]
    left = max(1, round(settings.cache.expiry_seconds - age))
    return batch.Row(f"$KV.{names.availability_bucket}.{key}", message.data, left)
