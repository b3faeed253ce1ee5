"""Predictions as Prometheus gauges: peaks, the resources they leave, their accuracy, rejects and forecasts."""

import time
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from schemas.messages.prediction import Accuracy, Forecast, Prediction, Reject, Resources
from sinks.metrics.heard import Heard

Foreseen = Prediction | Reject | Forecast

KINDS: dict[str, type[Prediction] | type[Reject] | type[Forecast]] = {
    "prediction": Prediction,
    "reject": Reject,
    "forecast": Forecast,
}
_UNITS = (("cpu", "cores"), ("memory", "bytes"))
_MOST_WORKLOADS = 200  # a cluster may have thousands, and users choose the names of workloads
_REPORTS_MISSED = 3


class Ages(NamedTuple):
    """Seconds after which the last message is stale."""

    prediction: float
    reject: float
    forecast: float


class Predictions(Collector):
    """The newest prediction and reject signal of each node, and forecast of each workload."""

    def __init__(self, report_seconds: Ages) -> None:
        """Start empty; a series without a message for three times so long is left out."""
        self._expiry = {
            kind: _REPORTS_MISSED * seconds for kind, seconds in zip(KINDS.values(), report_seconds, strict=True)
        }
        self._newest: dict[tuple[str, ...], Foreseen] = {}
        self._heard = {kind: Heard[tuple[str, ...]](seconds) for kind, seconds in self._expiry.items()}

    def put(self, message: Foreseen) -> None:
        """Take in one message."""
        self._newest[_key(message)] = message
        self._heard[type(message)].note(_key(message))

    def free(self) -> None:
        """Drop all of which nothing has come for as long as its numbers count."""
        for heard in self._heard.values():
            for key in heard.silent():
                self._newest.pop(key, None)

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges of all recent messages."""
        now, live = time.time(), list[Foreseen]()
        for key, message in list(self._newest.items()):
            if message.at_us / 1e6 >= now - self._expiry[type(message)]:
                live.append(message)
            elif self._newest.get(key) is message:
                del self._newest[key]
        predictions = [message for message in live if isinstance(message, Prediction)]
        yield from _peaks(predictions)
        yield from _accuracy(predictions)
        yield from _rejects([message for message in live if isinstance(message, Reject)])
        yield from _forecasts([message for message in live if isinstance(message, Forecast)])


def _key(message: Foreseen) -> tuple[str, ...]:
    if isinstance(message, Forecast):
        return message.namespace, message.kind, message.workload
    return type(message).__name__, message.node


def _peaks(predictions: Iterable[Prediction]) -> Iterator[Metric]:
    listed = list(predictions)
    yield from _pairs(
        "spazio_predicted_peak",
        "predicted peak of the node, if something supports it",
        [(prediction.node, prediction.peak, prediction.assumed or ()) for prediction in listed],
    )
    yield from _pairs(
        "spazio_reclaimable",
        "requests that will not be needed",
        [(prediction.node, prediction.reclaimable, ()) for prediction in listed],
    )
    lent = [
        (prediction.node, prediction.mid[prediction.formula], ())
        for prediction in listed
        if prediction.formula in prediction.mid
    ]
    yield from _pairs("spazio_mid_allocatable", "what may be lent to the Mid tier", lent)


def _pairs(name: str, text: str, rows: Sequence[tuple[str, Resources, Container[str]]]) -> Iterator[Metric]:
    """Yield the gauges of each node's resources, without those that are named beside them."""
    for resource, unit in _UNITS:
        family = GaugeMetricFamily(f"{name}_{resource}_{unit}", text, labels=["node"])
        for node, pair, left_out in rows:
            if resource not in left_out:
                family.add_metric([node], getattr(pair, resource))
        yield family


def _accuracy(predictions: Iterable[Prediction]) -> Iterator[Metric]:
    """Yield how each model's predictions have held over all nodes, each node's by how many were judged."""
    by_model: dict[str, list[Accuracy]] = defaultdict(list)
    for prediction in predictions:
        for model, each in (prediction.accuracy or {}).items():
            by_model[model].append(each)
    for name, field, text in (
        ("violation_ratio", "violations", "share of predictions that the peak went beyond"),
        ("severity_ratio", "severity", "mean of how far beyond, as a share of the peak"),
        ("savings_ratio", "savings", "mean share of what nodes have that predictions left free"),
    ):
        family = GaugeMetricFamily(f"spazio_prediction_{name}", text, labels=["model"])
        for model, judged in by_model.items():
            settled = sum(each.settled for each in judged)
            if settled:
                family.add_metric([model], sum(getattr(each, field) * each.settled for each in judged) / settled)
        yield family


def _rejects(rejects: Iterable[Reject]) -> Iterator[Metric]:
    raised = GaugeMetricFamily("spazio_reject", "1 while PRONTO's signal rejects new jobs", labels=["node"])
    score = GaugeMetricFamily("spazio_reject_score", "share of the directions' weight that spikes", labels=["node"])
    for each in rejects:
        raised.add_metric([each.node], each.reject)
        score.add_metric([each.node], each.score)
    yield from (raised, score)


def _forecasts(forecasts: Iterable[Forecast]) -> Iterator[Metric]:
    listed = sorted(forecasts, key=lambda each: (-each.pods, each.namespace, each.workload))
    yield GaugeMetricFamily(
        "spazio_forecast_workloads", "workloads forecast, with or without gauges", value=len(listed)
    )
    labels = ["namespace", "workload"]
    cpu = GaugeMetricFamily("spazio_forecast_cpu_cores", "cores that its pods will use", labels=labels)
    pods = GaugeMetricFamily("spazio_forecast_desired_pods", "pods that takes at the target", labels=labels)
    violated = GaugeMetricFamily(
        "spazio_forecast_violation_ratio", "share of the chosen model's forecasts that usage exceeded", labels=labels
    )
    unused = GaugeMetricFamily(
        "spazio_forecast_overprovision_ratio", "mean share of its forecasts that was not used", labels=labels
    )
    for each in listed[:_MOST_WORKLOADS]:
        name = [each.namespace, f"{each.kind}/{each.workload}"]
        cpu.add_metric(name, each.forecast.cpu)
        pods.add_metric(name, each.desired)
        if (judged := (each.accuracy or {}).get(each.model)) is not None:
            violated.add_metric(name, judged.violations)
            unused.add_metric(name, judged.overprovision)
    yield from (cpu, pods, violated, unused)
