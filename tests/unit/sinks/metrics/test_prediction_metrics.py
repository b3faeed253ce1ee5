"""What Prometheus gets of what is to come: newest, live, and bounded in number."""

import time

from prometheus_client import CollectorRegistry, generate_latest

from schemas.messages.prediction import Accuracy
from sinks.metrics.prediction import Ages, Foreseen, Predictions
from tests.support.processors import predicted


def now_us(age: float = 0.0) -> int:
    return int((time.time() - age) * 1e6)


def page(*messages: Foreseen) -> list[str]:
    registry, coming = CollectorRegistry(), Predictions(Ages(prediction=600, reject=4, forecast=15))
    for each in messages:
        coming.put(each)
    registry.register(coming)
    return [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]


def test_the_newest_prediction_of_a_node_has_gauges() -> None:
    lines = page(
        predicted.prediction(at_us=now_us(60), peak={"cpu": 9.0, "memory": 1.0}), predicted.prediction(at_us=now_us())
    )
    assert 'spazio_predicted_peak_cpu_cores{node="n1"} 1.5' in lines
    assert 'spazio_reclaimable_memory_bytes{node="n1"} 1e+09' in lines
    assert 'spazio_mid_allocatable_cpu_cores{node="n1"} 0.5' in lines
    assert not [line for line in lines if line.endswith(" 9.0")]


def test_a_peak_that_nothing_supports_has_no_gauge() -> None:
    lines = page(predicted.prediction(at_us=now_us(), assumed=["memory"]))
    assert [line.split("{")[0] for line in lines if "predicted_peak" in line] == ["spazio_predicted_peak_cpu_cores"]


def test_accuracy_is_weighed_by_how_many_predictions_were_judged() -> None:
    def accuracy(violations: float, settled: float) -> dict[str, Accuracy]:
        return {"max": Accuracy(violations=violations, severity=0.0, savings=0.5, settled=settled)}

    lines = page(
        predicted.prediction(node="a", at_us=now_us(), accuracy=accuracy(0.0, 3.0)),
        predicted.prediction(node="b", at_us=now_us(), accuracy=accuracy(0.4, 1.0)),
        predicted.prediction(node="c", at_us=now_us(), accuracy=None),
    )
    assert 'spazio_prediction_violation_ratio{model="max"} 0.1' in lines
    assert 'spazio_prediction_savings_ratio{model="max"} 0.5' in lines


def test_what_was_not_reported_for_three_reports_is_left_out() -> None:
    lines = page(
        predicted.reject(node="live", at_us=now_us(11)),
        predicted.reject(node="gone", at_us=now_us(13)),
        predicted.forecast(at_us=now_us(44)),
        predicted.forecast(workload="old", at_us=now_us(46)),
    )
    assert [line for line in lines if "spazio_reject{" in line] == ['spazio_reject{node="live"} 1.0']
    assert [line for line in lines if "desired" in line] == [
        'spazio_forecast_desired_pods{namespace="s",workload="Deployment/w"} 2.0'
    ]


def test_only_the_workloads_with_most_pods_have_gauges() -> None:
    lines = page(*(predicted.forecast(workload=f"w{pods}", pods=pods, at_us=now_us()) for pods in range(250)))
    assert "spazio_forecast_workloads 250.0" in lines
    assert len([line for line in lines if "spazio_forecast_cpu_cores{" in line]) == 200
    assert not [line for line in lines if "Deployment/w49" in line]


def test_a_workload_has_the_accuracy_of_its_chosen_model_once_some_was_judged() -> None:
    lines = page(
        predicted.forecast(at_us=now_us()),
        predicted.forecast(at_us=now_us(), workload="young", accuracy=None),
        predicted.forecast(at_us=now_us(), workload="other", model="last"),
    )
    assert [line for line in lines if "spazio_forecast_violation_ratio{" in line] == [
        'spazio_forecast_violation_ratio{namespace="s",workload="Deployment/w"} 0.25'
    ]
    assert [line for line in lines if "spazio_forecast_overprovision_ratio{" in line] == [
        'spazio_forecast_overprovision_ratio{namespace="s",workload="Deployment/w"} 0.2'
    ]
