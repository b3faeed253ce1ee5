"""The SQL page in a real Chromium: questions that come with it, one's own, tables, and CSV."""

import asyncio
import csv
import json
from pathlib import Path

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser, Locator, Page, Route, async_playwright, expect

from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import view
from tests.support.dashboard.browsing import CHROMIUM, Watched, opened
from tests.support.dashboard.pages import rows, served
from tests.support.history import record

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]
NAMES = Names()
EVIL = "<b>mine</b>"
WITHOUT_DATA_OF_SITES = {"profile": {"default_content_setting_values": {"cookies": 2}}}


def answer(page: Page) -> Locator:
    return page.get_by_role("region", name="Answer", exact=True).locator("tbody tr")


def parsed(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return [*csv.reader(file)]


async def test_a_question_of_the_documentation_is_answered_when_it_is_chosen(
    browser: Browser, client: Client, settings: Settings
) -> None:
    record(settings.history_dir, [(NAMES.node("availability", row.node), row) for row in rows(30)])
    async with served(client, settings) as address:
        watched = await opened(browser, address, "sql")
        page = watched.page
        await expect(answer(page)).to_have_count(30)
        await expect(page.get_by_label("Questions").locator("optgroup")).to_have_count(5)
        await page.get_by_label("Questions").select_option(label="What runs out first, on how many nodes?")
        await expect(answer(page).locator("td:first-child")).to_have_text(["memory", "cpu"])
        await expect(answer(page).locator("td:nth-child(2)")).to_have_text(["20", "10"])
        assert watched.complaints == []


async def test_a_chart_is_over_time_and_not_over_names_that_look_like_a_date(
    browser: Browser, client: Client, settings: Settings
) -> None:
    record(settings.history_dir, [(NAMES.node("availability", row.node), row) for row in rows(3)])
    async with served(client, settings) as address:
        page = (await opened(browser, address, "sql")).page
        text = page.get_by_label("SQL", exact=True)
        await page.get_by_label("Show as").select_option(label="as a chart")
        await text.fill("SELECT node, lower FROM availability")
        await text.press("Control+Enter")
        await expect(page.get_by_text("Nothing to draw")).to_be_visible()
        await text.fill("SELECT node, time, lower FROM availability")
        await text.press("Control+Enter")
        await expect(page.locator("figure canvas").first).to_be_visible()


async def test_questions_of_one_s_own_stay_in_the_browser_until_they_are_deleted(
    browser: Browser, client: Client, settings: Settings
) -> None:
    view.create(settings.history_dir)
    async with served(client, settings) as address:
        watched = await opened(browser, address, "sql")
        page, list_ = watched.page, watched.page.get_by_label("Questions")
        await expect(page.get_by_text("0 rows in")).to_be_visible()
        await page.get_by_label("SQL", exact=True).fill("SELECT 6 * 7 AS answer")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("give the question a name")).to_be_visible()
        await page.get_by_label("Name of the question").fill(EVIL)
        await page.get_by_role("button", name="Save").click()
        await expect(list_.locator("optgroup").first).to_have_attribute("label", "Your own")
        await page.goto(f"{address}/#/pipeline")
        await page.goto(f"{address}/#/sql")
        await list_.select_option(label=EVIL)
        await expect(answer(page).locator("td")).to_have_text(["42"])
        await page.get_by_role("button", name="Delete").click()
        await expect(list_.locator("optgroup").first).to_have_attribute("label", "Recent")
        for garbage in ("{", "3", "[null]", '[{"question": 1}]'):
            await page.evaluate("(text) => localStorage.setItem('spazio-questions', text)", garbage)
            await page.goto(f"{address}/#/pipeline")
            await page.goto(f"{address}/#/sql")
            await expect(list_.locator("optgroup").first).to_have_attribute("label", "Recent")
        assert watched.complaints == []


async def test_a_browser_that_keeps_no_data_of_sites_shows_the_page_and_says_that_no_question_is_saved(
    client: Client, settings: Settings, tmp_path: Path
) -> None:
    view.create(settings.history_dir)
    preferences = tmp_path / "profile" / "Default" / "Preferences"
    preferences.parent.mkdir(parents=True)
    preferences.write_text(json.dumps(WITHOUT_DATA_OF_SITES))
    async with served(client, settings) as address, async_playwright() as playwright:
        browser = await playwright.chromium.launch_persistent_context(
            tmp_path / "profile", executable_path=CHROMIUM, args=["--no-sandbox"]
        )
        page = await browser.new_page()
        watched = Watched(page, address)
        await page.goto(f"{address}/#/sql")
        await expect(page.get_by_role("navigation").get_by_role("link")).to_have_count(6)
        await page.locator("#theme").click()
        await page.get_by_label("SQL", exact=True).fill("SELECT 1")
        await page.get_by_label("Name of the question").fill("mine")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_text("this browser keeps no data of this page")).to_be_visible()
        assert watched.complaints == []
        await browser.close()


