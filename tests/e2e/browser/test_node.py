"""The series of a node in a real Chromium: history and live values together, none of them lost."""

import asyncio
import re
import time
import urllib.parse
from typing import Any

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser, Page, expect

from schemas import codec
from schemas.messages.base import Message
from schemas.settings import Settings
from schemas.subject import Names
from sinks.history import view
from tests.support.dashboard.browsing import CHROMIUM, opened
from tests.support.dashboard.pages import rows, served
from tests.support.history import record
from tests.support.processors import predicted, telemetry

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]
NAMES = Names()
DAY_SECONDS = 86_400
STEP_SECONDS = 144  # of the history in a day
LIVE_SECONDS = 10 * STEP_SECONDS
CLASSES = 12
ASKED = re.compile(r"FROM (\w+) WHERE node = 'n1' AND at_us BETWEEN \d+ AND (\d+)")
LINE = """async ([past, live, low, high]) => {
  const { Line } = await import("/static/chart/line.js");
  const line = new Line(1);
  for (const times of past.slice(0, 1)) line.remember({ times, values: [times.map(() => 0)] });
  for (const times of live) line.add(times, [times.map(() => 1)]);
  for (const times of past.slice(1)) line.remember({ times, values: [times.map(() => 0)] });
  return line.within(low, high);
}"""
STACK = """async ([past, live, low, high]) => {
  const { Stack } = await import("/static/chart/stack.js");
  const stack = new Stack();
  stack.remember(past);
  for (const [t, used] of live) stack.add(t, used);
  return stack.within(low, high);
}"""


# Whether a chart has pixels of a colour between two shares of its width.
PAINTED = """(figure, [colour, from, to]) => {
  const canvas = figure.querySelector("canvas");
  const hex = getComputedStyle(document.documentElement).getPropertyValue(`--${colour}`).trim();
  const wanted = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  const { left, width } = figure.querySelector(".u-over").getBoundingClientRect();
  const scale = canvas.width / canvas.getBoundingClientRect().width;
  const x = (share) => Math.round((left - canvas.getBoundingClientRect().left + share * width) * scale);
  const { data } = canvas.getContext("2d").getImageData(x(from), 0, x(to) - x(from), canvas.height);
  for (let at = 0; at < data.length; at += 4) {
    if (data[at + 3] > 100 && wanted.every((value, channel) => Math.abs(data[at + channel] - value) < 5)) return true;
  }
  return false;
}"""


async def evaluated(page: Page, function: str, *given: object) -> Any:
    return await page.evaluate(function, list(given))


async def test_a_day_of_history_stays_while_live_values_come(
    browser: Browser, client: Client, settings: Settings
) -> None:
    past = list(range(0, DAY_SECONDS, STEP_SECONDS))
    live = [[DAY_SECONDS + second + tenth / 10 for tenth in range(10)] for second in range(LIVE_SECONDS)]
    end = DAY_SECONDS + LIVE_SECONDS
    async with served(client, settings) as address:
        page = (await opened(browser, address, "sql")).page
        line = await evaluated(page, LINE, [past], live, 0, end)
        kept = [moment for moment, value in zip(line["times"], line["values"][0], strict=True) if value == 1]
        assert line["times"][: len(past)] == past
        assert kept == [moment for second in live[-900:] for moment in second]
        # The history that is read again fills what live values have left out, and not a step more.
        again = list(range(0, end, STEP_SECONDS))
        line = await evaluated(page, LINE, [past, again], live, 0, end)
        assert line["times"] == [moment for moment in again if moment < kept[0]] + kept


async def test_history_fills_a_pause_of_live_values_and_a_clock_that_goes_back_replaces_them(
    browser: Browser, client: Client, settings: Settings
) -> None:
    async with served(client, settings) as address:
        page = (await opened(browser, address, "sql")).page
        line = await evaluated(page, LINE, [[*range(20)]], [[5, 6, 7], [12, 13]], 0, 30)
        assert line["times"] == [*range(20)]
        assert [moment for moment, value in zip(line["times"], line["values"][0], strict=True) if value] == [
            *(5, 6, 7, 12, 13)
        ]
        line = await evaluated(page, LINE, [[]], [[5, 6, 7], [8, 9], [6.5, 7.5]], 0, 30)
        assert line["times"] == [5, 6, 6.5, 7.5]


