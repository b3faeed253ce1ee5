"""The scheduler cache: the newest availability of each node in a key-value bucket, which forgets what is old.

Each write is one atomic batch of the changed rows and a cursor, refused if another writer has moved the cursor; so
two writers never take turns with old values. A row expires when its measurement is old, however late it was
written.
"""

import logging
import time
from collections.abc import Sequence
from functools import partial

from prometheus_client import Counter, Histogram

from bus import stream, subscription
from bus.accounting.ledger import LEDGER
from bus.client import Client
from bus.health import UNSTORED, Health
from bus.publishing import batch, coverage
from bus.publishing.bounds import Bounds
from bus.reading.reader import Reader
from bus.subscription import Decoded, Subscription
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
    "age of an availability, from its last sample, when the cache has it, or leaves it out as too old",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
)


async def run(client: Client, settings: Settings, health: Health) -> None:
    """Keep the cache current until cancelled."""
    work = partial(_follow, client, settings, health)
    await subscription.keep(work, _report, also=(batch.Fenced,), pause_seconds=_AGAIN_SECONDS)


def _report(error: Exception) -> None:
    if isinstance(error, batch.Fenced):
        log.warning("cache.fenced", extra={"reason": str(error)})
    else:
        log.warning("cache.retried", extra={"reason": repr(error)})


async def _follow(client: Client, settings: Settings, health: Health) -> None:
    names, timeout = Names(settings.prefix), settings.nats.request_timeout_seconds
    estimates = await stream.describe(client, names.estimates)
    bucket, subject = f"KV_{names.availability_bucket}", names.of("cache", "cursor")
    bounds = Bounds(client, names, "cache", timeout_seconds=timeout)
    position, expected, _ = await coverage.covered(client, bucket, subject, estimates)
    wanted = [names.of("availability", "*")]
    reader = Reader(client, names.estimates, wanted, after=position, newest=True, timeout_seconds=timeout, bound=True)
    bury = subscription.bury(client, names, "cache", names.estimates, timeout_seconds=timeout)
    account = LEDGER.account("cache", names.estimates)
    written = LEDGER.account("cache rows", names.estimates)
    decode = subscription.of(Availability)
    async with Subscription(reader, decode, bury, newest_only=True, account=account) as availabilities:
        async for received in availabilities:
            rows, measured_us = _rows(names, received.messages, settings)
            young = len(rows)
            rows = await bounds.fitting(rows, lambda row: (row.subject, row.payload))
            if rows:
                cursor = Cursor(
                    stream=names.estimates,
                    created=estimates.identity,
                    sequence=received.last,
                    stored_us=received.stored_us or None,
                )
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
            # Not before, since what was not written is read again.
            written.receive(len(received.messages))
            written.add("stale", len(received.messages) - young)
            written.add("withheld", young - len(rows))
            written.add("written", len(rows))
            for at_us in measured_us:
                AGE.observe(max(0.0, time.time() - at_us / 1e6))


def _rows(
    names: Names, messages: Sequence[Decoded[Availability]], settings: Settings
) -> tuple[list[batch.Row], list[int]]:
    """Return a row for each message that is young enough, and the times that all messages were measured at."""
    rows, measured_us = [], []
    for each in messages:
        measured_us.append(each.message.at_us)
        age = max(0.0, time.time() - each.message.at_us / 1e6)
        if age >= settings.cache.expiry_seconds:
            STALE.inc()
            continue
        left = max(1, round(settings.cache.expiry_seconds - age))
        key = kind_and_node(each.subject)[1]
        rows.append(batch.Row(f"$KV.{names.availability_bucket}.{key}", each.data, left))
    return rows, measured_us
