"""Predictions in a real Chromium: models and nodes as points, and forecasts where they are to come true."""

import re
import time

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser, expect

from schemas.messages.base import Message
from schemas.messages.prediction import Accuracy
from schemas.settings import Settings
from schemas.subject import Names
from tests.support.dashboard import pages
from tests.support.dashboard.browsing import CHROMIUM, opened
from tests.support.history import record
from tests.support.processors import predicted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]
NAMES = Names()
SECOND_US = 1_000_000
SHIFTED = """async (steps) => (await import("/static/prediction/forecasts.js")).shifted(steps)"""


def accuracy(violations: float, savings: float, settled: float) -> Accuracy:
    return Accuracy(violations=violations, severity=0.1, savings=savings, settled=settled)


async def test_models_and_nodes_are_points_and_what_is_stated_and_seen_alike_is_on_the_line(
    browser: Browser, client: Client, settings: Settings
) -> None:
    now_us = round(time.time() * 1e6)
    first = {"max": accuracy(0.25, 0.3, 4), "calibrated": accuracy(0.04, 0.2, 10)}
    rows = [
        predicted.prediction(node="n1", at_us=now_us, violation=0.05, accuracy=first),
        predicted.prediction(node="n2", at_us=now_us, violation=0.15, accuracy={"max": accuracy(0.15, 0.3, 4)}),
    ]
    record(settings.history_dir, [(NAMES.node("prediction", row.node), row) for row in rows])
    async with pages.served(client, settings) as address:
        watched = await opened(browser, address, "predictions")
        models, nodes = (watched.page.locator(".scatter").nth(number) for number in range(2))
        await expect(models.locator("circle title")).to_have_text(
            ["calibrated, 60 min: saves 20 %, 4.0 % above", "max, 60 min: saves 30 %, 20 % above"]
        )
        await expect(models).to_contain_text("saved of the node")
        saved = watched.page.get_by_role("columnheader", name="Saved of the node")
        await expect(saved).to_have_attribute("title", re.compile("declares allocatable, else of the node's size"))
        await expect(models.locator("text.name")).to_have_text(["calibrated", "max"])
        await expect(nodes.locator("circle title")).to_have_text(
            ["n1, max, 60 min: 5.0 % stated, 25 % seen", "n2, max, 60 min: 15 % stated, 15 % seen"]
        )
        line = await nodes.locator("line.diagonal").evaluate(
            "(line) => ['x1', 'y1', 'x2', 'y2'].map((name) => Number(line.getAttribute(name)))"
        )
        points = await nodes.locator("circle").evaluate_all(
            "(points) => points.map((point) => [Number(point.getAttribute('cx')), Number(point.getAttribute('cy'))])"
        )
        above, on = ((line[1] - y) / (line[1] - line[3]) - (x - line[0]) / (line[2] - line[0]) for x, y in points)
        assert above > 0.1
        assert on == pytest.approx(0, abs=1e-9)
        assert watched.complaints == []


async def test_predictions_without_evidence_state_nothing(browser: Browser, client: Client, settings: Settings) -> None:
    now_us = round(time.time() * 1e6)
    (node,) = pages.rows(1)
    nothing, scores = ["cpu", "memory"], {"calibrated": accuracy(0.1, 0.3, 4)}
    stated = (("n1", 0.05, None, 0), ("n1", 0.5, nothing, 60), ("n2", 0.0909, nothing, 0), ("n3", 1.0, nothing, 0))
    rows = [
        predicted.prediction(
            node=name,
            at_us=now_us - ago * SECOND_US,
            model="calibrated",
            violation=violation,
            assumed=assumed,
            accuracy=scores,
        )
        for name, violation, assumed, ago in stated
    ]
    messages: list[tuple[str, Message]] = [(NAMES.node("prediction", row.node), row) for row in rows]
    record(settings.history_dir, [*messages, (NAMES.node("availability", node.node), node)])
    async with pages.served(client, settings) as address:
        watched = await opened(browser, address, "predictions")
        page = watched.page
        force = page.get_by_role("region", name="Predictions in force").locator("tbody tr")
        await expect(force).to_have_text(["60 mincalibrated5.0 %1", "60 mincalibratednothing yet2"])
        await expect(page.locator(".scatter").nth(1).locator("circle title")).to_have_text(
            ["n1, calibrated, 60 min: 5.0 % stated, 10 % seen"]
        )
        assert watched.complaints == []


async def test_forecasts_are_drawn_at_the_time_that_they_are_for(
    browser: Browser, client: Client, settings: Settings
) -> None:
    now_us = round(time.time() * 1e6)
    rows: list[tuple[str, Message]] = []
    for workload in ("w", "<i>w2</i>"):
        for number in range(3):
            row = predicted.forecast(workload=workload, at_us=now_us - (60 - 20 * number) * SECOND_US)
            rows.append((NAMES.of("forecast", row.namespace, row.workload), row))
    record(settings.history_dir, rows)
    async with pages.served(client, settings) as address:
        watched = await opened(browser, address, "predictions")
        page = watched.page
        await expect(page.get_by_text("predict.horizon_seconds after it was made")).to_be_visible()
        title = page.locator("figure.wide .u-title")
        await expect(title).to_contain_text("CPUs of s/Deployment/")
        await page.get_by_role("button", name="s/<i>w2</i>").click()
        await expect(title).to_have_text("CPUs of s/Deployment/<i>w2</i>")
        await expect(page.locator("figure.wide .u-label")).to_have_text(["Time", "used", "forecast for then"])
        assert "workload=s%2FDeployment%2F%3Ci%3Ew2" in page.url
        steps = [
            {"t": 0, "used": 1, "forecast": 2, "horizon": 10},
            {"t": 10, "used": 2, "forecast": 3, "horizon": 15},
            {"t": 20, "used": 3, "forecast": 4, "horizon": 15},
        ]
        times, used, forecast = await page.evaluate(SHIFTED, steps)
        assert (times, used) == ([0, 10, 20, 25, 35], [1, 2, 3, None, None])
        assert forecast == [None, 2, None, 3, 4]
        assert watched.complaints == []
