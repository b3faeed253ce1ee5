"""How many pods a forecast takes by the targets of the autoscaler itself, computed as its controller would.

Of each metric of type Resource, the controller compares usage with a target: `Utilization`, per cent of the requests,
or `AverageValue`, an amount per pod. It wants ceil(usage / target per pod), leaves the number of pods as it is while
the ratio of usage and target is within a tolerance of 1, and takes the greatest of its metrics. A metric that it cannot
compute, as utilization of pods without requests, does not count. The tolerance is a tenth in both directions, unless
`spec.behavior` states another one.

Source: Kubernetes 1.36, `pkg/controller/podautoscaler`: `replica_calculator.go`, `horizontal.go`; KEP-4951.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from kube import quantity
from schemas.messages.prediction import Forecast

RESOURCES = ("cpu", "memory")
TOLERANCE = 0.1
_MOST = 1_000_000
_ROUNDING = 1e-9


class Target(NamedTuple):
    """What an autoscaler aims at in one resource.

    Attributes:
        resource: cpu or memory.
        utilization: Share of the requests, above 0; None: `average` counts.
        average: Cores or bytes of a pod, above 0; None: `utilization` counts.
        tolerance: Largest excess of usage over the target, as a share of it, that adds no pods.
        tolerance_down: The same of what is missing, that removes none.
    """

    resource: str
    utilization: float | None = None
    average: float | None = None
    tolerance: float = TOLERANCE
    tolerance_down: float = TOLERANCE


def read(spec: Mapping[str, Any], override: str | None) -> tuple[Target, ...]:
    """Return the targets of an autoscaler; empty: it has none in CPU or memory.

    Args:
        spec: Its `spec`.
        override: Text of the annotation: utilization of CPU that counts instead, above 0 and up to 1. Another text
            counts as absent.

    Raises:
        ValueError: An amount or a tolerance is no quantity.
    """
    behavior = spec.get("behavior") or {}
    up, down = (_tolerance(behavior.get(rules)) for rules in ("scaleUp", "scaleDown"))
    share = _share(override)
    if share is not None:
        return (Target("cpu", share, tolerance=up, tolerance_down=down),)
    targets = []
    for metric in spec.get("metrics") or ():
        resource = metric.get("resource") or {}
        if metric.get("type") == "Resource" and resource.get("name") in RESOURCES:
            aim = resource.get("target") or {}
            if aim.get("type") == "Utilization" and aim.get("averageUtilization", 0) > 0:
                targets.append(Target(resource["name"], aim["averageUtilization"] / 100, None, up, down))
            elif aim.get("type") == "AverageValue" and (average := float(quantity.parse(aim["averageValue"]))) > 0:
                targets.append(Target(resource["name"], None, average, up, down))
    return tuple(targets)


def pods(forecast: Forecast, targets: tuple[Target, ...]) -> int:
    """Return the pods that a forecast takes; 0: it foresees no rise, or nothing can be computed.

    Without targets, the pods and the rise are those that the forecast names, by `forecast.target`.
    """
    if not targets:
        return forecast.desired if forecast.raises else 0
    return max(_wanted(forecast, target) for target in targets)


def _wanted(forecast: Forecast, target: Target) -> int:
    usage, now, requested = (
        float(getattr(amounts, target.resource))
        for amounts in (forecast.forecast, forecast.current, forecast.requested)
    )
    if not forecast.pods or usage <= now:
        return 0
    aim = target.average if target.utilization is None else target.utilization * requested / forecast.pods
    if not aim:
        return 0
    wanted = usage / aim
    if 1 - target.tolerance_down <= wanted / forecast.pods <= 1 + target.tolerance:
        return forecast.pods
    return min(math.ceil(wanted - _ROUNDING), _MOST)


def _tolerance(rules: Mapping[str, Any] | None) -> float:
    stated = (rules or {}).get("tolerance")
    return TOLERANCE if stated is None else float(quantity.parse(stated))


def _share(text: str | None) -> float | None:
    try:
        share = float(text or "")
    except ValueError:
        return None
    return share if 0 < share <= 1 else None
