"""The numbers of every page are those of the bus and of SQL at the same instant."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser, Locator, Page, Route, expect

from schemas import codec
from schemas.messages.base import Message
from schemas.messages.estimate import Availability, ClassSum, Model
from schemas.messages.placement import Decision
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import view
from tests.support.dashboard.browsing import CHROMIUM, opened
from tests.support.dashboard.pages import cache, rows, served
from tests.support.history import record
from tests.support.processors import predicted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]
NAMES = Names()
PODS = 3


def messages() -> list[tuple[str, Message]]:
    """Return what a cluster of 30 nodes says at one instant, each message with its subject."""
    now_us = round(time.time() * 1e6)
    reports: list[tuple[str, Message]] = [(NAMES.node("availability", row.node), row) for row in rows(30)]
    sums = {
        name: ClassSum(pods=pods, cpu=pods * 0.125, memory=pods * 2**28, running=pods + 0.5)
        for name, pods in (("shop/web", 40.0), ("batch/report", 8.0))
    }
    model = Model(scope="global", at_us=now_us, features=["cpu"], moment=[4], nodes=30, pods=48, cost=[6], classes=sums)
    reports.append((NAMES.model, model))
    for number in range(4):
        node = f"node-{number:05d}"
        reports.append((NAMES.node("prediction", node), predicted.prediction(node=node, at_us=now_us)))
        reports.append((NAMES.node("reject", node), predicted.reject(node=node, at_us=now_us, reject=number == 1)))
    for number in range(PODS):
        decision = Decision(
            namespace="shop",
            name=f"web-{number}",
            pod=f"uid-{number}",
            at_us=now_us + number,
            outcome="placed",
            node=f"node-{number:05d}",
            mode="argmax",
            guaranteed=True,
            workload="shop/web",
            strategies={"room": 1.0},
            nodes=30,
            feasible=20 + number,
            refused={"no room": 10 - number},
            ranked=[],
            refusals=[],
            seconds=0.001,
        )
        reports.append((NAMES.of("decision", "shop", decision.name), decision))
    return reports


class Asked:
    """SQL over the history."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, statement: str) -> list[tuple[Any, ...]]:
        with view.connect(self._folder) as connection:
            return connection.execute(statement).fetchall()


def whole(number: float) -> str:
    return f"{int(number):,}".replace(",", " ")


def percent(ratio: float) -> str:
    return f"{100 * ratio:.{1 if ratio < 0.0995 else 0}f} %"


def table(page: Page, caption: str) -> Locator:
    return page.get_by_role("region", name=caption, exact=True).locator("tbody tr")


async def shown(rows: Locator, *columns: int) -> list[tuple[str, ...]]:
    """Return some columns of all rows of a table, in order of the rows."""
    await expect(rows.first).to_be_visible()
    cells = [await row.locator("td").all_inner_texts() for row in await rows.all()]
    return [tuple(row[column] for column in columns) for row in cells]


async def test_the_cluster_and_its_nodes(browser: Browser, client: Client, settings: Settings) -> None:
    reports = messages()
    record(settings.history_dir, reports)
    await cache(client, [message for _, message in reports if isinstance(message, Availability)])
    ask = Asked(settings.history_dir)
    async with served(client, settings) as address:
        page = (await opened(browser, address, "cluster?sort=node")).page
        ((nodes, lower),) = ask("SELECT count(*), sum(floor(lower)) FROM node_now")
        await expect(page.locator(".card strong").nth(0)).to_have_text(whole(nodes))
        await expect(page.locator(".card strong").nth(1)).to_have_text(whole(lower))
        of_nodes = ask(
            "SELECT node, lower, available, cpu_used, cpu_saturation, usage_memory FROM node_now ORDER BY node"
        )
        assert await shown(page.locator("main table").last.locator("tbody tr"), 0, 1, 2, 5, 6, 7) == [
            (node, whole(least), f"{available:.1f}", *map(percent, shares))
            for node, least, available, *shares in of_nodes
        ]
        assert any(used != saturation for *_, used, saturation, _ in of_nodes)
        await page.goto(f"{address}/#/model")
        explained = ask("SELECT node FROM availability ORDER BY explained, node LIMIT 20")
        assert await shown(table(page, "Explained share by node"), 0) == explained
        rejects = ask("SELECT node, CASE WHEN reject THEN 'no' ELSE 'yes' END FROM rejects ORDER BY reject DESC, node")
        assert await shown(table(page, "Reject signal by node"), 0, 1) == rejects


