"""For how long the streams hold messages at the present rate."""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from nats.aio.client import Client

from bus.api import request
from schemas.settings import Settings
from schemas.subject import Names

_LOOKED_BACK = 5000  # messages of which the rate is taken, at least
_LOOKED_BACK_SECONDS = 60.0  # that these should span: a second says little
_START_SECONDS = 60.0  # of a stream's life, in which all nodes send their facts and the rate is no steady one
_LEAST_SECONDS = 5.0  # that the messages must span, so that the rate says something


class Retention(NamedTuple):
    """What a stream holds.

    Attributes:
        stream: Its name.
        setting: The setting that limits its size.
        bytes_per_second: Rate at which it grows, before compression.
        seconds: For how long it holds a message at that rate.
        wanted_seconds: For how long it should.
    """

    stream: str
    setting: str
    bytes_per_second: float
    seconds: float
    wanted_seconds: float

    @property
    def wanted_bytes(self) -> int:
        """Size limit with which the stream would hold messages for as long as it should."""
        return round(self.bytes_per_second * self.wanted_seconds)


async def read(client: Client, settings: Settings, timeout_seconds: float) -> list[Retention]:
    """Return what the streams of telemetry and of estimates hold, as far as there is enough in them.

    Raises:
        BusError: The server does not answer, or there is no such stream; also TimeoutError.
    """
    names, nats = Names(settings.prefix), settings.nats
    retentions = []
    for stream, setting, most, wanted in (
        (names.telemetry, "telemetry_max_bytes", nats.telemetry_max_bytes, nats.telemetry_max_age_seconds),
        (names.estimates, "estimates_max_bytes", nats.estimates_max_bytes, nats.estimates_max_age_seconds),
    ):
        state = (await request(client, f"STREAM.INFO.{stream}", {}, timeout_seconds))["state"]
        if state["last_seq"] > state["first_seq"] and not _starts(state):
            rate = await _messages_per_second(client, stream, state, timeout_seconds)
            rate *= state["bytes"] / state["messages"]
            if rate:
                retentions.append(Retention(stream, setting, rate, min(most / rate, wanted), wanted))
    return retentions


def _starts(state: Mapping[str, Any]) -> bool:
    """Tell whether a stream has only what was sent in its first minute; one that is full has dropped that."""
    held = datetime.fromisoformat(state["last_ts"]) - datetime.fromisoformat(state["first_ts"])
    return bool(state["first_seq"] == 1 and held.total_seconds() < _START_SECONDS)


async def _messages_per_second(client: Client, stream: str, state: Mapping[str, Any], timeout_seconds: float) -> float:
    """Return at which rate messages came lately; 0: unknown.

    A stream that is full drops its first messages meanwhile, so the next one from a sequence on is asked for.
    """
    js, last = client.jetstream(timeout=timeout_seconds), datetime.fromisoformat(state["last_ts"])
    end, most = state["last_seq"], state["last_seq"] - state["first_seq"]
    rate, count = 0.0, min(_LOOKED_BACK, most)
    while True:
        early = await js.get_msg(stream, end - count, ">", direct=True, next=True)
        seconds = (last - early.time).total_seconds() if early.time else 0.0
        if seconds >= _LEAST_SECONDS and early.seq:
            rate = (end - early.seq) / seconds
        if count == most or not 0 < seconds < 0.9 * _LOOKED_BACK_SECONDS:
            return rate
        count = min(most, math.ceil(count * _LOOKED_BACK_SECONDS / seconds))
