"""Metrics of /metrics, pushed to an OpenTelemetry collector over OTLP/HTTP.

The Prometheus registry stays the one source: every period its families become OpenTelemetry metrics of the same names,
without `_total`, which a collector adds again where it serves them to Prometheus. OpenTelemetry's own exporter sends
them, so its environment variables count: OTEL_EXPORTER_OTLP_HEADERS for tokens, _CERTIFICATE for TLS, _COMPRESSION.
"""

import importlib
import logging
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from prometheus_client import REGISTRY, Counter
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from bus.health import Health
from schemas.messages.base import RELEASE
from schemas.sections.bus import Otlp
from schemas.settings import SettingsError

PUSHES = Counter("spazio_otlp_pushes_total", "pushes of metrics to an OpenTelemetry collector", ["outcome"])

_PART = "otlp"
_PATH = "/v1/metrics"
_UNITS = {"seconds": "s", "bytes": "By", "ratio": "1", "cores": "{core}", "pods": "{pod}"}


class Push:
    """Pushes all metrics of this process, until it is closed."""

    def __init__(self, settings: Otlp, service: dict[str, str], health: Health, call: Callable[..., object]) -> None:
        """Start a thread that pushes.

        Args:
            settings: Address and period.
            service: Resource attributes: who this is.
            health: Degraded while the collector takes nothing.
            call: Calls a function with arguments in the thread of `health`.

        Raises:
            SettingsError: The exporter's package is not installed.
        """
        self._sdk, exporter = _packages()
        self._address, self._seconds = address(settings.endpoint), settings.seconds
        self._exporter = exporter.OTLPMetricExporter(endpoint=self._address, timeout=min(10.0, settings.seconds))
        self._resource = self._sdk.Resource.create(
            {"service.version": RELEASE, "host.name": platform.node(), **service}
        )
        self._health, self._call = health, call
        self._start_ns = time.time_ns()
        self._closed = threading.Event()
        # The exporter logs every attempt; the health of the service says it once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop pushing; a push under way is given up."""
        self._closed.set()
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._closed.wait(self._seconds):
            try:
                taken = self._exporter.export(self._data()) is self._sdk.MetricExportResult.SUCCESS
            except Exception:  # noqa: BLE001 # whatever it is, the next push is tried
                taken = False
            if self._closed.is_set():
                return
            PUSHES.labels("taken" if taken else "failed").inc()
            try:
                if taken:
                    self._call(self._health.recover, _PART)
                else:
                    reason = f"the collector at {self._address} took no metrics; they are on /metrics meanwhile"
                    self._call(self._health.degrade, _PART, reason)
            except RuntimeError:  # the loop is closed
                return

    def _data(self) -> Any:
        sdk = self._sdk
        metrics = list(converted(sdk, REGISTRY.collect(), self._start_ns, time.time_ns()))
        scope = sdk.ScopeMetrics(sdk.InstrumentationScope("spazio", RELEASE), metrics, "")
        return sdk.MetricsData([sdk.ResourceMetrics(self._resource, [scope], "")])


def address(endpoint: str) -> str:
    """Return the address of a collector's metrics; a path that is given stays.

    >>> address("http://127.0.0.1:4318"), address("https://collector/otlp/v1/metrics")
    ('http://127.0.0.1:4318/v1/metrics', 'https://collector/otlp/v1/metrics')
    """
    parts = urlsplit(endpoint)
    return urlunsplit(parts if parts.path.strip("/") else parts._replace(path=_PATH))


def converted(sdk: Any, families: Iterable[Metric], start_ns: int, now_ns: int) -> Iterator[Any]:
    """Yield OpenTelemetry metrics of Prometheus families.

    Args:
        sdk: What `_packages` returns first.
        families: As a registry collects them.
        start_ns: Since when counters count, in nanoseconds since the epoch.
        now_ns: Time of the values.
    """

    def point(sample: Sample) -> Any:
        return sdk.NumberDataPoint(sample.labels, start_ns, now_ns, sample.value)

    for family in families:
        if family.type == "counter":
            points = [point(sample) for sample in family.samples if sample.name.endswith("_total")]
            data = sdk.Sum(points, sdk.AggregationTemporality.CUMULATIVE, is_monotonic=True)
        elif family.type == "histogram":
            points = list(_histograms(sdk, family, start_ns, now_ns))
            data = sdk.Histogram(points, sdk.AggregationTemporality.CUMULATIVE)
        else:
            points = [point(sample) for sample in family.samples]
            data = sdk.Gauge(points)
        if points:
            unit = family.unit or family.name.rpartition("_")[2]
            yield sdk.Metric(family.name, family.documentation, _UNITS.get(unit, ""), data)


def _histograms(sdk: Any, family: Metric, start_ns: int, now_ns: int) -> Iterator[Any]:
    """Yield a point for each set of labels; buckets of Prometheus include all below, those of OpenTelemetry do not."""
    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in family.samples:
        labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
        if sample.name.endswith("_bucket"):
            buckets.setdefault(labels, []).append((float(sample.labels["le"]), sample.value))
        elif sample.name.endswith("_sum"):
            sums[labels] = sample.value
    for labels, below in buckets.items():
        counts = [int(count - before) for (_, count), (_, before) in zip(below, [(0.0, 0.0), *below], strict=False)]
        yield sdk.HistogramDataPoint(
            attributes=dict(labels),
            start_time_unix_nano=start_ns,
            time_unix_nano=now_ns,
            count=int(below[-1][1]),
            sum=sums.get(labels, 0.0),
            bucket_counts=counts,
            explicit_bounds=[bound for bound, _ in below[:-1]],
            min=None,
            max=None,
        )


class _Sdk:
    """Names of the OpenTelemetry SDK that are needed, from the modules that publish them."""

    def __init__(self) -> None:
        modules = ("sdk.metrics.export", "sdk.resources", "sdk.util.instrumentation")
        self._modules = [importlib.import_module(f"opentelemetry.{name}") for name in modules]

    def __getattr__(self, name: str) -> Any:
        return next(getattr(module, name) for module in self._modules if hasattr(module, name))


def _packages() -> tuple[Any, Any]:
    """Return the SDK and the exporter's module.

    Raises:
        SettingsError: They are not installed.
    """
    try:
        return _Sdk(), importlib.import_module("opentelemetry.exporter.otlp.proto.http.metric_exporter")
    except ImportError:
        raise SettingsError(
            ["otlp endpoint: the OpenTelemetry exporter is needed for it: pip install '.[otlp]' in a checkout"]
        ) from None
