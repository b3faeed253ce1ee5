"""How long each part of the pipeline says nothing, while everything dies."""

import asyncio
import time
from collections import defaultdict

import nats.errors
from nats.aio.client import Client

from bus import api
from bus.reading.reader import Reader
from schemas.settings import Settings
from spazio.service import processing
from tests.e2e.comparison import NAMES, consumer, parts

_LONG_SECONDS = 5.0
_PROBE_SECONDS = 0.25


def steady_parts(settings: Settings) -> list[str]:
    """Return the parts that say something every second."""
    return [part for part in parts(settings) if not part.startswith((processing.PREDICTION, processing.FORECAST))]


class Silence:
    """The longest time that each partition's cursor stood still, as a reader of the stream sees it.

    Outlooks are left out: they have nothing to say for half a minute at first.

    A cluster that has lost a leader takes four to nine seconds to elect another, for each stream and consumer, and
    nobody can fold meanwhile. So it is counted apart how long the servers did not serve a part's consumer.

    Attributes:
        gaps: Time of the day, part, seconds of silence, and seconds of those in which the servers served.
    """

    def __init__(self, client: Client, steady: list[str]) -> None:
        self._client, self._steady = client, steady
        self._last: dict[str, float] = {}
        self._unserved: defaultdict[str, float] = defaultdict(float)
        self._unserved_before: dict[str, float] = {}
        self.longest: dict[str, float] = {}
        self.longest_served: dict[str, float] = {}
        self.gaps: list[tuple[str, str, float, float]] = []

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read())
            tasks.create_task(self._probe())

    async def _probe(self) -> None:
        """Count for each part how long its consumer or a stream had nobody who answers for it."""
        streams = [f"STREAM.INFO.{name}" for name in (NAMES.telemetry, NAMES.estimates)]
        consumers = {part: f"CONSUMER.INFO.{consumer(part)}" for part in self._steady}
        while True:
            began = time.monotonic()
            about_streams, about_consumers = await asyncio.gather(
                asyncio.gather(*map(self._answers, streams)),
                asyncio.gather(*map(self._answers, consumers.values())),
            )
            await asyncio.sleep(max(0.0, began + _PROBE_SECONDS - time.monotonic()))
            for part, served in zip(consumers, about_consumers, strict=True):
                if not (served and all(about_streams)):
                    self._unserved[part] += time.monotonic() - began

    async def _answers(self, verb: str) -> bool:
        try:
            await api.request(self._client, verb, {}, _PROBE_SECONDS)
        except (nats.errors.Error, TimeoutError):
            return False
        return True

    async def _read(self) -> None:
        subjects = [NAMES.of("cursor", part) for part in self._steady]
        async with Reader(self._client, NAMES.estimates, subjects, newest=True) as reader:
            while True:
                for message in await reader.read():
                    now = time.monotonic()
                    part = message.subject.rpartition(".")[2]
                    gap = now - self._last.get(part, now)
                    self._last[part] = now
                    served = gap - (self._unserved[part] - self._unserved_before.get(part, 0.0))
                    self._unserved_before[part] = self._unserved[part]
                    self.longest[part] = max(self.longest.get(part, 0.0), gap)
                    self.longest_served[part] = max(self.longest_served.get(part, 0.0), served)
                    if gap > _LONG_SECONDS:
                        self.gaps.append((time.strftime("%X"), part, round(gap, 1), round(served, 1)))
