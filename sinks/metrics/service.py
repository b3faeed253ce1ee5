"""Prometheus: the newest availability of each node as gauges, and totals of the workload classes over all of them.

Predictions have gauges of their own (`sinks.metrics.prediction`).

A silent node's gauges go away, and its numbers are freed whether or not anybody scrapes. Users choose the names of
classes, so only the classes with most running pods have gauges; `spazio_cluster_classes` counts all. Pods have none:
there is no bound on their names.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from operator import attrgetter

from prometheus_client import Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import REGISTRY, Collector

from bus import subscription
from bus.accounting.ledger import LEDGER
from bus.client import Client
from bus.reading.reader import Reader
from bus.subscription import Subscription
from schemas.messages.estimate import MAXIMUM_CLASSES, Availability
from schemas.settings import Settings
from schemas.subject import Names
from sinks import cluster
from sinks.metrics import prediction
from sinks.metrics.heard import Heard

REFUSED = Counter("spazio_metrics_refused_total", "messages that could not be read")

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
_KINDS: dict[str, type[Availability] | type[prediction.Foreseen]] = {"availability": Availability, **prediction.KINDS}
_MOST_FAULTY = 100
_FREE_SECONDS = 5.0
_TOTALS: tuple[tuple[str, str, Callable[[cluster.Total], float | None]], ...] = (
    ("spazio_cluster_nodes", "nodes that say how many pods of the class fit", attrgetter("nodes")),
    ("spazio_cluster_pods", "running pods of the class", attrgetter("pods")),
    (
        "spazio_cluster_available_pods",
        "more pods of the class that fit, whole ones on each node",
        attrgetter("available"),
    ),
    ("spazio_cluster_available_pods_lower", "sum of the nodes' 90 % lower bounds", attrgetter("lower")),
    ("spazio_cluster_fluid_pods", "more pods of the class that would fit if all nodes were one", attrgetter("fluid")),
    ("spazio_cluster_fragmentation_ratio", "share of the fluid pods lost between nodes", attrgetter("fragmentation")),
)


class Nodes(Collector):
    """The newest availability of each node, as a Prometheus collector."""

    def __init__(self, expiry_seconds: float) -> None:
        self._expiry = expiry_seconds
        self._newest: dict[str, Availability] = {}
        self._heard: Heard[str] = Heard(expiry_seconds)

    def __len__(self) -> int:
        """Return the number of nodes held."""
        return len(self._newest)

    def put(self, availability: Availability) -> None:
        """Take in one message."""
        self._newest[availability.node] = availability
        self._heard.note(availability.node)

    def free(self) -> None:
        """Drop the nodes of which nothing has come for as long as their numbers count."""
        for node in self._heard.silent():
            self._newest.pop(node, None)

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges of all nodes that were measured lately, and the faults of all that were heard lately.

        What a node whose clock is behind says never looks as if it were measured lately.
        """
        oldest = (time.time() - self._expiry) * 1e6
        heard = list(self._newest.values())
        live = [row for row in heard if row.at_us >= oldest]
        return chain(_of_nodes(live), _of_faulty(heard), _of_doubted(heard), _of_classes(live))


def _of_nodes(live: list[Availability]) -> Iterator[Metric]:
    for name, text, field in _GAUGES:
        family = GaugeMetricFamily(name, text, labels=["node"])
        value = attrgetter(field)
        for row in live:
            family.add_metric([row.node], value(row) / 1e6 if field == "at_us" else float(value(row)))
        yield family
    usage = GaugeMetricFamily("spazio_usage_ratio", "smoothed usage", labels=["node", "feature"])
    used = GaugeMetricFamily("spazio_cpu_used_ratio", "share of the CPUs in use", labels=["node"])
    saturation = GaugeMetricFamily(
        "spazio_cpu_saturation_ratio",
        "CPUs in use and wanted, as a share of what the allowed slowdown admits",
        labels=["node"],
    )
    free = GaugeMetricFamily("spazio_free_ratio", "share that pods may still take", labels=["node", "resource"])
    binding = GaugeMetricFamily("spazio_binding", "1 for what runs out first", labels=["node", "resource"])
    for row in live:
        binding.add_metric([row.node, row.binding], 1)
        if row.cpu_used is not None:
            used.add_metric([row.node], row.cpu_used)
        if (saturated := row.usage.get("cpu")) is not None:
            saturation.add_metric([row.node], saturated)
        for feature, ratio in row.usage.items():
            usage.add_metric([row.node, feature], ratio)
        for resource, ratio in (row.free or {}).items():
            free.add_metric([row.node, resource], ratio)
    yield from (usage, used, saturation, free, binding)


def _of_faulty(heard: list[Availability]) -> Iterator[Metric]:
    """Yield what is wrong with nodes' blocks; of the nodes with most of it, since a whole fleet may have gaps."""
    faulty = [row for row in heard if row.blocks is not None or row.clock is not None]
    yield GaugeMetricFamily("spazio_faulty_nodes", "nodes with faults in their blocks, shown or not", value=len(faulty))
    faulty.sort(key=lambda row: (-abs(row.clock or 0.0), -_total(row), row.node))
    blocks = CounterMetricFamily("spazio_block_faults", "blocks by what was wrong", labels=["node", "fault"])
    earlier = GaugeMetricFamily(
        "spazio_faulty_blocks",
        "earlier name of spazio_block_faults_total, to be removed in the next version",
        labels=["node", "fault"],
    )
    clock = GaugeMetricFamily("spazio_clock_error_seconds", "how far the wall clock is off", labels=["node"])
    for row in faulty[:_MOST_FAULTY]:
        for fault, count in _counts(row):
            blocks.add_metric([row.node, fault], count)
            earlier.add_metric([row.node, fault], count)
        if row.clock is not None:
            clock.add_metric([row.node], row.clock)
    yield from (blocks, earlier, clock)


