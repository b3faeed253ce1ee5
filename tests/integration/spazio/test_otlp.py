"""Metrics pushed over OTLP: what a receiver that speaks the protocol gets from a service."""

import asyncio
import gzip
import http.server
import importlib
import threading
from collections.abc import Iterator

import prometheus_client
import pytest
from nats.aio.client import Client
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric

from bus.health import Health
from schemas.sections.bus import Otlp
from schemas.settings import Settings, SettingsError
from spazio.service import service
from spazio.service.web import otlp
from tests.conftest import NatsServer


class Collector:
    """A receiver of OTLP over HTTP.

    Attributes:
        requests: What came, oldest first.
        status: What it answers.
    """

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Content-Encoding"] == "gzip":
                    body = gzip.decompress(body)
                if self.path == "/v1/metrics" and collector.status == 200:
                    collector.headers.append(dict(self.headers))
                    collector.requests.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(collector.status)
                self.send_header("Content-Type", "application/x-protobuf")
                self.end_headers()
                self.wfile.write(ExportMetricsServiceResponse().SerializeToString())

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def metrics(self) -> dict[str, Metric]:
        """Return the metrics that came last."""
        (resource,) = self.requests[-1].resource_metrics
        return {metric.name: metric for metric in resource.scope_metrics[0].metrics}

    def resource(self) -> dict[str, str]:
        """Return who sent them."""
        (resource,) = self.requests[-1].resource_metrics
        return {each.key: each.value.string_value for each in resource.resource.attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.server.shutdown()
    made.server.server_close()


async def until(check: object, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not check():  # type: ignore[operator]  # noqa: ASYNC110 # another thread makes it
            await asyncio.sleep(0.05)


async def test_a_service_pushes_what_its_metrics_page_shows(
    collector: Collector, client: Client, settings: Settings, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    pushing = settings.model_copy(
        update={
            "otlp": Otlp(endpoint=collector.url, seconds=0.2),
            "http": settings.http.model_copy(update={"port": 0}),
        }
    )
    counter = prometheus_client.Counter("pushed_things", "things", ["kind"])
    histogram = prometheus_client.Histogram("pushed_wait_seconds", "waits", buckets=(0.1, 1.0))
    counter.labels("a").inc(3)
    for wait in (0.05, 0.5, 0.6, 7.0):
        histogram.observe(wait)

    async def work(_: service.Context) -> None:
        await until(lambda: collector.requests)

    try:
        assert await service._serve("metrics", pushing, work, streams=False) == 0
    finally:
        prometheus_client.REGISTRY.unregister(counter)
        prometheus_client.REGISTRY.unregister(histogram)
    metrics = collector.metrics()
    assert {"pushed_things", "pushed_wait_seconds", "spazio_build_info", "spazio_nats_connected"} <= metrics.keys()
    (point,) = metrics["pushed_things"].sum.data_points
    assert (point.as_double, point.attributes[0].value.string_value) == (3, "a")
    assert metrics["pushed_things"].sum.is_monotonic
    assert metrics["pushed_things"].sum.aggregation_temporality == (
        AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    assert 0 < point.start_time_unix_nano < point.time_unix_nano
    (waits,) = metrics["pushed_wait_seconds"].histogram.data_points
    assert (waits.count, waits.sum, list(waits.bucket_counts), list(waits.explicit_bounds)) == (
        4,
        pytest.approx(8.15),
        [1, 2, 1],
        [0.1, 1.0],
    )
    assert metrics["pushed_wait_seconds"].unit == "s"
    resource = collector.resource()
    assert (resource["service.namespace"], resource["service.name"]) == ("spazio", "metrics")
    assert resource["service.instance.id"].startswith("127.0.0.1:")
    assert collector.headers[-1]["authorization"] == "Bearer token"


async def test_a_collector_that_takes_nothing_degrades_the_service_until_it_does(collector: Collector) -> None:
    health, loop = Health(), asyncio.get_running_loop()
    collector.status = 400
    push = otlp.Push(Otlp(endpoint=collector.url, seconds=0.1), {}, health, loop.call_soon_threadsafe)
    try:
        await until(lambda: "otlp" in health.problems)
        assert f"{collector.url}/v1/metrics took no metrics" in health.problems["otlp"]
        collector.status = 200
        await until(lambda: not health.problems)
    finally:
        push.close()


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: str) -> None:
        raise ImportError

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(SettingsError, match=r"pip install '\.\[otlp\]'"):
        otlp.Push(Otlp(endpoint="http://127.0.0.1:4318"), {}, Health(), lambda *_: None)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:4318", "http://", "grpc://c:4317", "http://u:p@c:4318", "http://a b"])
def test_an_address_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match="is one address, like"):
        Otlp(endpoint=endpoint)
