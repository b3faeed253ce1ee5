"""For how long the streams hold messages at the present rate."""

from datetime import datetime
from typing import NamedTuple

from nats.aio.client import Client

from bus.api import request
from schemas.settings import Settings
from schemas.subject import Names

_LOOKED_BACK = 5000  # messages of which the rate is taken
_LEAST_SECONDS = 5.0  # that these must span, so that the rate says something


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
        count = min(_LOOKED_BACK, state["last_seq"] - state["first_seq"])
        if count < 1:
            continue
        early = await client.jetstream(timeout=timeout_seconds).get_msg(stream, state["last_seq"] - count, direct=True)
        if early.time is None:
            continue
        seconds = (datetime.fromisoformat(state["last_ts"]) - early.time).total_seconds()
        if seconds >= _LEAST_SECONDS:
            rate = count / seconds * state["bytes"] / state["messages"]
            retentions.append(Retention(stream, setting, rate, min(most / rate, wanted), wanted))
    return retentions