async def test_the_largest_classes_are_stacked_and_all_others_are_one(
    browser: Browser, client: Client, settings: Settings
) -> None:
    past = [{"t": 95, "who": f"c{number}", "cores": 10 - number} for number in range(7)]
    past += [{"t": 95, "who": None, "cores": 1.5}]
    live = [[100 + second, [[f"c{number}", 10 - number] for number in range(9)]] for second in range(3)]
    async with served(client, settings) as address:
        page = (await opened(browser, address, "sql")).page
        stack = await evaluated(page, STACK, past, live, 0, 103)
    assert stack["names"] == [*(f"c{number}" for number in range(7)), "other classes"]
    assert stack["data"][0] == [95, 100, 101, 102]
    assert stack["data"][-1] == [1.5, 3 + 2, 3 + 2, 3 + 2]
    assert [sum(column) for column in zip(*stack["data"][1:], strict=True)] == [49 + 1.5, 54, 54, 54]


def day_of_usage() -> list[tuple[str, Message]]:
    """Return a day of a node with more classes than a chart has colours; each takes a core more than the one before."""
    pods = [{"pod": f"u{number}", "workloads": f"c{number}", "cpu_cores": float(number)} for number in range(CLASSES)]
    seconds = range(0, DAY_SECONDS, STEP_SECONDS)
    return [(NAMES.node("pods", "n1"), telemetry.usage("n1", second, pods)) for second in seconds]


async def test_a_day_of_many_classes_is_shown_to_its_end(browser: Browser, client: Client, settings: Settings) -> None:
    record(settings.history_dir, day_of_usage())
    begin, end = telemetry.START, telemetry.START + DAY_SECONDS
    asked = """async ([from, to]) => {
      const { pods } = await import("/static/node/series.js");
      const usage = await pods("n1", from, to);
      return [usage.truncated, usage.map(({ t, who, cores }) => [t, who, cores])];
    }"""
    async with served(client, settings) as address:
        watched = await opened(browser, address, f"node/n1?from={begin}&to={end}")
        stack = watched.page.locator("figure", has=watched.page.locator(".u-title", has_text="CPU of pods, by class"))
        names = [f"c{number}" for number in range(CLASSES - 1, CLASSES - 8, -1)]
        await expect(stack.locator(".u-label")).to_have_text(["Time", *names, "other classes"])
        await expect(watched.page.get_by_text("Not everything is shown")).to_have_count(0)
        truncated, usage = await evaluated(watched.page, asked, begin, end)
        last = max(moment for moment, *_ in usage)
        assert (truncated, last >= end - 2 * STEP_SECONDS) == (False, True)
        rest = float(sum(range(CLASSES - 7)))
        expected: dict[str | None, float] = {None: rest, **{name: float(name[1:]) for name in names}}
        assert {who: cores for moment, who, cores in usage if moment == last} == expected
        assert watched.complaints == []
    async with served(client, settings, query_rows=100) as address:
        page = (await opened(browser, address, f"node/n1?from={begin}&to={end}")).page
        await expect(page.get_by_text("Not everything is shown")).to_be_visible()


