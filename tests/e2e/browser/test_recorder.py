"""The flight recorder in a real Chromium: one file that opens without a server."""

from pathlib import Path

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser, expect

from schemas.settings import Settings
from spazio.export import recording
from tests.support.dashboard import flight
from tests.support.dashboard.browsing import CHROMIUM, Watched, opened
from tests.support.dashboard.pages import served

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]


async def inspect(browser: Browser, path: Path, nodes: int) -> Watched:
    page = await browser.new_page(viewport={"width": 1280, "height": 800})
    watched = Watched(page, path.as_uri())
    await page.goto(path.as_uri())
    listed = page.get_by_role("region", name="Nodes", exact=True)
    await expect(listed.locator("tbody tr")).to_have_count(nodes)
    await expect(listed.locator("tr", has_text="stolen").locator("td")).to_have_text(
        [flight.EVIL, "5", "memory", "75 %", "75 %", "50 %", "2"]
    )
    await listed.get_by_role("button", name="stolen").click()
    await expect(page.locator("main h2").first).to_have_text(flight.EVIL)
    await expect(page.locator("figure canvas")).to_have_count(6)
    colours = await page.evaluate(
        """nodes => {
          const canvas = document.querySelector("canvas.grid");
          const { data } = canvas.getContext("2d").getImageData(canvas.width - 30, 0, 1, nodes);
          return new Set(data.filter((_, at) => at % 4 === 0)).size;
        }""",
        nodes,
    )
    assert colours == nodes
    assert "stolen" not in await page.title()
    return watched


async def test_an_exported_file_shows_all_nodes_without_a_server(browser: Browser, tmp_path: Path) -> None:
    flight.record(tmp_path / "history")
    path = tmp_path / "flight.html"
    assert recording.write(tmp_path / "history", path, (), "2m", None)[1] == 2
    watched = await inspect(browser, path, 2)
    await watched.page.get_by_label("Filter nodes").fill("N1")
    await expect(watched.page.get_by_role("region", name="Nodes", exact=True).locator("tbody tr")).to_have_count(1)
    assert watched.complaints == []


async def test_the_dashboard_saves_what_its_pages_show(
    browser: Browser, client: Client, settings: Settings, tmp_path: Path
) -> None:
    flight.record(settings.history_dir)
    async with served(client, settings) as address:
        for path, button, nodes in (("cluster", "Save the last 15 minutes", 2), ("node/", "Save as a page", 1)):
            name = "%3C%2Fscript%3E%3Cscript%3Edocument.title%3D'stolen'%3C%2Fscript%3E" if path == "node/" else ""
            watched = await opened(browser, address, path + name)
            async with watched.page.expect_download() as coming:
                await watched.page.get_by_role("button", name=button).click()
            saved = tmp_path / f"{nodes}.html"
            await (await coming.value).save_as(saved)
            assert (await inspect(browser, saved, nodes)).complaints == watched.complaints == []


async def test_the_cluster_s_page_says_why_nothing_is_saved(
    browser: Browser, client: Client, settings: Settings
) -> None:
    async with served(client, settings) as address:
        watched = await opened(browser, address, "cluster?add=3")
        page = watched.page
        await page.get_by_role("button", name="Save the last 15 minutes").click()
        note = page.get_by_role("alert")
        await expect(note).to_contain_text("holds no history")
        await page.get_by_label("Number of pods to add").fill("")  # draws the page again
        await expect(page.locator(".answer")).to_be_hidden()
        await expect(note).to_contain_text("holds no history")
        assert watched.complaints == []
