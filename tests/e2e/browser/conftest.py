"""A real Chromium."""

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser, async_playwright, expect

from tests.support.dashboard.browsing import CHROMIUM

# A page of a browser that has just started takes seconds to run its scripts where other tests take the CPUs.
expect.set_options(timeout=20_000)


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        await running.close()