async def test_an_answer_is_downloaded_as_csv(
    browser: Browser, client: Client, settings: Settings, tmp_path: Path
) -> None:
    view.create(settings.history_dir)
    statement = (
        """SELECT 'a,b' AS "x,y", 'say "no"' AS quoted, E'two\\nlines' AS lines, """
        "NULL AS none, 0.5 AS half, [1, 2] AS list"
    )
    async with served(client, settings) as address:
        watched = await opened(browser, address, "sql")
        await watched.page.get_by_label("SQL", exact=True).fill(statement)
        await watched.page.get_by_role("button", name="Run").click()
        await expect(answer(watched.page).locator("td").first).to_have_text("a,b")
        async with watched.page.expect_download() as download:
            await watched.page.get_by_role("button", name="Download as CSV").click()
        await (await download.value).save_as(tmp_path / "answer.csv")
        columns, *values = parsed(tmp_path / "answer.csv")
        assert columns == ["x,y", "quoted", "lines", "none", "half", "list"]
        assert values == [["a,b", 'say "no"', "two\nlines", "", "0.5", json.dumps([1, 2], separators=(",", ":"))]]
        assert watched.complaints == []


async def test_the_tables_are_listed_with_their_columns_and_can_be_looked_into(
    browser: Browser, client: Client, settings: Settings
) -> None:
    record(settings.history_dir, [(NAMES.node("availability", row.node), row) for row in rows(3)])
    with view.connect(settings.history_dir) as connection:
        names = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1").fetchall()
    async with served(client, settings) as address:
        watched = await opened(browser, address, "sql")
        await watched.page.get_by_text("Tables and views", exact=True).click()
        listed = watched.page.get_by_role("region", name="Tables and views").locator("tbody tr")
        await expect(listed.locator("td:first-child")).to_have_text([name for (name,) in names])
        await expect(listed.filter(has_text="full_nodes").locator("td").first).to_have_text("cluster_room")
        await watched.page.get_by_role("button", name="node_now", exact=True).click()
        await expect(answer(watched.page)).to_have_count(3)
        assert watched.complaints == []


async def test_no_digit_of_a_number_is_lost_without_a_word(
    browser: Browser, client: Client, settings: Settings, tmp_path: Path
) -> None:
    view.create(settings.history_dir)
    statement = (
        "SELECT 1796010399.156 AS epoch, 123456789.5::DOUBLE AS bytes, 0.123456789::DOUBLE AS share, "
        "-1234567.891::DOUBLE AS change, 42.0::DOUBLE AS whole, 9007199254740993 AS id, "
        "1180591620717411303424::HUGEINT AS sum, [9007199254740993] AS ids"
    )
    shown = [
        "1796010399.16",
        "123456789.5",
        "0.123457",
        "-1234567.89",
        "42",
        "9007199254740993",
        "1180591620717411303424",
    ]
    async with served(client, settings) as address:
        watched = await opened(browser, address, "sql")
        await watched.page.get_by_label("SQL", exact=True).fill(statement)
        await watched.page.get_by_role("button", name="Run").click()
        cells = answer(watched.page).locator("td")
        await expect(cells.nth(5)).to_have_text(shown[5])
        assert (await cells.all_inner_texts())[:7] == shown
        titles = {0: "1796010399.156", 2: "0.123456789", 3: "-1234567.891"}
        for at in range(7):
            title = cells.nth(at).locator("[title]")
            assert await title.count() == (at in titles)
            if at in titles:
                await expect(title).to_have_attribute("title", titles[at])
        await expect(cells.nth(7)).to_have_text('["9007199254740993"]')
        async with watched.page.expect_download() as download:
            await watched.page.get_by_role("button", name="Download as CSV").click()
        await (await download.value).save_as(tmp_path / "answer.csv")
        assert parsed(tmp_path / "answer.csv")[1][5:7] == shown[5:]
        assert watched.complaints == []


async def test_an_answer_that_comes_late_does_not_replace_a_newer_one(
    browser: Browser, client: Client, settings: Settings
) -> None:
    record(settings.history_dir, [(NAMES.node("availability", row.node), row) for row in rows(3)])
    newer_shown = asyncio.Event()
    held: list[Route] = []

    async def first_is_late(route: Route) -> None:
        held.append(route)
        if route is held[0]:
            await newer_shown.wait()
        await route.continue_()

    async with served(client, settings) as address:
        page = (await opened(browser, address, "pipeline")).page
        await expect(page.get_by_role("heading", level=1)).to_be_visible()
        await page.route("**/api/query", first_is_late)
        await page.goto(f"{address}/#/sql")
        await expect(page.get_by_label("SQL", exact=True)).not_to_have_value("")  # its first question is asked
        await page.get_by_label("SQL", exact=True).fill("SELECT 7 AS seven")
        await page.get_by_role("button", name="Run").click()
        status = page.get_by_role("status").last
        await expect(status).to_contain_text("1 row in")
        async with page.expect_response(lambda response: response.request == held[0].request) as late:
            newer_shown.set()
        await (await late.value).finished()
        await page.evaluate("() => new Promise(requestAnimationFrame)")
        assert len(held) == 2
        await expect(status).to_contain_text("1 row in")
        await expect(answer(page).locator("td")).to_have_text(["7"])
