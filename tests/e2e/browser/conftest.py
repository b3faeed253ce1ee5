"""A real Chromium: one for all tests of a process, with a connection of its own for each."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from playwright.async_api import Browser, async_playwright, expect

from tests.support.dashboard.browsing import CHROMIUM

# A page of a browser that has just started takes seconds to run its scripts where other tests take the CPUs.
expect.set_options(timeout=20_000)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a browser; yields its address. To start one takes longer than most tests."""
    options = {"executablePath": CHROMIUM, "args": ["--no-sandbox"], "host": "127.0.0.1"}
    file = tmp_path_factory.mktemp("chromium") / "options.json"
    file.write_text(json.dumps(options))
    command = (sys.executable, "-m", "playwright", "launch-server", "--browser", "chromium", "--config", str(file))
    # In a group, since this starts another program, which ends the browser.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            try:
                server.communicate(timeout=20)  # until all have ended
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                raise


@pytest.fixture
async def browser(chromium: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        connected = await playwright.chromium.connect(chromium)
        yield connected
        await connected.close()  # with its pages
