"""Watches promises, and publishes what became of them and what measured room leaves, once a minute."""

import asyncio
import logging
import time

from bus.client import Client
from bus.health import Health
from bus.link import Connection
from bus.publishing.outbox import Outbox
from schemas import codec
from schemas.messages.placement import Trust
from schemas.settings import Settings
from schemas.subject import Names, token
from sinks.extender.state.cluster_state import ClusterState
from sinks.extender.trust import savings
from sinks.extender.trust.promises import PromiseTracker

log = logging.getLogger(__name__)

_WATCH_SECONDS, _PUBLISH_SECONDS = 1.0, 60.0


def summary(settings: Settings, cluster_state: ClusterState, promises: PromiseTracker, now_us: int) -> Trust:
    """Return the message at a time; it has what was settled since the one before."""
    own = settings.extender
    left = savings.measure(cluster_state, now_us)
    return Trust(
        replica=promises.replica,
        at_us=now_us,
        mode=own.mode,
        risk=own.promote_risk,
        promises=promises.published(),
        **left._asdict(),
    )


async def run(client: Client, settings: Settings, cluster_state: ClusterState, promises: PromiseTracker) -> None:
    """Watch and publish until cancelled; the cluster state must be complete.

    With a credential of an older version nothing is published. What cannot be published does not make the extender
    unready: a cluster that places no pods is worse than one without this account.

    Args:
        client: Connection.
        settings: All settings.
        cluster_state: Nodes and pods.
        promises: Promises.
    """
    subject = Names(settings.prefix).of("trust", token(promises.replica))
    outbox = Outbox(client, Health(), limit=60, timeout_seconds=settings.nats.request_timeout_seconds, kind="trust")
    due, may_publish = time.monotonic(), not isinstance(client, Connection) or client.may_publish(subject)
    if not may_publish:
        log.warning("trust.unpublished", extra={"reason": f"the credential may not publish {subject}: issue a new one"})
    async with asyncio.TaskGroup() as group:
        group.create_task(outbox.run())
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            now_us = time.time_ns() // 1000
            try:
                promises.watch()
                if time.monotonic() < due:
                    continue
                due = time.monotonic() + _PUBLISH_SECONDS
                message = summary(settings, cluster_state, promises, now_us)
            except Exception:  # placement must go on without accounts, too
                log.exception("trust.summary_failed")
                continue
            if may_publish:
                outbox.put(subject, codec.encode(message), f"trust:{promises.replica}:{message.at_us}")