def _of_doubted(heard: list[Availability]) -> Iterator[Metric]:
    """Yield which nodes share their name, and which say what their facts or other nodes contradict; so many at most."""
    sharing = [row for row in heard if row.blocks is not None and row.blocks.shared]
    outvoted = sorted((row for row in heard if row.outvoted), key=lambda row: (-len(row.outvoted or ()), row.node))
    yield GaugeMetricFamily("spazio_shared_names", "node names under which two hosts seem to send", value=len(sharing))
    yield GaugeMetricFamily("spazio_outvoted_nodes", "nodes that others contradict, shown or not", value=len(outvoted))
    shared = GaugeMetricFamily("spazio_name_shared", "1 where two hosts seem to send under the name", labels=["node"])
    claims = GaugeMetricFamily(
        "spazio_outvoted_claims", "what the node says that its facts or other nodes contradict", labels=["node"]
    )
    for row in sharing[:_MOST_FAULTY]:
        shared.add_metric([row.node], 1)
    for row in outvoted[:_MOST_FAULTY]:
        claims.add_metric([row.node], len(row.outvoted or ()))
    yield from (shared, claims)


def _counts(row: Availability) -> list[tuple[str, int]]:
    return [(fault, count) for fault, count in row.blocks or () if fault != "shared"]


def _total(row: Availability) -> int:
    return sum(count for _, count in _counts(row))


def _of_classes(live: list[Availability]) -> Iterator[Metric]:
    all_totals = cluster.totals(live)
    yield GaugeMetricFamily("spazio_cluster_classes", "workload classes, with or without gauges", value=len(all_totals))
    totals = all_totals[:MAXIMUM_CLASSES]
    for name, text, value in _TOTALS:
        family = GaugeMetricFamily(name, text, labels=["class"])
        for total in totals:
            if (number := value(total)) is not None:
                family.add_metric([total.workload], number)
        yield family
    stranded = GaugeMetricFamily(
        "spazio_cluster_stranded_ratio", "share of what is free that the class cannot use", labels=["class", "resource"]
    )
    bound = GaugeMetricFamily(
        "spazio_cluster_bound_ratio", "share of nodes on which it runs out first", labels=["class", "resource"]
    )
    for total in totals:
        for resource, ratio in (("cpu", total.stranded_cpu), ("memory", total.stranded_memory)):
            if ratio is not None:
                stranded.add_metric([total.workload, resource], ratio)
        for resource, share in total.bound.items():
            bound.add_metric([total.workload, resource], share)
    yield from (stranded, bound)
    yield from _rooms(live, {total.workload for total in totals})


def _rooms(live: list[Availability], workloads: set[str]) -> Iterator[Metric]:
    labels = ["node", "class"]
    available = GaugeMetricFamily("spazio_class_available_pods", "more pods of the class that fit", labels=labels)
    lower = GaugeMetricFamily("spazio_class_available_pods_lower", "one-sided 90 % lower bound of those", labels=labels)
    pods = GaugeMetricFamily("spazio_class_pods", "running pods of the class", labels=labels)
    for row in live:
        for workload, room in (row.classes or {}).items():
            if workload in workloads:
                available.add_metric([row.node, workload], room.available)
                lower.add_metric([row.node, workload], room.lower)
                pods.add_metric([row.node, workload], room.pods)
    yield from (available, lower, pods)


async def run(client: Client, settings: Settings) -> None:
    """Follow the newest messages of nodes and workloads until cancelled."""
    names = Names(settings.prefix)
    nodes = Nodes(settings.cache.expiry_seconds)
    ages = prediction.Ages(settings.predict.force_seconds, settings.reject.report_seconds, settings.forecast.seconds)
    coming = prediction.Predictions(ages)
    subjects = [
        names.of("availability", "*"),
        names.of("prediction", "*"),
        names.of("reject", "*"),
        names.of("forecast", "*", "*"),
    ]
    with ExitStack() as stack:
        for collector in (nodes, coming):
            REGISTRY.register(collector)
            stack.callback(REGISTRY.unregister, collector)
        reader = Reader(client, names.estimates, subjects, newest=True)
        # Those who store these messages bury what they refuse.
        refuse, account = subscription.count(REFUSED), LEDGER.account("metrics", names.estimates)
        async with Subscription(reader, subscription.by_kind(_KINDS), refuse, account=account) as estimates:
            await _follow(estimates, nodes, coming)


async def _follow(
    estimates: Subscription[Availability | prediction.Foreseen], nodes: Nodes, coming: prediction.Predictions
) -> None:
    """Take in messages, and free silent nodes even without scrapes or messages."""
    freed = time.monotonic()
    while True:
        batch = await estimates.read(timeout_seconds=_FREE_SECONDS)
        for each in batch.messages:
            if isinstance(each.message, Availability):
                nodes.put(each.message)
            else:
                coming.put(each.message)
        if time.monotonic() >= freed + _FREE_SECONDS:
            nodes.free()
            coming.free()
            freed = time.monotonic()
