"""Placement in a real Chromium: the decisions, the reservations, and the story of one pod."""

import time
from typing import Any

import pytest
from nats.aio.client import Client
from playwright.async_api import Browser, Locator, Page, expect

from schemas import codec
from schemas.messages.base import Message
from schemas.messages.placement import Decision, Held, Ranked, Refusal, Reservations
from schemas.settings import Settings
from schemas.subject import Names, token
from tests.support.dashboard.browsing import CHROMIUM, opened
from tests.support.dashboard.pages import served
from tests.support.extender import placement
from tests.support.history import record
from tests.support.processors import telemetry

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
]
NAMES = Names()
SECOND_US = 1_000_000
EVIL = "<b>web</b>"


def decision(at_us: int, name: str = "web-0", **changed: Any) -> Decision:
    fields: dict[str, Any] = {
        "namespace": "shop", "name": name, "pod": f"uid-{name}", "at_us": at_us, "outcome": "placed", "node": "n1",
        "mode": "argmax", "guaranteed": True, "workload": "shop/web", "strategies": {"room": 1.0}, "nodes": 3,
        "feasible": 1, "refused": {}, "ranked": [], "refusals": [], "seconds": 0.001,
    }  # fmt: skip
    return Decision(**fields | changed)


def story(now_us: int) -> list[tuple[str, Message]]:
    """Return the life of the pod shop/web-0: no node has room, then one has; it starts, and uses half a core."""
    refused = decision(
        now_us - 60 * SECOND_US, outcome="rejected", node=None, guaranteed=False, feasible=0, refused={"no room": 3},
        refusals=[Refusal(node="n2", reason="no room", needs=["one CPU less in use", f"no {EVIL} beside it"])],
    )  # fmt: skip
    best = Ranked(node="n1", score=87.5, scores={"room": 87.5}, room=4.0, reserved=1.0, state="fresh")
    placed = decision(now_us - 50 * SECOND_US, ranked=[best], refused={"no room": 2})
    states: list[dict[str, Any]] = [
        {"at_us": now_us - 61 * SECOND_US},
        {"at_us": now_us - 45 * SECOND_US, "node": "n1", "phase": "Running"},
    ]
    facts = [
        placement.pod("uid-web-0", version, namespace="shop", name="web-0", workload="shop/web", **changed)
        for version, changed in enumerate(states, 1)
    ]
    named = {"namespace": "shop", "name": "web-0", "workload": "shop/web", "container_name": "main"}
    started = telemetry.event("n1", 0, "started", **named).model_copy(update={"at_us": now_us - 46 * SECOND_US})
    used = {"pod": "uid-web-0", "namespaces": "shop", "names": "web-0", "workloads": "shop/web", "cpu_cores": 0.5}
    usage = [
        telemetry.usage("n1", number, [used]).model_copy(update={"at_us": now_us - (40 - number) * SECOND_US})
        for number in range(3)
    ]
    return [
        *((NAMES.of("decision", each.namespace, each.name), each) for each in (refused, placed)),
        *((NAMES.part(0, "podfacts", each.node), each) for each in facts),
        (NAMES.node("containers", "n1"), started),
        *((NAMES.node("pods", "n1"), block) for block in usage),
    ]


def table(page: Page, caption: str) -> Locator:
    return page.get_by_role("region", name=caption, exact=True).locator("tbody tr")


async def test_a_pod_s_story_has_its_decisions_with_all_reasons_its_facts_containers_and_usage(
    browser: Browser, client: Client, settings: Settings
) -> None:
    record(settings.history_dir, story(round(time.time() * 1e6)))
    async with served(client, settings) as address:
        watched = await opened(browser, address, "placement")
        page = watched.page
        await table(page, "Decisions").first.get_by_role("link", name="shop/web-0").click()
        await expect(page.locator("h1")).to_have_text("shop/web-0")
        happened = table(page, "What happened").locator("td:nth-child(2)")
        await expect(happened).to_have_text(
            ["pod: Running", "container started", "decision: placed", "decision: rejected", "pod: Pending"]
        )
        await expect(table(page, "Ranked nodes 1").locator("td")).to_have_text(
            ["n1", "87.5", "4.0", "1", "fresh", "room 87.5"]
        )
        await page.get_by_text("rejected", exact=False).last.click()
        needs = table(page, "Refused nodes 2").locator("td")
        await expect(needs).to_have_text(["n2", "no room", f"one CPU less in use; no {EVIL} beside it"])
        await expect(page.locator("figure .u-title")).to_have_text("CPUs in use on n1")
        await page.goto(f"{address}/#/placement/shop/none")
        await expect(page.locator(".note strong")).to_have_text("Nothing is known of this pod")
        assert watched.complaints == []


async def test_the_filter_says_what_it_sees_and_decisions_have_their_date(
    browser: Browser, client: Client, settings: Settings
) -> None:
    now_us = round(time.time() * 1e6)
    decided = [decision(now_us - number * SECOND_US, f"web-{number}") for number in range(2005)]
    record(settings.history_dir, [(NAMES.of("decision", each.namespace, each.name), each) for each in decided])
    async with served(client, settings) as address:
        watched = await opened(browser, address, "placement")
        page = watched.page
        await expect(table(page, "Decisions")).to_have_count(100)
        await expect(page.get_by_text("The filter sees the newest 2 000 decisions, made since ")).to_be_visible()
        year = time.strftime("%Y", time.localtime())
        await expect(table(page, "Decisions").first.locator("td").first).to_contain_text(year)
        await page.get_by_label("Filter decisions").fill("web-1999")
        await expect(table(page, "Decisions")).to_have_count(1)
        await page.get_by_label("Filter decisions").fill("web-2004")
        await expect(page.locator(".note strong")).to_have_text("No decision matches")
        assert watched.complaints == []


async def test_the_reservations_are_those_of_the_bucket(browser: Browser, client: Client, settings: Settings) -> None:
    now_us, bucket = round(time.time() * 1e6), NAMES.reservations_bucket

    async def put(node: str, pods: dict[str, Held]) -> None:
        await client.publish(f"$KV.{bucket}.{token(node)}", codec.encode(Reservations(node=node, pods=pods)))

    def held(name: str, seconds: int) -> Held:
        requests = {"cpu": 0.5, "memory": 2.0**30}
        until_us = now_us + seconds * SECOND_US
        return Held(
            namespace="shop", name=name, workload="shop/web", at_us=now_us, until_us=until_us, requests=requests
        )

    async with served(client, settings) as address:
        watched = await opened(browser, address, "placement")
        await expect(watched.page.get_by_text("None: no pod is decided and not yet bound.")).to_be_visible()
        await put("n1", {"uid-1": held("web-1", 7200), "uid-2": held(EVIL, -5)})
        await put("n2", {"uid-3": held("web-3", 7200)})
        await put("n2", {})
        rows = table(watched.page, "Reservations")
        await expect(rows).to_have_count(2, timeout=15_000)
        for row, name, expires in ((rows.nth(0), "web-1", "2 h"), (rows.nth(1), EVIL, "expired")):
            await expect(row.locator("td").nth(0)).to_have_text("n1")
            await expect(row.locator("td").nth(1)).to_have_text(f"shop/{name}")
            await expect(row.locator("td").nth(4)).to_have_text(expires)
            await expect(row.locator("td").nth(5)).to_have_text("cpu 0.50, memory 1.0 GiB")
        assert watched.complaints == []
