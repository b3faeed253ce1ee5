"""The newest that is said of each node and workload on the bus."""

import asyncio
from collections.abc import Callable

from nats.aio.client import Client

from bus.publishing import dead
from bus.reading.reader import Reader, Received
from schemas import codec
from schemas.messages.estimate import Availability
from schemas.messages.prediction import Forecast, Prediction
from schemas.settings import Settings
from schemas.subject import Names

Workload = tuple[str, str, str]

_FIRST_SECONDS = 3.0
_TIDY_SECONDS = 600.0


class Said:
    """What processors say.

    Attributes:
        predictions: By node.
        availabilities: By node.
        forecasts: By namespace, kind and name of the workload.
        current: Set once all that was said before the start has been read.
    """

    def __init__(self) -> None:
        self.predictions: dict[str, Prediction] = {}
        self.availabilities: dict[str, Availability] = {}
        self.forecasts: dict[Workload, Forecast] = {}
        self.current = asyncio.Event()

    def hear(self, message: Received) -> None:
        """Take in one message.

        Raises:
            Refused: It cannot be used.
        """
        kind = message.subject.split(".")[1]
        if kind == "prediction":
            prediction = codec.decode_from(Prediction, message.data, message.subject)
            self.predictions[prediction.node] = prediction
        elif kind == "availability":
            availability = codec.decode_from(Availability, message.data, message.subject)
            self.availabilities[availability.node] = availability
        else:
            forecast = codec.decode(Forecast, message.data)
            self.forecasts[forecast.namespace, forecast.kind, forecast.workload] = forecast

    def forget(self, before_us: int) -> None:
        """Forget what is older, so that nodes and workloads that are gone take no memory."""
        self.predictions = {key: one for key, one in self.predictions.items() if one.at_us >= before_us}
        self.availabilities = {key: one for key, one in self.availabilities.items() if one.at_us >= before_us}
        self.forecasts = {key: one for key, one in self.forecasts.items() if one.at_us >= before_us}


async def follow(client: Client, settings: Settings, said: Said, clock: Callable[[], float]) -> None:
    """Keep `said` current until cancelled.

    Args:
        client: Connection.
        settings: Names, times.
        said: Where to.
        clock: Seconds since the epoch.
    """
    names, timeout = Names(settings.prefix), settings.nats.request_timeout_seconds
    subjects = [names.of("prediction", "*"), names.of("availability", "*"), names.of("forecast", "*", "*")]
    keep = 2 * max(settings.output.stale_seconds, settings.output.forecast_seconds, settings.cache.expiry_seconds)
    tidied = clock()
    async with Reader(client, names.estimates, subjects, newest=True, timeout_seconds=timeout) as reader:
        while True:
            messages = await reader.read(timeout_seconds=None if said.current.is_set() else _FIRST_SECONDS)
            for message in messages:
                try:
                    said.hear(message)
                except codec.Refused as refusal:
                    await dead.bury(
                        client, names, "kubernetes", names.estimates, message, str(refusal), timeout_seconds=timeout
                    )
            if not reader.pending:
                said.current.set()
            if clock() - tidied > _TIDY_SECONDS:
                tidied = clock()
                said.forget(round((tidied - keep) * 1e6))
