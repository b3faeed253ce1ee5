"""The dashboard as a service: it listens, and reads the bus while somebody looks."""

import asyncio
import logging

from bus.client import Client
from schemas.settings import Settings
from sinks.dashboard.history import History
from sinks.dashboard.web import Dashboard

log = logging.getLogger(__name__)


async def run(client: Client, settings: Settings, history: History, listening: asyncio.Future[str]) -> None:
    """Serve pages until cancelled.

    Args:
        client: Connection.
        settings: All settings.
        history: Reads the history.
        listening: Gets the address.

    Raises:
        SettingsError: The address cannot be listened on, or a file of its settings cannot be used.
    """
    async with Dashboard(client, settings, history).serve() as address:
        if not listening.done():
            listening.set_result(address)
        log.info("dashboard.listening", extra={"url": address})
        await asyncio.Event().wait()
