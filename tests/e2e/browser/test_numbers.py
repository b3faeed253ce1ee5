"""The numbers of every page are those of the bus and of SQL at the same instant."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser, Locator, Page, expect

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
from tests.support.processors import predicted, telemetry

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
    for workload in ("web", "report"):
        forecast = predicted.forecast(namespace="shop", workload=workload, at_us=now_us)
        reports.append((NAMES.of("forecast", "shop", workload), forecast))
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
            mode="shadow",
            guaranteed=False,
            workload="shop/web",
            strategies={"room": 1.0},
            nodes=30,
            feasible=20 + number,
            refused={"no room": 10 - number},
            ranked=[],
            refusals=[],
            seconds=0.001,
            bound="node-00007" if number else f"node-{number:05d}",
            breaks=["no room"] if number == 1 else [],
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


async def test_a_node(browser: Browser, client: Client, settings: Settings, tmp_path: Path) -> None:
    reports = [(subject, message) for subject, message in messages() if getattr(message, "node", "") == "node-00001"]
    block = telemetry.block("node-00001", 0, cpu_util=0.5).model_copy(update={"at_us": round(time.time() * 1e6)})
    reports.append((NAMES.node("samples", "node-00001"), block))
    record(settings.history_dir, reports)
    ask = Asked(settings.history_dir)
    async with served(client, settings) as address:
        page = (await opened(browser, address, "node/node-00001?range=300")).page
        ((lower, available, upper, used, saturation, pods),) = ask(
            "SELECT lower, available, upper, cpu_used, cpu_saturation, pods FROM node_now"
        )
        facts = page.locator(".facts dd")
        numbers = [whole(lower), f"{available:.1f}", f"{upper:.1f}"]
        for at, text in enumerate([*numbers, "memory", percent(used), percent(saturation), whole(pods)]):
            await expect(facts.nth(at)).to_have_text(text)  # of the history, before any live message
        await expect(page.locator(".note", has_text="Waiting for this node")).to_have_count(0)
        await expect(page.locator("#connection")).to_have_text("live")
        for subject, message in reports:
            await client.publish(subject, codec.encode(message))
        (rejects,) = ask("SELECT CASE WHEN reject THEN 'no, for' ELSE 'yes' END FROM rejects")
        await expect(page.locator(".facts div", has_text="Takes new work").locator("dd")).to_contain_text(rejects[0])
        for at, text in enumerate(numbers):
            await expect(facts.nth(at)).to_have_text(text)
        async with page.expect_download() as download:
            await page.get_by_role("button", name="Save as CSV").click()
        await (await download.value).save_as(tmp_path / "node.csv")
        lines = (tmp_path / "node.csv").read_text().splitlines()
        column = lines[0].split(",").index("cpu_util")
        (mean,) = ask("SELECT avg(cpu_util) FROM samples WHERE cpu_util IS NOT NULL")
        of_page = [float(line.split(",")[column]) for line in lines[1:] if line.split(",")[column]]
        assert of_page
        assert sum(of_page) / len(of_page) == pytest.approx(mean[0])


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
        judged = ask("SELECT namespace, pods, agreed, without_room, broken FROM ledger")
        assert await shown(table(page, "Shadow mode by week"), 1, 2, 3, 4, 5) == [
            (namespace, *map(whole, counts)) for namespace, *counts in judged
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
        forecasts = ask("SELECT workload, pods, current_cpu, forecast_cpu, desired FROM forecasts ORDER BY workload")
        assert sorted(await shown(table(page, "Forecasts"), 0, 1, 2, 4, 8)) == [
            (f"shop/{workload}", whole(pods), f"{current:.2f}", f"{then:.2f}", whole(desired))
            for workload, pods, current, then, desired in forecasts
        ]
        ((exceeded, beyond, unused, workloads),) = ask(
            "SELECT avg(violations), avg(severity), avg(overprovision), count(*) FROM forecast_accuracy"
        )
        assert await shown(table(page, "Accuracy of forecasts"), 0, 1, 3, 4, 5) == [
            ("linear (chosen)", whole(workloads), percent(exceeded), percent(beyond), percent(unused))
        ]


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
        await expect(page.get_by_text("No processor holds a part before its first message")).to_be_visible()
        await expect(page.locator(".card", has_text="Dead letters").locator("strong")).to_have_text("3")
        assert await shown(table(page, "Dead letters"), 2, 3) == [("no JSON", f"{size} B") for size in (2, 1, 0)]
        statement = "SELECT binding, count(*) AS nodes, sum(lower) AS room FROM node_now GROUP BY 1 ORDER BY 1"
        await page.goto(f"{address}/#/sql")
        editor = page.get_by_label("SQL", exact=True)
        await expect(editor).not_to_have_value("")  # the first question, which would be put before what is filled in
        await editor.fill(statement)
        await page.get_by_role("button", name="Run").click()
        await expect(page.get_by_role("status").last).to_contain_text("2 rows in")
        assert await shown(table(page, "Answer"), 0, 1, 2) == [
            tuple(json.dumps(value).strip('"').removesuffix(".0") for value in row) for row in ask(statement)
        ]
