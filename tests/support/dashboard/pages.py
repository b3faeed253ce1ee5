"""A dashboard served in a test, beside a bus and a history of its own."""

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from playwright.async_api import Browser

from bus.client import Client
from schemas import codec
from schemas.messages.estimate import Availability
from schemas.settings import Settings
from schemas.subject import Names, token
from sinks.dashboard.web import Dashboard
from spazio.service.composition.dashboard import Folder
from tests.support.dashboard.browsing import Watched, opened
from tests.support.processors import estimate


@asynccontextmanager
async def served(client: Client, settings: Settings, **changed: object) -> AsyncIterator[str]:
    """Serve a dashboard on any free port; yields its address without the last slash."""
    own = settings.dashboard.model_copy(update={"port": 0, **changed})
    settings = settings.model_copy(update={"dashboard": own})
    async with Dashboard(client, settings, Folder(settings.history_dir)).serve() as address:
        yield address.rstrip("/")


def rows(count: int, *, names: Iterable[str] = ()) -> list[Availability]:
    """Return availabilities of so many nodes that were measured now, those with given names first."""
    room = {
        "available": 4.0,
        "lower": 3.0,
        "binding": "memory",
        "pods": 1,
        "cpu": 0.1,
        "memory": 0.2,
        "kind": "serving",
    }
    listed = [*names, *(f"node-{number:05d}" for number in range(count))][:count]
    return [
        estimate.availability(
            node=name,
            at_us=round(time.time() * 1e6),
            available=number % 40 + 0.5,
            lower=float(number % 40),
            upper=number % 40 + 2.0,
            binding="memory" if number % 3 else "cpu",
            usage={"cpu": number % 100 / 100, "memory": 0.5},
            cpu_used=number % 50 / 50,
            free={"cpu": 0.5, "memory": 0.4},
            limits={"cpu": 8.0, "memory": 32.0 * 2**30},
            classes={"shop/web": room, "batch/report": {**room, "binding": "cpu"}},
        )
        for number, name in enumerate(listed)
    ]


async def cache(client: Client, listed: Iterable[Availability]) -> None:
    """Put availabilities into the scheduler cache, as the cache sink does."""
    bucket = Names().availability_bucket
    for row in listed:
        await client.publish(f"$KV.{bucket}.{token(row.node)}", codec.encode(row))
    await client.flush()


@asynccontextmanager
async def visited(
    browser: Browser,
    client: Client,
    settings: Settings,
    listed: Iterable[Availability],
    path: str,
    *,
    width: int = 1280,
) -> AsyncIterator[Watched]:
    """Serve a dashboard of these nodes and open one of its pages in a browser."""
    await cache(client, listed)
    async with served(client, settings) as address:
        yield await opened(browser, address, path, width=width)
