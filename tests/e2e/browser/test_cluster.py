"""The cluster's page in a real Chromium: what is stranded and why, groups, and nodes that are learning."""

import re
import time

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser, expect

from schemas import codec
from schemas.settings import Settings
from schemas.subject import Names, token
from tests.conftest import NatsServer
from tests.support.dashboard.browsing import CHROMIUM, opened
from tests.support.dashboard.pages import cache, rows, served, visited
from tests.support.extender import placement

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]


async def test_stranded_cores_and_bytes_are_shown_with_what_has_run_out(
    browser: Browser, client: Client, settings: Settings
) -> None:
    # 0 has no CPU left, 40 no memory; each has half of 8 cores and 40 % of 32 GiB free.
    async with visited(browser, client, settings, rows(50), "cluster") as watched:
        for title, amount, reason in (
            ("Stranded CPU", "4.0 cores", "no memory on 1 node"),
            ("Stranded memory", "12.8 GiB", "no CPU on 1 node"),
        ):
            card = watched.page.locator(".card", has_text=title)
            await expect(card.locator("strong")).to_have_text(amount)
            await expect(card.locator("small")).to_have_text(reason)
        assert watched.complaints == []


async def test_nodes_are_grouped_by_their_labels_and_their_largest_class(
    browser: Browser, client: Client, settings: Settings
) -> None:
    given = rows(3)
    classes = given[0].classes or {}
    web, report = classes["shop/web"], classes["batch/report"]
    running = [(2, 9), (5, 1), (0, 0)]  # pods of web, and of report
    given = [
        row.model_copy(
            update={
                "classes": {
                    "shop/web": web.model_copy(update={"pods": of_web}),
                    "batch/report": report.model_copy(update={"pods": of_report}),
                }
            }
        )
        for row, (of_web, of_report) in zip(given, running, strict=True)
    ]
    await cache(client, given)
    for row, pool in zip(given, ("b", "a", "b"), strict=True):
        facts = placement.node(row.node, at_us=round(time.time() * 1e6), labels={"pool": pool, "same": "x"})
        await client.publish(f"$KV.{Names().nodes_bucket}.{token(row.node)}", codec.encode(facts))
    async with served(client, settings) as address:
        watched = await opened(browser, address, "cluster")
        page, group = watched.page, watched.page.get_by_label("Group by")
        await expect(group.locator("option")).to_contain_text(["no groups", "largest class", "label pool"])
        await expect(group.locator("option", has_text="label same")).to_have_count(0)
        for choice, order in (("label pool", (1, 0, 2)), ("largest class", (0, 2, 1))):
            await group.select_option(label=choice)
            await group.blur()
            for _ in range(3):
                await page.keyboard.press("k")
            for at in order:
                await expect(page).to_have_url(re.compile(f"node={given[at].node}"))
                await page.keyboard.press("j")
        listed = page.get_by_role("region", name="Nodes", exact=True).locator("tbody tr")
        for word, shown in (("class:shop/web", [0, 1]), ("class:none", [])):
            await page.get_by_label("Filter nodes").fill(word)
            await expect(listed).to_have_count(len(shown))
            await expect(listed.locator("a")).to_have_text([given[each].node for each in shown])
        assert watched.complaints == []


async def test_a_node_most_of_whose_cost_is_assumed_is_learning(
    browser: Browser, client: Client, settings: Settings
) -> None:
    given = [row.model_copy(update={"prior": prior}) for row, prior in zip(rows(3), (0.2, 0.5, 1.0), strict=True)]
    given[0] = given[0].model_copy(update={"classes": {"-": (given[0].classes or {})["shop/web"]}})
    async with visited(browser, client, settings, given, "cluster") as watched:
        page = watched.page
        await expect(page.locator(".card small").first).to_have_text("all report, 2 learning")
        await expect(page.get_by_role("region", name="Workload classes")).to_contain_text("unknown class")
        await page.get_by_label("Filter nodes").fill("learning:yes")
        listed = page.locator("main table").last.locator("tbody tr")
        await expect(listed).to_have_count(2)
        await expect(listed.first.locator("td").nth(8)).to_have_text("50 %")