async def test_no_chart_draws_a_time_in_which_the_node_was_away(
    browser: Browser, client: Client, settings: Settings
) -> None:
    (row,) = rows(1, names=["n1"])
    messages: list[tuple[str, Message]] = []
    for second in (*range(120), *range(480, 600)):
        at_us = (telemetry.START + second) * 1_000_000
        block = telemetry.block("n1", second, samples=1, cpu_util=0.37)
        usage = telemetry.usage("n1", second, [{"pod": "u", "cpu_cores": 1.0}])
        messages += [(NAMES.node("samples", "n1"), block), (NAMES.node("pods", "n1"), usage)]
        if second % 4 == 0:  # as a steady node reports
            messages.append((NAMES.node("availability", "n1"), row.model_copy(update={"at_us": at_us})))
    record(settings.history_dir, messages)
    async with served(client, settings) as address:
        watched = await opened(browser, address, f"node/n1?from={telemetry.START}&to={telemetry.START + 600}")
        for title, colour in (("CPU of pods, by class", "c1"), ("Pods that fit", "c1"), ("CPU in use", "raw")):
            figure = watched.page.locator("figure", has=watched.page.locator(".u-title", has_text=title))
            await expect(figure.locator(".u-value").nth(1)).not_to_have_text("–")
            shown = [await figure.evaluate(PAINTED, [colour, *part]) for part in ((0, 0.19), (0.22, 0.78), (0.82, 1))]
            assert shown == [True, False, True], title
        assert watched.complaints == []


@pytest.mark.parametrize("from_history", [True, False])
@pytest.mark.parametrize(
    ("assumed", "violation", "fact"),
    [
        (["cpu"], 1.0, "CPU not known yet, 1.9 GiB"),
        (["memory"], 0.05, "1.50 CPUs, memory not known yet"),
        (["cpu", "memory"], 0.0909, "not known yet"),  # of ten that settled
        (None, 1.0, "not known yet"),  # of before
        (None, None, "1.50 CPUs, 1.9 GiB"),
    ],
)
async def test_a_peak_that_nothing_supports_is_not_shown(
    browser: Browser,
    client: Client,
    settings: Settings,
    assumed: list[str] | None,
    violation: float | None,
    fact: str,
    *,
    from_history: bool,
) -> None:
    at_us = round((time.time() - 60) * 1e6)
    row = predicted.prediction(at_us=at_us, violation=violation, assumed=assumed)
    subject = NAMES.node("prediction", "n1")
    record(settings.history_dir, [(subject, row)] if from_history else [])
    async with served(client, settings) as address:
        watched = await opened(browser, address, "node/n1?range=300")
        page = watched.page
        await expect(page.locator("#connection")).to_have_text("live")
        if not from_history:
            await client.publish(subject, codec.encode(row))
        await expect(page.locator(".facts div", has_text="Peak within 60 min").locator("dd")).to_have_text(fact)
        titles = ("CPU in use", "Memory in use")
        figures = [page.locator("figure", has=page.locator(".u-title", has_text=title)) for title in titles]
        drawn = ["CPUs" in fact, "GiB" in fact]
        async with asyncio.timeout(20):
            while [await figure.evaluate(PAINTED, ["c2", 0.5, 1]) for figure in figures] != drawn:  # noqa: ASYNC110 # it draws in its own time
                await asyncio.sleep(0.1)
        assert watched.complaints == []


async def test_times_of_another_day_have_that_day_and_a_list_that_is_cut_says_so(
    browser: Browser, client: Client, settings: Settings
) -> None:
    usage = [telemetry.usage("n1", second, [{"pod": "u", "cpu_cores": 1.0}]) for second in range(60)]
    messages: list[tuple[str, Message]] = [(NAMES.node("pods", "n1"), message) for message in usage]
    started = [telemetry.event("n1", number / 3, "started") for number in range(120)]
    messages += [(NAMES.node("containers", "n1"), event) for event in started]
    record(settings.history_dir, messages)
    labels = """async ([low, high]) => {
      const { Chart } = await import("/static/chart/chart.js");
      const element = document.body.appendChild(document.createElement("div"));
      const chart = new Chart(element, { title: "", series: [{}], format: String });
      chart.set([[low, high], [1, 1]], [low, high]);
      await new Promise(requestAnimationFrame);
      return chart.plot.axes[0]._values;
    }"""
    day = re.compile(r"\d\d/\d\d/2023")
    async with served(client, settings) as address:
        watched = await opened(browser, address, f"node/n1?from={telemetry.START}&to={telemetry.START + 60}")
        page = watched.page
        figure = page.locator("figure", has=page.locator(".u-title", has_text="CPU of pods, by class"))
        await expect(figure.locator(".u-value").first).to_have_text(day)
        await expect(page.locator(".ranges .quiet")).to_have_text(day)
        listed = page.get_by_role("region", name="Containers started and ended").locator("tbody td")
        await expect(listed.first).to_have_text(day)
        await expect(page.get_by_text("The newest 50 of 120 events.")).to_be_visible()
        first, *others = await evaluated(page, labels, telemetry.START, telemetry.START + 60)
        assert [bool(day.search(label)) for label in (first, *others)] == [True] + [False] * len(others)
        noon = await page.evaluate("new Date().setHours(12) / 1000")
        assert "/" not in "".join(await evaluated(page, labels, noon, noon + 60))
        assert watched.complaints == []


