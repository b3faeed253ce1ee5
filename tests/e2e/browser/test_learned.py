"""What was learned, in a real Chromium: the page Model, and what a node predicts and rejects."""

import asyncio
import time

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser, Locator, Page, expect

from schemas import codec
from schemas.messages.base import Message
from schemas.messages.estimate import ClassSum, Model
from schemas.messages.prediction import Resources
from schemas.settings import Settings
from schemas.subject import Names
from tests.support.dashboard.browsing import CHROMIUM, opened
from tests.support.dashboard.pages import rows, served
from tests.support.history import record
from tests.support.processors import predicted, telemetry

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]
NAMES = Names()
EVIL = "<b>shop</b>/web"


def learned(at_us: int) -> Model:
    """Return a model whose features, each scaled to a mean square of 1, have the products [[1, .2], [.2, 1]]."""
    web = ClassSum(pods=20, cpu=10, memory=40 * 2**30, soaking=5, running=24, started=7, votes=3, nodes=2)
    return Model(
        scope="global",
        at_us=at_us,
        features=["cpu", "memory", "disk"],
        moment=[4, 1.2e10, 0, 9e20, 0, 0],
        nodes=3,
        pods=20,
        cost=[10, 4e10, 0],
        classes={EVIL: web},
        voting=4,
    )


def row(page: Page, caption: str, text: str) -> Locator:
    return page.get_by_role("region", name=caption, exact=True).locator("tr", has_text=text).locator("td")


async def test_the_model_of_the_bus_is_shown_by_component_and_class_with_rejects_of_the_history(
    browser: Browser, client: Client, settings: Settings
) -> None:
    now_us = round(time.time() * 1e6)
    (availability,) = rows(1, names=["n1"])
    history: dict[str, Message] = {
        NAMES.model: learned(now_us),
        NAMES.node("availability", "n1"): availability.model_copy(update={"explained": 0.42, "gap": 0.3}),
        NAMES.node("reject", "n1"): predicted.reject(at_us=now_us, reject=True, score=0.75, since_us=now_us),
        NAMES.node("reject", "n2"): predicted.reject(node="n2", at_us=now_us, reject=False, score=0.1),
    }
    record(settings.history_dir, history.items())
    async with served(client, settings) as address:
        watched = await opened(browser, address, "model")
        page = watched.page
        await expect(page.locator(".note", has_text="Nothing is learned yet")).to_be_visible()
        await client.publish(NAMES.model, codec.encode(learned(now_us)))
        await expect(row(page, "Components", "explains")).to_have_text(["explains", "60 %", "40 %"])
        await expect(row(page, "Components", "memory")).to_have_text(["memory", "0.71", "-0.71"])
        await expect(row(page, "Components", "disk")).to_have_count(0)
        shown = [EVIL, "24.0", "0.500", "2.0 GiB", "25 %", "75 %", "7.0", "2"]
        await expect(row(page, "What was learned of each class", EVIL)).to_have_text(shown)
        await expect(row(page, "Explained share by node", "n1").nth(1)).to_have_text("42 %")
        await expect(row(page, "Reject signal by node", "n1").nth(1)).to_have_text("no")
        await expect(row(page, "Reject signal by node", "n1").nth(2)).to_have_text("75 %")
        await expect(row(page, "Reject signal by node", "n2").nth(1)).to_have_text("yes")
        assert watched.complaints == []


async def test_the_costs_of_many_classes_are_shown_to_their_end(
    browser: Browser, client: Client, settings: Settings
) -> None:
    now = round(time.time())
    sums = {
        f"c{number:02d}": ClassSum(pods=10, cpu=number + 1.0, memory=1.0, running=10, nodes=1) for number in range(30)
    }
    model = Model(scope="global", at_us=1, features=["cpu"], moment=[4], nodes=3, pods=300, cost=[6], classes=sums)
    messages: list[tuple[str, Message]] = [
        (NAMES.model, model.model_copy(update={"at_us": (now - second) * 1_000_000})) for second in range(3500, 0, -10)
    ]
    messages += [(NAMES.node("availability", row.node), row) for row in rows(1)]
    record(settings.history_dir, messages)
    async with served(client, settings) as address:
        watched = await opened(browser, address, "model")
        figure = watched.page.locator("figure.wide")
        names = [f"c{number}" for number in range(29, 22, -1)]
        await expect(figure.locator(".u-label")).to_have_text(["Time", *names, "other classes"])
        await expect(watched.page.get_by_text("Not everything is shown")).to_have_count(0)
        assert watched.complaints == []


