"""What is to come as Prometheus gauges: peaks and what they leave, how predictions have held, rejects, forecasts."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from schemas.messages.prediction import Accuracy, Forecast, Prediction, Reject, Resources
from sinks.metrics.heard import Heard

Said = Prediction | Reject | Forecast

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


class Outlooks(Collector):
    """The newest prediction and reject signal of each node, and forecast of each workload."""

    def __init__(self, report_seconds: Ages) -> None:
        """Start empty; what was not said for three times so long is left out."""
        self._expiry = {
            kind: _REPORTS_MISSED * seconds for kind, seconds in zip(KINDS.values(), report_seconds, strict=True)
        }
        self._newest: dict[tuple[str, ...], Said] = {}
        self._heard = {kind: Heard[tuple[str, ...]](seconds) for kind, seconds in self._expiry.items()}

    def put(self, said: Said) -> None:
        """Take in one message."""
        self._newest[_place(said)] = said
        self._heard[type(said)].note(_place(said))

    def free(self) -> None:
        """Drop all of which nothing has come for as long as its numbers count."""
        for heard in self._heard.values():
            for place in heard.silent():
                self._newest.pop(place, None)

    def collect(self) -> Iterable[Metric]:
        """Yield the gauges of all that was said lately."""
        now, live = time.time(), list[Said]()
        for place, said in list(self._newest.items()):
            if said.at_us / 1e6 >= now - self._expiry[type(said)]:
                live.append(said)
            elif self._newest.get(place) is said:
                del self._newest[place]
        predictions = [said for said in live if isinstance(said, Prediction)]
        yield from _peaks(predictions)
        yield from _accuracy(predictions)
        yield from _rejects([said for said in live if isinstance(said, Reject)])
        yield from _forecasts([said for said in live if isinstance(said, Forecast)])


def _place(said: Said) -> tuple[str, ...]:
    if isinstance(said, Forecast):
        return said.namespace, said.kind, said.workload
    return type(said).__name__, said.node


def _peaks(predictions: Iterable[Prediction]) -> Iterator[Metric]:
    said = list(predictions)
    yield from _pairs("spazio_predicted_peak", "predicted peak of the node", [(one.node, one.peak) for one in said])
    yield from _pairs(
        "spazio_reclaimable", "requests that will not be needed", [(one.node, one.reclaimable) for one in said]
    )
    lent = [(one.node, one.mid[one.formula]) for one in said if one.formula in one.mid]
    yield from _pairs("spazio_mid_allocatable", "what may be lent to the Mid tier", lent)


def _pairs(name: str, text: str, rows: Iterable[tuple[str, Resources]]) -> Iterator[Metric]:
    listed = list(rows)
    for resource, unit in _UNITS:
        family = GaugeMetricFamily(f"{name}_{resource}_{unit}", text, labels=["node"])
        for node, pair in listed:
            family.add_metric([node], getattr(pair, resource))
        yield family


def _accuracy(predictions: Iterable[Prediction]) -> Iterator[Metric]:
    """Yield how each model's predictions have held over all nodes, each node's by how many were judged."""
    by_model: dict[str, list[Accuracy]] = defaultdict(list)
    for said in predictions:
        for model, one in (said.accuracy or {}).items():
            by_model[model].append(one)
    for name, field, text in (
        ("violation_ratio", "violations", "share of predictions that the peak went beyond"),
        ("severity_ratio", "severity", "mean of how far beyond, as a share of the peak"),
        ("savings_ratio", "savings", "mean share of what nodes have that predictions left free"),
    ):
        family = GaugeMetricFamily(f"spazio_prediction_{name}", text, labels=["model"])
        for model, found in by_model.items():
            settled = sum(one.settled for one in found)
            if settled:
                family.add_metric([model], sum(getattr(one, field) * one.settled for one in found) / settled)
        yield family


def _rejects(rejects: Iterable[Reject]) -> Iterator[Metric]:
    raised = GaugeMetricFamily("spazio_reject", "1 while PRONTO's signal rejects new jobs", labels=["node"])
    score = GaugeMetricFamily("spazio_reject_score", "share of the directions' weight that spikes", labels=["node"])
    for said in rejects:
        raised.add_metric([said.node], said.reject)
        score.add_metric([said.node], said.score)
    yield from (raised, score)


def _forecasts(forecasts: Iterable[Forecast]) -> Iterator[Metric]:
    said = sorted(forecasts, key=lambda one: (-one.pods, one.namespace, one.workload))
    yield GaugeMetricFamily("spazio_forecast_workloads", "workloads forecast, with or without gauges", value=len(said))
    labels = ["namespace", "workload"]
    cpu = GaugeMetricFamily("spazio_forecast_cpu_cores", "cores that its pods will use", labels=labels)
    pods = GaugeMetricFamily("spazio_forecast_desired_pods", "pods that takes at the target", labels=labels)
    for one in said[:_MOST_WORKLOADS]:
        name = [one.namespace, f"{one.kind}/{one.workload}"]
        cpu.add_metric(name, one.forecast.cpu)
        pods.add_metric(name, one.desired)
    yield from (cpu, pods)
