"""What dead letters write to the log: as little as is stored of them, however many come."""

import asyncio
import logging

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from bus.publishing import dead
from bus.publishing.dead import Budget, Letter
from bus.reading.progress import Received
from schemas.subject import Names

NAMES = Names()


def levels(caplog: pytest.LogCaptureFixture, event: str) -> list[int]:
    return [record.levelno for record in caplog.records if record.getMessage() == event]


async def test_refused_messages_are_logged_as_far_as_they_are_stored(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead, "_BUDGET", Budget(lambda: 0.0))
    caplog.set_level(logging.INFO)
    refused = [(Received(NAMES.part(0, "samples", "n"), number, b"{"), "no message") for number in range(400)]
    await dead.bury_all(client, NAMES, "test", NAMES.telemetry, refused, timeout_seconds=5)
    assert len(levels(caplog, "message.refused")) == 256


async def test_why_letters_are_not_stored_is_logged_once_and_again_after_some_were(
    client: Client, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish, failing = JetStreamContext.publish, [5]

    async def fail(*arguments: object, **more: object) -> object:
        if failing[0]:
            failing[0] -= 1
            raise TimeoutError("the server does not answer")
        return await publish(*arguments, **more)  # type: ignore[arg-type] # what came

    monkeypatch.setattr(dead, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(dead, "_FAILURES", set())
    monkeypatch.setattr(JetStreamContext, "publish", fail)
    caplog.set_level(logging.DEBUG)
    letters = [Letter(NAMES.node("samples", "n"), b"{", "no message", "test", f"dead:{number}") for number in range(5)]
    await asyncio.gather(*(dead.store(client, NAMES, letter, timeout_seconds=5) for letter in letters))
    assert levels(caplog, "dead_letter.store_failed") == [logging.WARNING] + [logging.DEBUG] * 4
    failing[0] = 1
    await dead.store(client, NAMES, letters[0], timeout_seconds=5)
    assert levels(caplog, "dead_letter.store_failed")[5:] == [logging.WARNING]
