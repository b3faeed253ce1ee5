"""Prometheus: the newest availability of each node as gauges; a silent node's gauges go away."""

import time
from collections.abc import Iterable, Iterator
from operator import attrgetter

from nats.aio.client import Client
from prometheus_client import Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector

from bus.pull import Reader
from schemas import codec
from schemas.estimate import Availability
from schemas.settings import Settings
from schemas.subject import Names

REFUSED = Counter("spazio_metrics_refused_total", "availabilities that could not be read")

_GAUGES = (
    ("spazio_available_pods", "more pods that fit", "available"),
    ("spazio_available_pods_lower", "one-sided 90 % lower bound of more pods that fit", "lower"),
    ("spazio_available_pods_upper", "one-sided 90 % upper bound of more pods that fit", "upper"),
    ("spazio_capacity_signal", "expected workloads that still fit", "signal"),
    ("spazio_pod_cost_ratio", "share of the binding resource that one pod takes", "cost"),
    ("spazio_pods", "running pods", "pods"),
    ("spazio_cost_prior_ratio", "share of the cost that is assumed", "prior"),
    ("spazio_churn", "1 while containers start or end", "churn"),
    ("spazio_measured_timestamp_seconds", "time of the last sample behind the numbers", "at_us"),
)


class Nodes(Collector):
    """The newest availability of each node, as a Prometheus collector."""

    def __init__(self, expiry_seconds: float) -> None:
        self._expiry = expiry_seconds
        self._newest: dict[str, Availability] = {}

    def put(self, availability: Availability) -> None:
        """Take in one message."""
        self._newest[availability.node] = availability

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges of all nodes that were measured lately."""
        oldest = (time.time() - self._expiry) * 1e6
        rows = list(self._newest.values())
        for row in rows:
            if row.at_us < oldest and self._newest.get(row.node) is row:
                del self._newest[row.node]
        return self._families([row for row in rows if row.at_us >= oldest])

    @staticmethod
    def _families(live: list[Availability]) -> Iterator[Metric]:
        for name, text, field in _GAUGES:
            family = GaugeMetricFamily(name, text, labels=["node"])
            value = attrgetter(field)
            for row in live:
                family.add_metric([row.node], value(row) / 1e6 if field == "at_us" else float(value(row)))
            yield family
        usage = GaugeMetricFamily("spazio_usage_ratio", "smoothed usage", labels=["node", "feature"])
        binding = GaugeMetricFamily("spazio_binding", "1 for what runs out first", labels=["node", "resource"])
        for row in live:
            binding.add_metric([row.node, row.binding], 1)
            for feature, ratio in row.usage.items():
                usage.add_metric([row.node, feature], ratio)
        yield usage
        yield binding


async def run(client: Client, settings: Settings) -> None:
    """Follow all availabilities until cancelled."""
    names = Names(settings.prefix)
    nodes = Nodes(settings.cache.expiry_seconds)
    REGISTRY.register(nodes)
    try:
        async with Reader(client, names.estimates, [names.of("availability", "*")], newest=True) as reader:
            while True:
                for message in await reader.read():
                    try:
                        nodes.put(codec.decode_from(Availability, message.data, message.subject))
                    except codec.Refused:
                        REFUSED.inc()
    finally:
        REGISTRY.unregister(nodes)
