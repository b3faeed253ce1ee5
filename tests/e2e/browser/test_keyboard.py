"""The dashboard's pages by keyboard in a real Chromium."""

import re

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser, expect

from schemas.settings import Settings
from tests.support.dashboard.browsing import CHROMIUM, opened
from tests.support.dashboard.pages import cache, rows, served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]


async def test_the_first_link_leads_to_the_content_of_the_page(
    browser: Browser, client: Client, settings: Settings
) -> None:
    await cache(client, rows(3))
    async with served(client, settings) as address:
        watched = await opened(browser, address, "cluster?sort=node")
        await expect(watched.page.locator(".card").first).to_be_visible()
        await watched.page.keyboard.press("Tab")
        await expect(watched.page.get_by_role("link", name="Skip to content")).to_be_focused()
        await watched.page.keyboard.press("Enter")
        await expect(watched.page.locator("#main")).to_be_focused()
        await expect(watched.page).to_have_url(f"{address}/#/cluster?sort=node")
        await expect(watched.page.locator(".card").first).to_be_visible()
        assert watched.complaints == []


async def test_enter_does_what_the_focused_link_or_button_says_while_a_node_is_selected(
    browser: Browser, client: Client, settings: Settings
) -> None:
    given = rows(3)
    await cache(client, given)
    async with served(client, settings) as address:
        page = (await opened(browser, address, "cluster")).page
        await expect(page.locator(".card").first).to_be_visible()
        await page.keyboard.press("j")
        await expect(page).to_have_url(re.compile(f"node={given[0].node}"))
        await page.get_by_role("button", name="Theme").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
        await expect(page).to_have_url(re.compile(f"node={given[0].node}"))
        await page.get_by_role("link", name="SQL").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator("main h1")).to_have_text("SQL")
