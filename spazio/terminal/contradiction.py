"""What `spazio doctor` says of the nodes' own words: names that two hosts share, and claims that others contradict."""

import asyncio

from bus import errors
from schemas.messages.estimate import Availability
from schemas.settings import Settings
from spazio.service.host import Finding, unchecked, unconnected
from spazio.terminal import latest

_NAME = "nodes"
_MOST = 10  # names in one line


def check(settings: Settings, seconds: float) -> Finding:
    """Look through the newest availability of each node, for so many seconds at most."""
    cost = "one host's numbers hide the other's, and what is contradicted counts little in the cluster's means"
    try:
        rows = asyncio.run(_rows(settings, seconds))
    except (latest.Unreachable, errors.BusError, TimeoutError, OSError) as error:
        unknown = "unknown whether nodes contradict each other"
        if isinstance(error, latest.Unacceptable):
            return unconnected(_NAME, unknown)
        if isinstance(error, latest.Unreachable):
            return unchecked(_NAME, unknown, "there is no pipeline", "see pipeline")
        return unchecked(_NAME, unknown)
    shared = [row.node for row in rows if row.blocks is not None and row.blocks.shared]
    outvoted = [f"{row.node} ({', '.join(row.outvoted)})" for row in rows if row.outvoted]
    contradictions = [
        f"{text}: {_listed(names)}"
        for text, names in (("two hosts share the name", shared), ("contradicted by others", outvoted))
        if names
    ]
    if not contradictions:
        return Finding(_NAME, True, f"none of {len(rows)} contradicts its facts or the others")
    remedy = "give each host a name of its own (--sample-node), and look at what the named nodes send"
    return Finding(_NAME, False, "; ".join(contradictions), cost, remedy)


async def _rows(settings: Settings, seconds: float) -> list[Availability]:
    async with asyncio.timeout(seconds), latest.follow(settings) as nodes:
        return await nodes.read_all(seconds)


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST
    return ", ".join(names[:_MOST]) + (f" and {more} more" if more > 0 else "")
