"""The external metrics: what is served of a forecast, under which name, in the API's words.

Source: Kubernetes, `k8s.io/metrics/pkg/apis/external_metrics/v1beta1`.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from schemas.messages.prediction import Forecast

GROUP = "external.metrics.k8s.io"
VERSION = f"{GROUP}/v1beta1"
_KIND = "ExternalMetricValueList"
_METRICS: Mapping[str, Callable[[Forecast], str]] = {
    "spazio-forecast-cpu": lambda each: f"{round(each.forecast.cpu * 1000)}m",
    "spazio-forecast-memory": lambda each: str(round(each.forecast.memory)),
    "spazio-forecast-pods": lambda each: str(each.desired),
}
NAMES = tuple(_METRICS)


def resources() -> dict[str, Any]:
    """Return the APIResourceList, by which the API server sees that the version is served."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": VERSION,
        "resources": [
            {"name": name, "singularName": "", "namespaced": True, "kind": _KIND, "verbs": ["get"]} for name in NAMES
        ],
    }


def values(
    name: str, forecasts: Iterable[Forecast], matches: Callable[[Mapping[str, str]], bool]
) -> dict[str, Any] | None:
    """Return the ExternalMetricValueList of a metric; None: there is no such metric.

    Args:
        name: The metric.
        forecasts: Of one namespace, none of them too old: an autoscaler keeps its pods while it gets no value.
        matches: Tells whether labels are asked for.
    """
    value_of = _METRICS.get(name)
    if value_of is None:
        return None
    labelled = [({"kind": each.kind, "workload": each.workload}, each) for each in forecasts]
    return {
        "kind": _KIND,
        "apiVersion": VERSION,
        "metadata": {},
        "items": [
            {
                "metricName": name,
                "metricLabels": labels,
                "timestamp": datetime.fromtimestamp(each.at_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                "value": value_of(each),
            }
            for labels, each in labelled
            if matches(labels)
        ],
    }


def status(code: int, reason: str, message: str) -> dict[str, Any]:
    """Return a Status, as the API answers what it cannot do."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }
