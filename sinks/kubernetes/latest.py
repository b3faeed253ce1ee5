"""The newest message of each node, workload and extender on the bus."""

import asyncio
from collections.abc import Callable

from bus import subscription
from bus.accounting.ledger import LEDGER
from bus.client import Client
from bus.reading.reader import Reader
from bus.subscription import Subscription
from schemas.messages.estimate import Availability
from schemas.messages.placement import Shortage
from schemas.messages.prediction import Forecast, Prediction
from schemas.settings import Settings
from schemas.subject import Names

Workload = tuple[str, str, str]

Message = Prediction | Availability | Forecast | Shortage

_KINDS: dict[str, type[Message]] = {
    "prediction": Prediction,
    "availability": Availability,
    "forecast": Forecast,
    "shortage": Shortage,
}
_FIRST_SECONDS = 3.0
_TIDY_SECONDS = 600.0


class Latest:
    """What processors and extenders publish.

    Attributes:
        predictions: By node.
        availabilities: By node.
        forecasts: By namespace, kind and name of the workload.
        shortages: By replica of the extender.
        current: Set once all messages from before the start have been read.
    """

    def __init__(self) -> None:
        self.predictions: dict[str, Prediction] = {}
        self.availabilities: dict[str, Availability] = {}
        self.forecasts: dict[Workload, Forecast] = {}
        self.shortages: dict[str, Shortage] = {}
        self.current = asyncio.Event()

    def hear(self, message: Message) -> None:
        """Take in one message."""
        if isinstance(message, Prediction):
            self.predictions[message.node] = message
        elif isinstance(message, Availability):
            self.availabilities[message.node] = message
        elif isinstance(message, Shortage):
            self.shortages[message.replica] = message
        else:
            self.forecasts[message.namespace, message.kind, message.workload] = message

    def prediction(self, node: str, created_us: int) -> Prediction | None:
        """Return the prediction for a node that was made then; an older one is for another node of its name."""
        message = self.predictions.get(node)
        return None if message is None or message.at_us < created_us else message

    def availability(self, node: str, created_us: int) -> Availability | None:
        """Return the availability of a node that was made then; an older one is of another node of its name."""
        message = self.availabilities.get(node)
        return None if message is None or message.at_us < created_us else message

    def forget(self, before_us: int) -> None:
        """Forget what is older, so that nodes, workloads and replicas that are gone take no memory."""
        self.predictions = {key: message for key, message in self.predictions.items() if message.at_us >= before_us}
        self.availabilities = {
            key: message for key, message in self.availabilities.items() if message.at_us >= before_us
        }
        self.forecasts = {key: message for key, message in self.forecasts.items() if message.at_us >= before_us}
        self.shortages = {key: message for key, message in self.shortages.items() if message.at_us >= before_us}

    def valid_shortages(self, now: float) -> list[Shortage]:
        """Return the shortages that are valid at a time, in seconds since the epoch.

        One from a clock that is ahead by more than it is valid for would stay valid for too long, and is none.
        """
        valid = []
        for shortage in self.shortages.values():
            at, until = shortage.at_us / 1e6, shortage.until_us / 1e6
            if at - (until - at) <= now < until:
                valid.append(shortage)
        return valid


async def follow(client: Client, settings: Settings, latest: Latest, clock: Callable[[], float]) -> None:
    """Keep `latest` current until cancelled.

    Args:
        client: Connection.
        settings: Names, times.
        latest: Where to.
        clock: Seconds since the epoch.
    """
    names, timeout = Names(settings.prefix), settings.nats.request_timeout_seconds
    subjects = [
        *(names.of(kind, "*") for kind in ("prediction", "availability", "shortage")),
        names.of("forecast", "*", "*"),
    ]
    keep = 2 * max(settings.output.stale_seconds, settings.output.forecast_seconds, settings.cache.expiry_seconds)
    tidied = clock()
    reader = Reader(client, names.estimates, subjects, newest=True, timeout_seconds=timeout)
    bury = subscription.bury(client, names, "kubernetes", names.estimates, timeout_seconds=timeout)
    account = LEDGER.account("kubernetes", names.estimates)
    async with Subscription(reader, subscription.by_kind(_KINDS), bury, account=account) as estimates:
        while True:
            batch = await estimates.read(timeout_seconds=None if latest.current.is_set() else _FIRST_SECONDS)
            for each in batch.messages:
                latest.hear(each.message)
            if not batch.pending:
                latest.current.set()
            if clock() - tidied > _TIDY_SECONDS:
                tidied = clock()
                latest.forget(round((tidied - keep) * 1e6))