async def test_a_list_of_classes_that_is_cut_says_so(browser: Browser, client: Client, settings: Settings) -> None:
    given = rows(15)
    room = (given[0].classes or {})["shop/web"]
    for number, row in enumerate(given):
        given[number] = row.model_copy(update={"classes": {f"shop/{number}-{each}": room for each in range(8)}})
    async with visited(browser, client, settings, given, "cluster") as watched:
        page = watched.page
        await expect(page.get_by_text("The first 30 of 120 classes.")).to_be_visible()
        await expect(page.get_by_role("region", name="Workload classes").locator("tbody tr")).to_have_count(30)


async def test_pods_to_be_added_go_to_no_node_that_takes_none(
    browser: Browser, client: Client, settings: Settings
) -> None:
    given = [row.model_copy(update={"lower": lower}) for row, lower in zip(rows(3), (9.0, 8.0, 2.0), strict=True)]
    await cache(client, given)
    for row, changed in zip(given, ({"unschedulable": True}, {"ready": False}, {}), strict=True):
        facts = placement.node(row.node, at_us=round(time.time() * 1e6), labels={"Env": "Test"}, **changed)
        await client.publish(f"$KV.{Names().nodes_bucket}.{token(row.node)}", codec.encode(facts))
    async with served(client, settings) as address:
        watched = await opened(browser, address, "cluster")
        page, listed = watched.page, watched.page.locator("main table").last.locator("tbody tr")
        await page.get_by_label("Filter nodes").fill("Env=test")
        await expect(listed).to_have_count(3)
        for row, state in zip(given, ("unschedulable", "not ready", ""), strict=True):
            cell = listed.filter(has_text=row.node).locator("td").first
            await expect(cell).to_have_text(f"{row.node} {state}".strip())
        await page.get_by_label("Number of pods to add").fill("5")
        await expect(page.locator(".answer")).to_contain_text("2 of 5 pods of the mix fit, on 1 node; 3 do not fit")
        assert watched.complaints == []


async def test_totals_are_not_shown_as_current_once_every_node_is_stale(
    browser: Browser, client: Client, settings: Settings, nats_server: NatsServer
) -> None:
    given = [row.model_copy(update={"at_us": row.at_us - 8_000_000}) for row in rows(3)]
    async with visited(browser, client, settings, given, "cluster") as watched:
        page = watched.page
        room = page.locator(".card", has_text="More pods fit").locator("strong")
        await expect(room).to_have_text("3")
        nats_server.kill()
        await expect(room).to_have_text("–", timeout=20_000)
        await expect(page.locator(".card small").first).to_have_text("3 stale")
        await expect(page.get_by_text("what fits is not known")).to_be_visible()


async def test_choices_of_an_address_that_are_gone_are_shown_as_what_they_are(
    browser: Browser, client: Client, settings: Settings
) -> None:
    path = "cluster?class=nosuch&add=5&group=label%3Apool&show=constructor"
    async with visited(browser, client, settings, rows(3), path) as watched:
        page = watched.page
        await expect(page.get_by_label("Class of the pods").locator("option:checked")).to_have_text("nosuch, not known")
        await expect(page.locator(".answer")).to_contain_text("0 of 5 pods of nosuch fit")
        await expect(page.get_by_label("Group by").locator("option:checked")).to_have_text("label pool")
        await expect(page.get_by_label("Show").locator("option:checked")).to_have_text("pods that fit, at least")
        await page.get_by_label("Class of the pods").select_option(label="shop/web")
        await expect(page.locator(".answer")).to_contain_text("of shop/web fit")
        await expect(page.get_by_label("Class of the pods").locator("option", has_text="nosuch")).to_have_count(0)
        assert watched.complaints == []