async def test_a_node_whose_clock_is_ahead_hides_no_other(browser: Browser, client: Client, settings: Settings) -> None:
    history: list[tuple[str, Message]] = []
    for available, ahead in zip(rows(3, names=["n1", "n2", "n3"]), (0, 0, 3000), strict=True):
        name, at_us = available.node, available.at_us + ahead * 1_000_000
        history.append((NAMES.node("availability", name), available.model_copy(update={"at_us": at_us})))
        history.append((NAMES.node("reject", name), predicted.reject(node=name, at_us=at_us)))
        history.append((NAMES.node("prediction", name), predicted.prediction(node=name, at_us=at_us)))
    record(settings.history_dir, history)
    async with served(client, settings) as address:
        watched = await opened(browser, address, "model")
        page = watched.page
        for caption in ("Explained share by node", "Reject signal by node"):
            nodes = page.get_by_role("region", name=caption, exact=True).locator("tbody td:first-child")
            await expect(nodes).to_have_text(["n1", "n2", "n3"])
        await page.goto(f"{address}/#/predictions")
        await expect(row(page, "Predictions in force", "60 min").last).to_have_text("3")
        assert watched.complaints == []


@pytest.mark.parametrize("from_history", [True, False])
async def test_a_node_shows_its_predicted_peak_and_that_it_rejects(
    browser: Browser, client: Client, settings: Settings, *, from_history: bool
) -> None:
    past_us = round((time.time() - 20) * 1e6)
    capacity = Resources(cpu=4, memory=8 << 30)
    peak = Resources(cpu=3, memory=2 << 30)
    by_subject: dict[str, Message] = {
        NAMES.node("prediction", "n1"): predicted.prediction(at_us=past_us, peak=peak, capacity=capacity, assumed=None),
        NAMES.node("reject", "n1"): predicted.reject(at_us=past_us, score=0.75, reject=True, since_us=past_us),
    }
    record(settings.history_dir, by_subject.items() if from_history else ())
    block = telemetry.block("n1", 0, cpu_util=0.5).model_copy(update={"at_us": past_us})
    async with served(client, settings) as address:
        watched = await opened(browser, address, "node/n1?range=300")
        page = watched.page
        await expect(page.locator(".note", has_text="Waiting for this node")).to_be_visible()
        await client.publish(NAMES.node("samples", "n1"), codec.encode(block))
        if not from_history:
            for subject, message in by_subject.items():
                await client.publish(subject, codec.encode(message))
            await expect(page.locator(".facts")).to_contain_text("Takes new workno, for ")
        for title, label, text in (
            ("CPU in use", "predicted peak", "75 %"),
            ("Memory in use", "predicted peak", "25 %"),
            ("Reject signal", "score", "75 %"),
        ):
            await show_newest(page, title, label, text)
        await expect(page.locator(".facts")).to_contain_text("Peak within 60 min3.00 CPUs, 2.0 GiB")
        assert watched.complaints == []


async def show_newest(page: Page, title: str, label: str, text: str) -> None:
    """Move the pointer over the newest value of a series until its legend shows this text."""
    figure = page.locator("figure", has=page.locator(".u-title", has_text=title))
    value = figure.locator(".u-series", has_text=label).locator(".u-value")
    async with asyncio.timeout(60):  # the history may answer, and move the figure, after the pointer has come
        while await value.inner_text() != text:
            await figure.scroll_into_view_if_needed()
            box = await figure.locator(".u-over").bounding_box()
            assert box is not None
            for from_right in (4, 2):
                await page.mouse.move(box["x"] + box["width"] - from_right, box["y"] + 20)
            await asyncio.sleep(0.2)