async def test_what_was_learned_decided_and_predicted(browser: Browser, client: Client, settings: Settings) -> None:
    reports = messages()
    record(settings.history_dir, reports)
    (model,) = [message for subject, message in reports if subject == NAMES.model]
    await client.jetstream().publish(NAMES.model, codec.encode(model))
    ask = Asked(settings.history_dir)
    async with served(client, settings) as address:
        page = (await opened(browser, address, "model")).page
        classes = ask(
            "SELECT sum.class, running[sum.class], sum.cpu / sum.pods, sum.memory / sum.pods / 1048576 "
            "FROM (SELECT running, unnest(classes) AS sum FROM models WHERE scope = 'global') ORDER BY 2 DESC"
        )
        assert await shown(table(page, "What was learned of each class"), 0, 1, 2, 3) == [
            (name, f"{running:.1f}", f"{cpu:.3f}", f"{memory:.0f} MiB") for name, running, cpu, memory in classes
        ]
        await page.goto(f"{address}/#/placement")
        decided = ask("SELECT namespace, name, node, feasible, nodes FROM decisions ORDER BY at_us DESC")
        assert await shown(table(page, "Decisions"), 1, 4, 5) == [
            (f"{namespace}/{name}", node, f"{feasible} of {nodes}")
            for namespace, name, node, feasible, nodes in decided
        ]
        await page.goto(f"{address}/#/predictions")
        ((model_name, nodes, settled, violations),) = ask(
            "SELECT model, nodes, settled, violations FROM prediction_accuracy WHERE settled > 0"
        )
        assert await shown(table(page, "Accuracy by model"), 1, 2, 3, 4) == [
            (model_name, whole(nodes), whole(settled), f"{100 * violations:.0f} %")
        ]
        ((count,),) = ask("SELECT count(DISTINCT node) FROM predictions")
        assert await shown(table(page, "Predictions in force"), 3) == [(whole(count),)]


async def test_the_pipeline_and_sql(browser: Browser, client: Client, settings: Settings) -> None:
    record(settings.history_dir, messages())
    js, ask = client.jetstream(), Asked(settings.history_dir)
    for number in range(3):
        await js.publish(NAMES.dead(f"spazio.samples.n{number}"), b"x" * number, headers={"Spazio-Error": "no JSON"})
    for subject, message in messages()[:7]:
        await js.publish(subject, codec.encode(message))
    async with served(client, settings) as address:
        page = (await opened(browser, address, "pipeline")).page
        listed = await shown(table(page, "Streams"), 0, 1)
        assert listed == [(name, whole((await js.stream_info(name)).state.messages)) for name, _ in listed]
        assert (NAMES.estimates, "7") in listed
        await expect(page.locator(".card", has_text="Dead letters").locator("strong")).to_have_text("3")
        assert await shown(table(page, "Dead letters"), 2, 3) == [("no JSON", f"{size} B") for size in (2, 1, 0)]
        statement = "SELECT binding, count(*) AS nodes, sum(lower) AS room FROM node_now GROUP BY 1 ORDER BY 1"
        await page.goto(f"{address}/#/sql")
        await page.get_by_label("SQL", exact=True).fill(statement)
        await page.get_by_role("button", name="Run").click()
        await expect(page.get_by_role("status").last).to_contain_text("2 rows in")
        assert await shown(table(page, "Answer"), 0, 1, 2) == [
            tuple(json.dumps(value).strip('"').removesuffix(".0") for value in row) for row in ask(statement)
        ]


async def test_an_answer_that_comes_late_does_not_replace_a_newer_one(
    browser: Browser, client: Client, settings: Settings
) -> None:
    record(settings.history_dir, messages())
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
        await expect(status).to_contain_text("1 rows in")
        async with page.expect_response(lambda response: response.request == held[0].request) as late:
            newer_shown.set()
        await (await late.value).finished()
        await page.evaluate("() => new Promise(requestAnimationFrame)")
        assert len(held) == 2
        await expect(status).to_contain_text("1 rows in")
        assert await shown(table(page, "Answer"), 0) == [("7",)]
