"""Checks that a connection which reports to be connected really is.

The server may hang, the network may drop packets, or the client's reader may have died. None of that shows until a
request gets no answer, so the watchdog sends a ping every few seconds. If two in a row get no answer, and nothing else
arrives from the server, the connection is dead: the service becomes degraded and reconnects. The service ends, for its
supervisor to restart it, only where a restart may help: when the client does not try to connect, or when several
connections die one after another. A client that tries without success waits, as it does while the server is down;
a restart would lose the messages that a producer has buffered.
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
_USER, _PERMISSIONS = "credentials", "permissions"
_SILENT = 2
_DEATHS = 3
# An attempt waits for the server four times (connect, TLS, greeting, first answer), then ten seconds for a flush.
_WAITS = 4
_FLUSH_SECONDS = 15.0

DEAD = Counter(
    "spazio_nats_dead_total",
    "connections dropped because the server did not answer although the client reported to be connected",
)


class Hopeless(RuntimeError):
    """Reconnecting in this process does not help."""


async def watch(client: Connection, health: Health, nats: Nats) -> None:
    """Watch a connection until it fails for good.

    Args:
        client: The connection.
        health: Degraded while the connection is dead.
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
        _report(client, health)
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
            reason = f"the server has answered nothing for {_SILENT * seconds:g} s; reconnecting"
            health.degrade(PART, reason, dead=True)
            if deaths >= _DEATHS:
                raise Hopeless(f"{deaths} connections to NATS have died one after another")
            await client.force_reconnect()
        # A ping that got no answer has used up this time; the next one follows at once.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(began + seconds):
                await connection.unless_closed(client)


def _report(client: Connection, health: Health) -> None:
    """Degrade health while the server refuses the user or some of its subjects."""
    for part, reason in ((_USER, client.refusal), (_PERMISSIONS, client.denials.newest())):
        if reason:
            health.degrade(part, reason)
        else:
            health.recover(part)
