"""A client of the services' pages."""

from collections.abc import AsyncIterator

import aiohttp
import pytest


@pytest.fixture
async def web() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session
