"""The dashboard's pages by keyboard in a real Chromium."""

import asyncio
import re

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser, expect

from schemas import codec
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import view
from tests.support.dashboard.browsing import CHROMIUM, opened
from tests.support.dashboard.pages import cache, rows, served, visited

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]
SCROLLED = "document.querySelector('.scroll[aria-label=Nodes]').scrollLeft"


async def test_the_first_link_leads_to_the_content_of_the_page(
    browser: Browser, client: Client, settings: Settings
) -> None:
    async with visited(browser, client, settings, rows(3), "cluster?sort=node") as watched:
        await expect(watched.page.locator(".card").first).to_be_visible()
        await watched.page.keyboard.press("Tab")
        await expect(watched.page.get_by_role("link", name="Skip to content")).to_be_focused()
        await watched.page.keyboard.press("Enter")
        await expect(watched.page.locator("#main")).to_be_focused()
        await expect(watched.page).to_have_url(re.compile(r"/#/cluster\?sort=node$"))
        await expect(watched.page.locator(".card").first).to_be_visible()
        assert watched.complaints == []


async def test_enter_does_what_the_focused_link_or_button_says_while_a_node_is_selected(
    browser: Browser, client: Client, settings: Settings
) -> None:
    given = rows(3)
    async with visited(browser, client, settings, given, "cluster") as watched:
        page = watched.page
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


async def test_a_link_in_a_live_table_keeps_the_focus_wherever_its_row_goes(
    browser: Browser, client: Client, settings: Settings
) -> None:
    given = rows(5)
    async with visited(browser, client, settings, given, "cluster", width=390) as watched:
        page, region = watched.page, watched.page.get_by_role("region", name="Nodes", exact=True)
        link = page.get_by_role("link", name=given[1].node)
        await link.focus()
        await page.evaluate(f"{SCROLLED} = 150")  # in one step: each event replaces the table
        await cache(client, [given[1].model_copy(update={"lower": 99.0})])
        await expect(region.locator("tbody tr").last).to_contain_text(given[1].node)
        await expect(link).to_be_focused()
        assert await page.evaluate(SCROLLED) == 150
        button = region.get_by_role("button", name="Fit, at least")
        await button.focus()
        await page.keyboard.press("Enter")
        await expect(region.locator("tbody tr").first).to_contain_text(given[1].node)
        await expect(button).to_be_focused()
        assert watched.complaints == []


async def test_a_note_that_stays_is_not_put_there_again(browser: Browser, client: Client, settings: Settings) -> None:
    view.create(settings.history_dir)
    (row,) = rows(1, names=["n1"])
    async with served(client, settings) as address:
        page = (await opened(browser, address, "node/n1")).page
        await expect(page.locator(".note", has_text="No node of this name")).to_be_visible()
        silent = row.model_copy(update={"at_us": row.at_us - 60_000_000})
        await client.publish(Names().node("availability", "n1"), codec.encode(silent))
        note = page.get_by_role("alert").filter(has_text="This node is silent")
        await note.evaluate("note => { note.id = 'first'; }")
        age = await page.locator(".facts dd").last.inner_text()
        await expect(page.locator(".facts dd").last).not_to_have_text(age)
        await asyncio.sleep(0.6)  # the page is drawn twice a second
        await expect(note).to_have_id("first")
