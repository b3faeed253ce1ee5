"""Publishes the past of all markets now and then, so that extenders need not share a folder with the history."""

import asyncio
import logging
import time

from bus.client import Client
from bus.health import Health
from bus.publishing.outbox import Outbox
from schemas import codec
from schemas.live import Live
from schemas.subject import Names
from sinks.history.market import past

log = logging.getLogger(__name__)

SECONDS = 600.0


async def run(client: Client, live: Live, health: Health) -> None:
    """Publish at the start, and every ten minutes, until cancelled."""
    timeout, subject = live.current.nats.request_timeout_seconds, Names(live.current.prefix).of("market")
    outbox = Outbox(client, health, limit=1, timeout_seconds=timeout, kind="market")
    async with asyncio.TaskGroup() as group:
        group.create_task(outbox.run())
        while True:
            settings, now_us = live.current, time.time_ns() // 1000
            since_us = now_us - round(settings.extender.window_seconds * 1e6)
            try:
                message = await asyncio.to_thread(past.read, settings.history_dir / "nodes", since_us, now_us)
            except Exception:  # the history must be written without markets, too
                log.exception("market.read_failed")
            else:
                outbox.put(subject, codec.encode(message), f"market:{now_us}")
            await asyncio.sleep(SECONDS)
