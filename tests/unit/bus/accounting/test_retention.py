"""For how long streams hold messages, as read from one that drops its first ones meanwhile; on a server in memory."""

from typing import Any

import pytest

from bus import api, stream
from bus.accounting import retention
from schemas.settings import Settings
from schemas.subject import Names
from tests.support.nats.client import Connection, connect
from tests.support.nats.server import Server

NAMES = Names()


async def test_the_rate_of_a_full_stream_is_known_although_its_first_message_has_gone_since(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_800_000_000.0]

    async def full(client: Connection, verb: str, *arguments: Any) -> dict[str, Any]:
        answer = await api.request(client, verb, *arguments)
        if verb == f"STREAM.INFO.{NAMES.telemetry}":
            await client.jetstream().purge_stream(NAMES.telemetry, seq=31)
        return answer

    monkeypatch.setattr(retention, "request", full)
    async with connect(Server(clock=lambda: now[0])) as client:
        await stream.ensure(client, settings)
        for _ in range(100):
            now[0] += 0.2
            await client.jetstream().publish(NAMES.node("samples", "n"), b"x" * 100)
        await client.jetstream().purge_stream(NAMES.telemetry, seq=11)
        (held,) = await retention.read(client, settings, 1)
    assert held.stream == NAMES.telemetry
    assert 500 < held.bytes_per_second < 5 * 300
