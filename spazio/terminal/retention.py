"""The doctor's words on how long the streams hold messages."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from bus import connection, errors
from bus.accounting import retention
from bus.accounting.retention import Retention
from schemas.settings import Settings
from spazio.service.host import Finding, unchecked, unconnected

NAME = "retention"


def check(settings: Settings, seconds: float) -> Finding:
    """Ask the server for how long its streams hold messages at the present rate.

    Args:
        settings: All settings.
        seconds: Time limit.
    """
    unknown = "unknown for how long processors and the history may be away"
    try:
        streams = _asked(settings, seconds)
    except connection.Unacceptable:
        return unconnected(NAME, unknown)
    if streams is None:
        return unchecked(NAME, unknown)
    if not streams:
        return Finding(NAME, True, "not known yet: the streams have no more than their first minute of messages")
    cost = "after a longer outage of processors or of the history, rows are missing" if _remedy(streams) else ""
    return Finding(NAME, None if cost else True, "; ".join(map(_sentence, streams)), cost, _remedy(streams))


def warning(settings: Settings, seconds: float) -> str:
    """Return a sentence if the streams hold messages for a shorter time than they should; else an empty text."""
    streams: list[Retention] = []
    with suppress(connection.Unacceptable):
        streams = _asked(settings, seconds) or []
    short = [stream for stream in streams if stream.seconds < stream.wanted_seconds]
    return f"{'; '.join(map(_sentence, short))}: {_remedy(short)}." if short else ""


def _asked(settings: Settings, seconds: float) -> list[Retention] | None:
    """Return what the streams hold; None: no server answers.

    Raises:
        Unacceptable: There can be no connection to it.
    """
    try:
        return asyncio.run(_read(settings, seconds))
    except (errors.BusError, TimeoutError, OSError, ValueError, LookupError):
        return None


def _remedy(streams: Sequence[Retention]) -> str:
    """Return what makes the streams hold messages for as long as they should; empty: they do."""
    short = [stream for stream in streams if stream.seconds < stream.wanted_seconds]
    sizes = ", ".join(f"{_option(stream.setting)} {stream.wanted_bytes}" for stream in short)
    return f"set {sizes} (on disk it takes about a third), or measure fewer nodes" if short else ""


def _option(setting: str) -> str:
    """Return how a setting of the server is written on a command line.

    >>> _option("telemetry_max_bytes")
    '--nats-telemetry-max-bytes'
    """
    return f"--nats-{setting.replace('_', '-')}"


async def _read(settings: Settings, seconds: float) -> list[Retention]:
    async with asyncio.timeout(seconds), connection.probe(settings, "spazio-doctor") as client:
        return await retention.read(client, settings, seconds)


def _sentence(stream: Retention) -> str:
    rate = f"{stream.bytes_per_second / 1e6:.2f} MB/s"
    held = f"{stream.stream} holds {duration(stream.seconds)} at the present {rate}"
    short = stream.seconds < stream.wanted_seconds
    return f"{held}, not {duration(stream.wanted_seconds)}" if short else held


def duration(seconds: float) -> str:
    """Return a duration in words, in the largest unit of which it has at least two."""
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