def asked_until(statements: list[str], seconds: float) -> set[str]:
    """Return the tables that statements ask for what was until a time; some begin a while before the range."""
    asked = [each for statement in statements for each in ASKED.findall(statement)]
    return {table for table, until in asked if abs(int(until) / 1e6 - seconds) < 1}


async def test_a_range_that_is_drawn_over_a_chart_is_that_of_all_charts_and_of_the_address(
    browser: Browser, client: Client, settings: Settings
) -> None:
    begin, end = telemetry.START, telemetry.START + 600
    usage = [telemetry.usage("n1", second, [{"pod": "u", "cpu_cores": 1.0}]) for second in range(0, 600, 10)]
    record(settings.history_dir, [(NAMES.node("pods", "n1"), message) for message in usage])
    async with served(client, settings) as address:
        page = (await opened(browser, address, f"node/n1?from={begin}&to={end}")).page
        figure = page.locator("figure", has=page.locator(".u-title", has_text="CPU of pods, by class"))
        await expect(figure.locator(".u-label")).to_have_text(["Time", "u"])
        await figure.scroll_into_view_if_needed()
        box = await figure.locator(".u-over").bounding_box()
        assert box is not None
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.post_data or ""))
        await page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 50)
        await page.mouse.down()
        await page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50, steps=3)
        await page.mouse.up()
        await expect(page).to_have_url(re.compile(rf"from=(?!{begin}&)"))
        shown = dict(urllib.parse.parse_qsl(page.url.partition("?")[2]))
        low, high = float(shown["from"]), float(shown["to"])
        assert [low, high] == pytest.approx([begin + 150, begin + 300], abs=5)
        await expect(page.get_by_text("choose a range to go on live")).to_be_visible()
        tables = {"samples", "smoothed", "availability", "pods", "containers", "predictions"}
        async with asyncio.timeout(5):
            while not tables <= asked_until(asked, high):  # noqa: ASYNC110 # the page asks in its own time
                await asyncio.sleep(0.05)


async def test_what_happened_while_the_page_was_disconnected_is_read_from_the_history(
    browser: Browser, client: Client, settings: Settings
) -> None:
    view.create(settings.history_dir)
    async with served(client, settings) as address:
        watched = await opened(browser, address, "node/n1?range=300")
        await expect(watched.page.locator("#connection")).to_have_text("live")
        await expect(watched.page.get_by_text("None in this range.")).to_be_visible()
    await expect(watched.page.locator("#connection")).to_contain_text("disconnected for")
    event = telemetry.event("n1", 0, "started", name="web-7").model_copy(update={"at_us": round(time.time() * 1e6)})
    record(settings.history_dir, [(NAMES.node("containers", "n1"), event)])
    async with served(client, settings, port=int(address.rpartition(":")[2])):
        listed = watched.page.get_by_role("region", name="Containers started and ended").locator("tbody tr td")
        await expect(listed.nth(2)).to_have_text("web-7", timeout=10_000)
