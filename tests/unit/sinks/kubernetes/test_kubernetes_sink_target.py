"""Pods by the autoscaler's own targets: each kind, both resources, and what its controller does at the edges."""

from typing import Any

import pytest

from schemas.messages.prediction import Forecast, Resources
from sinks.kubernetes import target
from sinks.kubernetes.target import Target
from tests.support.processors.predicted import forecast


def metric(name: str, **aim: Any) -> dict[str, Any]:
    kind = "Utilization" if "averageUtilization" in aim else "AverageValue"
    return {"type": "Resource", "resource": {"name": name, "target": {"type": kind, **aim}}}


def forecast_of(cpu: float, memory: float = 1e9, *, pods: int = 4, requested: float = 4.0) -> Forecast:
    """Return a forecast for pods that use 2 cores and 2 GB together and ask for one core and 1 GB each."""
    return forecast(
        pods=pods,
        requested=Resources(cpu=requested, memory=4e9),
        current=Resources(cpu=2.0, memory=2e9),
        forecast=Resources(cpu=cpu, memory=memory),
        desired=77,
    )


def test_targets_in_cpu_and_memory_are_read_and_others_are_not() -> None:
    metrics = [
        metric("cpu", averageUtilization=50),
        metric("memory", averageValue="512Mi"),
        metric("example.com/gpu", averageValue="1"),
        {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "3"}}},
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c"}},
    ]
    result = target.read({"metrics": metrics}, None)
    assert result == (Target("cpu", utilization=0.5), Target("memory", average=float(512 << 20)))
    assert target.read({}, None) == ()


@pytest.mark.parametrize(
    ("text", "share"), [("0.6", 0.6), ("1", 1.0), ("0", 0.5), ("60", 0.5), ("x", 0.5), ("nan", 0.5)]
)
def test_an_annotation_replaces_them_if_it_is_a_share(text: str, share: float) -> None:
    spec = {"metrics": [metric("cpu", averageUtilization=50)]}
    assert target.read(spec, text) == (Target("cpu", utilization=share),)


@pytest.mark.parametrize(
    ("seen", "targets", "pods"),
    [
        (forecast_of(6), [Target("cpu", utilization=0.5)], 12),
        (forecast_of(6), [Target("cpu", utilization=0.8)], 8),
        (forecast_of(6), [Target("cpu", average=0.25)], 24),
        (forecast_of(6, 6e9), [Target("memory", average=5e8)], 12),
        (forecast_of(6, 6e9), [Target("memory", utilization=0.5)], 12),
        # The greatest of all metrics counts.
        (forecast_of(6, 6e9), [Target("cpu", utilization=0.5), Target("memory", average=3e8)], 20),
        # No rise in the resource.
        (forecast_of(2), [Target("cpu", utilization=0.1)], 0),
        (forecast_of(6, 2e9), [Target("memory", utilization=0.1)], 0),
        # Within a tenth of the target the controller leaves the pods as they are; beyond it does not.
        (forecast_of(2.19), [Target("cpu", utilization=0.5)], 4),
        (forecast_of(2.21), [Target("cpu", utilization=0.5)], 5),
        # Without requests there is no utilization, and an amount is one nevertheless.
        (forecast_of(6, requested=0.0), [Target("cpu", utilization=0.5)], 0),
        (forecast_of(6, requested=0.0), [Target("cpu", average=0.5)], 12),
        (forecast_of(6, pods=0), [Target("cpu", average=0.5)], 0),
        (forecast_of(6), [], 77),
    ],
)
def test_pods_are_those_that_the_controller_would_want(seen: Forecast, targets: list[Target], pods: int) -> None:
    assert target.pods(seen, tuple(targets)) == pods


def test_the_tolerance_is_that_of_each_direction() -> None:
    behavior = {"scaleUp": {"tolerance": "0"}, "scaleDown": {"tolerance": "50m"}}
    metrics = [metric("cpu", averageUtilization=50), metric("memory", averageValue="1")]
    result = target.read({"metrics": metrics, "behavior": behavior}, None)
    assert [(each.tolerance, each.tolerance_down) for each in result] == [(0.0, 0.05)] * 2
    (own,) = target.read({"behavior": behavior}, "0.5")
    assert (own.utilization, own.tolerance, own.tolerance_down) == (0.5, 0.0, 0.05)
    (default,) = target.read(
        {"metrics": metrics[:1], "behavior": {"scaleUp": None, "scaleDown": {"policies": []}}}, None
    )
    assert (default.tolerance, default.tolerance_down) == (0.1, 0.1)
    with pytest.raises(ValueError, match="much"):
        target.read({"metrics": metrics, "behavior": {"scaleUp": {"tolerance": "much"}}}, None)


@pytest.mark.parametrize(
    ("cpu", "tolerance", "pods"),
    # At a target of half a core for each of four pods, 2.2 cores are a tenth above it.
    [(2.19, "0.1", 4), (2.19, "0.05", 5), (2.01, "0", 5), (2.59, "0.3", 4), (2.61, "0.3", 6)],
)
def test_a_rise_within_the_autoscalers_own_tolerance_adds_no_pods(cpu: float, tolerance: str, pods: int) -> None:
    spec = {"metrics": [metric("cpu", averageUtilization=50)], "behavior": {"scaleUp": {"tolerance": tolerance}}}
    assert target.pods(forecast_of(cpu), target.read(spec, None)) == pods
