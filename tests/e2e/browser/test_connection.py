"""What a page in a real Chromium says of its connection, and that it rests while nobody sees it."""

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser, Page, expect
from prometheus_client import REGISTRY

from schemas.settings import Settings
from sinks.history import view
from spazio.service import addresses
from tests.conftest import NatsServer
from tests.support.dashboard.browsing import CHROMIUM, opened
from tests.support.dashboard.pages import cache, rows, served, visited

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]
SECRET = "a-secret-of-enough-letters"  # of a test
OF_SIGHT = """(hidden) => {
  Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def live(page: Page) -> None:
    await expect(page.locator("#connection")).to_have_text("live", timeout=10_000)
    await expect(page.locator("#trouble")).to_be_empty()


async def test_a_page_with_a_token_goes_on_after_a_restart_and_says_that_another_token_is_needed(
    browser: Browser, client: Client, settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(SECRET)
    await cache(client, rows(3))
    page = await browser.new_page()
    async with served(client, settings, token_file=file) as address:
        await page.goto(f"{address}/?token={SECRET}")
        await live(page)
    port = int(address.rpartition(":")[2])
    await expect(page.locator("#connection")).to_contain_text("disconnected for")
    async with served(client, settings, token_file=file, port=port):
        await live(page)
    file.write_text(SECRET[::-1])
    async with served(client, settings, token_file=file, port=port):
        await expect(page.locator("#trouble")).to_contain_text("open /?token=SECRET once", timeout=10_000)
        for path in ("sql", "pipeline", "predictions", "placement", "model"):
            await page.goto(f"{address}/#/{path}")
            await expect(page.locator("#trouble")).to_contain_text("open /?token=SECRET once")
        await expect(page.locator("#connection")).to_have_text("refused")


async def test_a_link_on_another_site_opens_the_page_for_a_browser_with_the_cookie(
    browser: Browser, client: Client, settings: Settings, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(SECRET)
    await cache(client, rows(3))
    async with served(client, settings, token_file=file) as address:
        page = await browser.new_page()
        links = f'<a href="{address}/?token={SECRET}">enter</a> <a href="{address}/#/cluster">look</a>'
        await page.route("http://chat.example/", lambda route: route.fulfill(content_type="text/html", body=links))
        for name in ("enter", "look"):
            await page.goto("http://chat.example/")
            await page.get_by_role("link", name=name).click()
            await live(page)


async def test_a_page_too_many_says_so_until_another_is_closed(
    browser: Browser, client: Client, settings: Settings
) -> None:
    await cache(client, rows(3))
    async with served(client, settings, viewers_max=1) as address:
        first = (await opened(browser, address, "cluster")).page
        await live(first)
        second = (await opened(browser, address, "cluster")).page
        await expect(second.locator("#trouble")).to_contain_text("too many pages are open; close some")
        await first.close()
        await live(second)


async def test_a_page_that_nobody_sees_gets_no_events_and_goes_on_when_it_is_seen(
    browser: Browser, client: Client, settings: Settings
) -> None:
    async def until_viewers(count: int) -> None:
        async with asyncio.timeout(60):
            while True:
                if REGISTRY.get_sample_value("spazio_dashboard_viewers") == count:
                    return
                await asyncio.sleep(0.05)

    async with visited(browser, client, settings, rows(3), "cluster") as watched:
        await live(watched.page)
        await until_viewers(1)
        await watched.page.evaluate(OF_SIGHT, arg=True)
        await until_viewers(0)
        await cache(client, rows(5))
        await watched.page.evaluate(OF_SIGHT, arg=False)
        await live(watched.page)
        await expect(watched.page.locator(".card strong").first).to_have_text("5")
        assert watched.complaints == []


async def test_a_page_says_that_the_bus_is_away_and_does_not_blame_nodes(
    browser: Browser, client: Client, settings: Settings, nats_server: NatsServer
) -> None:
    view.create(settings.history_dir)
    await cache(client, rows(3))
    async with served(client, settings) as address:
        page = (await opened(browser, address, "cluster")).page
        await expect(page.locator(".card strong").first).to_have_text("3")
        nats_server.kill()
        later = [(await opened(browser, address, path)).page for path in ("cluster", "node/n1", "sql")]
        for each in (page, *later):
            await expect(each.locator("#connection")).to_contain_text("no bus for")
            await expect(each.locator("#trouble")).to_contain_text("The bus does not answer")
        blaming = re.compile("No node|this node|Reading the nodes|first answer")
        for each in (page, *later):
            await expect(each.locator("main .note").filter(has_text=blaming)).to_have_count(0)
        nats_server.start()
        for each in (page, *later):
            await expect(each.locator("#connection")).to_have_text("live")
            await expect(each.locator("#trouble")).to_be_empty()
        await expect(later[1].locator(".note", has_text="No node of this name")).to_be_visible()


@pytest.mark.cases
@pytest.mark.parametrize("path", ["sql", "node/n1", "model", "predictions"])
async def test_a_page_says_that_a_server_hangs_until_it_goes_on(
    browser: Browser, nats_server: NatsServer, settings: Settings, path: str
) -> None:
    view.create(settings.history_dir)
    options = {"nats-url": nats_server.url, "data-dir": str(settings.data.dir), "dashboard-port": "0", "http-port": "0"}
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "spazio", "sink", "dashboard", *arguments)
    try:
        note = settings.data.dir / "run" / addresses.DASHBOARD
        async with asyncio.timeout(60):
            while True:
                if note.exists():
                    break
                await asyncio.sleep(0.05)
        page = (await opened(browser, json.loads(note.read_text())["http"].rstrip("/"), path)).page
        await live(page)
        os.kill(process.pid, signal.SIGSTOP)
        if path == "sql":
            await page.get_by_role("button", name="Run").click()
            await expect(page.get_by_text("running…")).to_be_visible()
        await expect(page.locator("#connection")).to_contain_text("disconnected for")
        if path == "sql":
            await expect(page.locator("main .note")).to_contain_text("the server does not answer")
        os.kill(process.pid, signal.SIGCONT)
        await live(page)
    finally:
        process.kill()
        await process.wait()


async def test_a_server_that_goes_away_after_its_headers_is_as_one_that_does_not_answer(
    browser: Browser, client: Client, settings: Settings
) -> None:
    async with served(client, settings) as address:
        page = (await opened(browser, address, "cluster")).page
        await live(page)
        # Events have headers, and no end.
        failed = await page.evaluate("""async () => {
          const { get, Unreachable } = await import("/static/base/stream.js");
          const failure = (error) => [error instanceof Unreachable, error.message];
          return get("/api/cluster", { signal: AbortSignal.timeout(500) }).catch(failure);
        }""")
        assert failed == [True, "the server does not answer"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("node/%", "%"),
        ("node/a%2Eb", "a.b"),
        ("%E0%A4", "There is no such page"),
        ("constructor", "There is no such page"),
    ],
)
async def test_an_address_that_is_not_encoded_well_is_shown_as_it_is(
    browser: Browser, client: Client, settings: Settings, path: str, text: str
) -> None:
    view.create(settings.history_dir)
    async with served(client, settings) as address:
        watched = await opened(browser, address, path)
        await expect(watched.page.locator("main h1, main .note strong").first).to_have_text(text)
        assert watched.complaints == []


@pytest.mark.parametrize("search", ["range=abc", "range=1e20", "from=1796010400", "from=1796010400&to=1796010300"])
async def test_a_range_that_is_none_leaves_the_page_of_a_node_live(
    browser: Browser, client: Client, settings: Settings, search: str
) -> None:
    view.create(settings.history_dir)
    async with served(client, settings) as address:
        watched = await opened(browser, address, f"node/n1?{search}")
        page = watched.page
        await expect(page.get_by_text("No node of this name is known")).to_be_visible()
        await expect(page.get_by_role("group", name="Time range")).to_contain_text("live; drag over a chart")
        await expect(page.get_by_role("button", name="5 min", exact=True)).to_have_attribute("aria-pressed", "true")
        await expect(page.get_by_text("No history")).to_have_count(0)
        assert watched.complaints == []
