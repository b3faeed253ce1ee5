"""Counts that a processor's state holds, as counters.

The state moves with its partition from replica to replica, and is restored from checkpoints, so these counters are set
to what the state has counted: a replica's series begins with what others counted before it, so that `increase` takes
that for no new count, and falls where a checkpoint is older than the crash, which `increase` takes for a restart. A
replica without the state has no series.
"""

from collections.abc import Iterable
from contextlib import suppress

from prometheus_client import REGISTRY, Gauge
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class StateTotal(Collector):
    """One count by partition, also under the name of the gauge that it was until version 0.1."""

    _labelnames = ("partition",)

    def __init__(self, name: str, text: str, *, gauge: str) -> None:
        """Register the counter, and the gauge.

        Args:
            name: Name of the counter, without `_total`.
            text: What is counted.
            gauge: Earlier name.
        """
        self._name, self._text = name, text
        self._gauge = Gauge(gauge, f"earlier name of {name}_total, to be removed in the next version", ["partition"])
        REGISTRY.register(self)

    def set(self, partition: str, count: int) -> None:
        """Take over what the state of a partition has counted."""
        self._gauge.labels(partition).set(count)

    def forget(self, partition: str) -> None:
        """Let a partition have no count: its state is elsewhere, or was not restored yet."""
        with suppress(KeyError):
            self._gauge.remove(partition)

    def describe(self) -> Iterable[Metric]:
        """Yield the family without values."""
        yield CounterMetricFamily(self._name, self._text, labels=self._labelnames)

    def collect(self) -> Iterable[Metric]:
        """Yield the counts of all partitions."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labelnames)
        for metric in self._gauge.collect():
            for sample in metric.samples:
                family.add_metric([sample.labels["partition"]], sample.value)
        yield family
