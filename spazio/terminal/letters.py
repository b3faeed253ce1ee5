"""The doctor's words on messages that were refused."""

import asyncio
import time
from typing import Any

from bus import connection, errors
from bus.accounting import dead_letters
from schemas.settings import Settings
from schemas.subject import Names
from spazio.service.host import Finding, unchecked, unconnected

NAME = "dead letters"
_RECENT_SECONDS = 3600


def check(settings: Settings, seconds: float) -> Finding:
    """Ask the server for the dead letters that it keeps, for so many seconds at most."""
    cost, unknown = "what they hold is missing everywhere", "unknown whether messages were refused"
    try:
        kept = asyncio.run(_read(settings, seconds))
    except connection.Unacceptable:
        return unconnected(NAME, unknown)
    except (errors.BusError, TimeoutError, OSError, ValueError, LookupError):
        return unchecked(NAME, unknown)
    if not kept["newest"]:
        return Finding(NAME, True, "none: no message was refused lately")
    newest = kept["newest"][0]
    at = (newest["at"] or 0) / 1e6
    came = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
    detail = f"{kept['count']} kept; the newest, of {came}, on {newest['subject']}: {newest['reason']}"
    if time.time() - at > _RECENT_SECONDS:
        return Finding(NAME, True, detail)
    return Finding(NAME, None, detail, cost, "correct what sends them; the Pipeline page of the dashboard lists them")


async def _read(settings: Settings, seconds: float) -> dict[str, Any]:
    async with asyncio.timeout(seconds), connection.probe(settings, "spazio-doctor") as client:
        return await dead_letters.read(client, Names(settings.prefix).dead_letters, seconds, most=1)
