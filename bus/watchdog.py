"""A connection that calls itself connected is asked whether it is.

The server may hang, the network may swallow what is sent, the client's reader may have died: nothing of that shows
until somebody waits for an answer in vain. So a ping is sent every few seconds. When two in a row get no answer, and
nothing else has come from the server either, the connection is dead: the service says so and connects anew. It ends,
for its supervisor to start it again, only where that may help: when the client does not even try to connect, or when
one connection after another dies. A client that tries and does not get through waits, as it does for a server that is
down; what a producer has buffered would be lost otherwise.
"""

import asyncio
import contextlib
import logging

from prometheus_client import Counter

from bus import connection
from bus.connection import Connection
from bus.health import Health
from schemas.sections.bus import Nats

log = logging.getLogger(__name__)

PART = "connection"
_SILENT = 2
_DEATHS = 3
# An attempt waits four times for the server (connect, TLS, greeting, first answer), then for a flush of ten seconds.
_WAITS = 4
_FLUSH_SECONDS = 15.0

DEAD = Counter("spazio_nats_dead_total", "connections given up because they called themselves connected and were not")


class Hopeless(RuntimeError):
    """Connecting anew in this process does not help."""


async def watch(client: Connection, health: Health, nats: Nats) -> None:
    """Look after a connection for ever.

    Args:
        client: The connection.
        health: Told while it is dead.
        nats: Settings; a dead connection is noticed after at most three times `probe_seconds`.

    Raises:
        Closed: The client has given up for good.
        Hopeless: The process should end and be started again.
    """
    loop, seconds = asyncio.get_running_loop(), nats.probe_seconds
    stuck_seconds = _WAITS * nats.connect_timeout_seconds + _FLUSH_SECONDS
    silent = deaths = 0
    away: float | None = None
    while True:
        began, heard = loop.time(), client.heard
        if not client.is_connected:
            away, silent = began if away is None else away, 0
            if began - max(client.attempted, away) > stuck_seconds:
                raise Hopeless(f"the NATS client has not tried to connect for {stuck_seconds:g} s")
        elif await connection.alive(client, seconds) or client.heard != heard:
            away, silent, deaths = None, 0, 0
            health.recover(PART)
        elif client.is_connected:
            away, silent = None, silent + 1
        if silent >= _SILENT:
            silent, deaths = 0, deaths + 1
            DEAD.inc()
            reason = f"the server has answered nothing for {_SILENT * seconds:g} s; connecting anew"
            health.degrade(PART, reason, dead=True)
            if deaths >= _DEATHS:
                raise Hopeless(f"{deaths} connections to NATS have died one after another")
            await client.force_reconnect()
        # Beside an answer in vain this takes no time: the next question follows at once.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(began + seconds):
                await connection.unless_closed(client)
