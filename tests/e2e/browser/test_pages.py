"""The pages of the dashboard in a real Chromium, beside a real nats-server."""

import asyncio
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from nats.aio.client import Client
from playwright.async_api import Browser, expect

from schemas import codec
from schemas.settings import Settings
from schemas.subject import Names
from sinks import cluster
from sinks.history import view
from tests.support.dashboard.browsing import CHROMIUM, opened
from tests.support.dashboard.pages import cache, rows, served, visited
from tests.support.processors import telemetry

ADDING = "cluster?group=binding&add=30&class=shop%2Fweb"
PAGES = {
    "light": (ADDING, "node/n1", "model", "placement", "placement/shop/web", "predictions", "pipeline", "sql"),
    "dark": (ADDING, "node/n1", "model", "pipeline"),
}
AXIS = """async (value) => {
  const { Chart } = await import("/static/chart/chart.js");
  const element = document.body.appendChild(document.createElement("div"));
  const chart = new Chart(element, { title: "", series: [{}], format: String });
  chart.set([[1, 2], [value, value]], [1, 2]);
  await new Promise(requestAnimationFrame);
  return chart.plot.scales.y.max;
}"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]


async def test_thousands_of_nodes_are_shown_with_the_same_numbers_as_elsewhere(
    browser: Browser, client: Client, settings: Settings
) -> None:
    given = rows(5000, names=["<script>document.title='stolen'</script>"])
    async with visited(browser, client, settings, given, "cluster?sort=node") as watched:
        page = watched.page
        cards = page.locator(".card strong")
        await expect(cards.nth(0)).to_have_text("5 000")
        await expect(cards.nth(1)).to_have_text(f"{sum(int(row.lower) for row in given):,}".replace(",", " "))
        first, second = cluster.totals(given)[:2]
        for total in (first, second):
            shown = page.locator("tr", has_text=total.workload)
            await expect(shown.locator("td").nth(3)).to_have_text(f"{int(total.available):,}".replace(",", " "))
        await expect(page.get_by_role("link", name="<script>document.title='stolen'</script>")).to_be_visible()
        assert "stolen" not in await page.title()

        await page.keyboard.press("/")
        await page.keyboard.type("node-00123")
        await expect(page.locator("main table").last.locator("tbody tr")).to_have_count(1)
        cell = page.locator("main table").last.locator("tbody td")
        (row,) = [each for each in given if each.node == "node-00123"]
        await expect(cell.nth(1)).to_have_text(str(int(row.lower)))
        await expect(cell.nth(2)).to_have_text(f"{row.available:.1f}")
        assert "q=node-00123" in page.url
        await cache(client, [row.model_copy(update={"available": 77.5, "lower": 71.0})])
        await expect(cell.nth(1)).to_have_text("71")
        await page.keyboard.press("Escape")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await expect(page.locator("h1")).to_have_text("node-00123")
        assert watched.complaints == []


async def test_a_node_that_has_expired_leaves_the_page(browser: Browser, client: Client, settings: Settings) -> None:
    given = rows(3)
    async with visited(browser, client, settings, given, "cluster") as watched:
        listed = watched.page.locator("main table").last.locator("tbody tr")
        await expect(listed).to_have_count(3)
        await cache(client, [given[1].model_copy(update={"at_us": 1})])
        await expect(listed).to_have_count(2, timeout=10_000)
        await expect(watched.page.locator(".card strong").first).to_have_text("2")


async def test_pods_to_be_added_go_where_the_lower_bounds_leave_room(
    browser: Browser, client: Client, settings: Settings
) -> None:
    async with visited(browser, client, settings, rows(10), "cluster?class=shop%2Fweb&add=31") as watched:
        answer = watched.page.locator(".answer")
        await expect(answer).to_contain_text("30 of 31 pods of shop/web fit, on 10 nodes; 1 do not fit")
        await watched.page.get_by_label("Number of pods to add").fill("30")
        await expect(answer).to_contain_text("30 pods of shop/web fit, on 10 nodes")


async def test_a_node_is_shown_live(browser: Browser, client: Client, settings: Settings) -> None:
    view.create(settings.history_dir)
    names, block = Names(), telemetry.block("n1", 0)
    async with served(client, settings) as address:
        watched = await opened(browser, address, "node/n1?range=60")
        unknown, charts = watched.page.locator(".note", has_text="No node of this name"), watched.page.locator(".plots")
        await expect(unknown).to_be_visible()
        await expect(charts).to_be_hidden()
        (row,) = rows(1, names=["n1"])
        await client.publish(names.node("samples", "n1"), codec.encode(block))
        await client.publish(names.node("availability", "n1"), codec.encode(row.model_copy(update={"lower": 17.0})))
        await expect(watched.page.locator(".facts dd").first).to_have_text("17")
        await expect(watched.page.locator(".note", has_text="Waiting for this node").or_(unknown)).to_have_count(0)
        await expect(charts).to_be_visible()
        assert await watched.page.locator("figure canvas").count() == 11
        figure = watched.page.locator("figure", has=watched.page.locator(".u-title", has_text="Pods that fit"))
        newest = figure.locator(".u-series", has_text="at least").locator(".u-value")
        await expect(newest).to_have_text("17.0")  # without a pointer over the chart
        assert [await watched.page.evaluate(AXIS, value) for value in (None, 0, 0.5)] == [1, 1, 0.54]
        await watched.page.goto(f"{address}/#/cluster")
        await expect(watched.page.locator("code", has_text="spazio doctor")).to_be_visible()  # no node reports yet
        assert watched.complaints == []


async def test_an_open_page_says_that_the_server_is_gone_and_goes_on_when_it_is_back(
    browser: Browser, client: Client, settings: Settings
) -> None:
    await cache(client, rows(10))
    async with served(client, settings) as address:
        watched = await opened(browser, address, "cluster")
        await expect(watched.page.locator("#connection")).to_have_text("live")
    await expect(watched.page.locator("#connection")).to_contain_text("disconnected for")
    await cache(client, rows(12))
    async with served(client, settings, port=int(address.rpartition(":")[2])):
        await expect(watched.page.locator("#connection")).to_have_text("live", timeout=10_000)
        await expect(watched.page.locator(".card strong").first).to_have_text("12")


@pytest.mark.parametrize("scheme", PAGES)
async def test_every_page_can_be_used_by_everybody_and_on_a_narrow_screen(
    browser: Browser, client: Client, settings: Settings, scheme: str, tmp_path: Path
) -> None:
    view.create(settings.history_dir)
    await cache(client, rows(50, names=["n1"]))
    async with served(client, settings) as address:
        for path in PAGES[scheme]:
            watched = await opened(browser, address, path, width=390, scheme=scheme)
            await expect(watched.page.locator("main h1").first).to_be_attached()
            await asyncio.sleep(1)
            overflow = await watched.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            await watched.page.set_viewport_size({"width": 1280, "height": 800})
            results = await Axe().run(watched.page)
            serious = [
                (violation["id"], [node["html"][:120] for node in violation["nodes"]])
                for violation in results.response["violations"]
                if violation["impact"] in ("serious", "critical")
            ]
            assert (overflow, serious, watched.complaints) == (0, [], []), path
            await watched.page.locator("#help").click()
            await expect(watched.page.locator("#keys dt").first).to_have_text("/")
            assert "[object" not in await watched.page.locator("body").inner_text(), path
            await watched.page.close()
