"""What the dashboard costs, and how fast its pages are: `python -m benchmarks.whole.dashboard [NODES] [SECONDS]`.

First `spazio up --nodes NODES` runs with everything on: the dashboard's share of a core without a page, and, where
Chromium is installed, with three pages open, live and with their questions to the history, of two different threes.
Then a page opens with 5,000 nodes: the time until all are shown, and the longest task while it is scrolled and updated.
"""

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from playwright.async_api import async_playwright

from benchmarks.agent import cpu_seconds, resident_bytes
from benchmarks.whole.__main__ import running
from bus import connection, stream
from schemas import settings as all_settings
from schemas.settings import Settings
from spazio.service import addresses
from tests.conftest import NatsServer
from tests.support.dashboard.pages import cache, rows, served

_WARM_SECONDS = 20.0
_NODES = 5000
_VIEWED = (("cluster", "cluster", "node/sim-00000"), ("predictions", "placement", "pipeline"))
_SCROLLS, _SCROLL_SECONDS = 40, 0.1
_TASKS = """() => { window.tasks = []; new PerformanceObserver((list) => window.tasks.push(
  ...list.getEntries().map((entry) => entry.duration))).observe({type: 'longtask', buffered: true}); }"""


async def _share(pid: int, seconds: float) -> float:
    before, began = cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return round((cpu_seconds(pid) - before) / (time.monotonic() - began), 4)


async def _viewed(chromium: str, address: str, paths: Sequence[str], pid: int, seconds: float) -> float:
    """Return the dashboard's share of a core while these pages are open, from before they open."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        pages = [await browser.new_page() for _ in paths]

        async def look() -> None:
            for page, path in zip(pages, paths, strict=True):
                await page.goto(f"{address}/#/{path}")

        share, _ = await asyncio.gather(_share(pid, seconds), look())
        await browser.close()
    return share


async def cost(settings: Settings, seconds: float) -> None:
    """Print the dashboard's shares of a core, and its memory, beside a running `spazio up`."""
    await asyncio.sleep(_WARM_SECONDS)
    running = addresses.read(settings)
    pid, address = running["pids"]["dashboard"], running["dashboard"].rstrip("/")
    _print(pages=(), core_share=await _share(pid, seconds), resident_bytes=resident_bytes(pid))
    chromium = _chromium()
    if chromium is None:
        return
    for paths in _VIEWED:
        share = await _viewed(chromium, address, paths, pid, seconds)
        _print(pages=paths, core_share=share, resident_bytes=resident_bytes(pid))


def _print(**measured: object) -> None:
    print(json.dumps(measured), flush=True)


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


async def browse(folder: Path) -> dict[str, Any]:
    """Open the cluster page with many nodes in Chromium; empty: there is none."""
    program = _chromium()
    if program is None:
        return {}
    nats = NatsServer(folder)
    nats.start()
    settings = all_settings.load({"nats_url": nats.url, "data_dir": str(folder / "data")}, environ={})
    try:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(connection.connect(settings, "benchmark"))
            await stream.ensure(client, settings)
            nodes = rows(_NODES)
            await cache(client, nodes)
            address = await stack.enter_async_context(served(client, settings))
            playwright = await stack.enter_async_context(async_playwright())
            browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = await browser.new_page(viewport={"width": 1440, "height": 900})
            began = time.monotonic()
            await page.goto(f"{address}/#/cluster")
            await page.get_by_text(f"{_NODES:,}".replace(",", " "), exact=True).first.wait_for()
            shown = time.monotonic() - began
            painted = await page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000")
            await page.evaluate(_TASKS)
            for number in range(_SCROLLS):
                await page.mouse.wheel(0, 120 if number < _SCROLLS / 2 else -120)
                await cache(client, nodes[number * 40 : number * 40 + 40])
                await asyncio.sleep(_SCROLL_SECONDS)
            tasks = await page.evaluate("window.tasks")
            await browser.close()
    finally:
        nats.kill()
    return {
        "first_paint_seconds": round(painted, 3),
        "all_nodes_shown_seconds": round(shown, 3),
        "longest_task_ms": round(max(tasks, default=0)),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", nargs="?", type=int, default=1000)
    parser.add_argument("seconds", nargs="?", type=float, default=30)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = all_settings.load({"data_dir": str(Path(folder) / "data")}, environ={})
        with running(settings, given.nodes, ["--dashboard-port", "0"]):
            asyncio.run(cost(settings, given.seconds))
    with tempfile.TemporaryDirectory() as folder:
        _print(**asyncio.run(browse(Path(folder))))


if __name__ == "__main__":
    main()
