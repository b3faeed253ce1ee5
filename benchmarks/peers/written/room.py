"""How many more pods fit: `availability` of cpu and memory, for one node."""

import math
from typing import NamedTuple

from benchmarks.peers.written.level import Levels
from processors.estimation import limit
from schemas.sections.estimation import Estimate

_ALL_ASSUMED, _HALF_ASSUMED, _WANDER = 0.999, 0.5, 0.15
_ONE_SIDED_90 = 1.2815515655446004


class Room(NamedTuple):
    """What `availability` says of the node; `binding` and `resource` index the features, -1 is the pod limit."""

    available: float
    lower: float
    upper: float
    binding: int
    cost: float
    capacity: float
    resource: int
    prior: float


def of(
    pods: float,
    costs: list[tuple[float, float, float]],
    baselines: list[float],
    levels: Levels,
    estimate: Estimate,
    *,
    settling: bool,
) -> Room:
    """Follow `availability`; costs and baselines are those of cpu and memory, as `Costs` has them."""
    scarce, resource, cost, variance, most_assumed, capacity = math.inf, 0, 0.0, 0.0, 0.0, math.nan
    defined = pods == 0 and all(assumed > _ALL_ASSUMED for _, _, assumed in costs)
    alone = settling and all(assumed <= _HALF_ASSUMED for _, _, assumed in costs)
    for index, headroom in enumerate((estimate.headroom_cpu, estimate.headroom_memory)):
        value, spread, assumed = costs[index]
        share, used = levels.share[index], levels.each[index]
        value, spread = value * share, spread * share**2 * used.correlated
        spread = 0.0 if defined else spread + (_WANDER * value) ** 2
        beside = used.mean - value * pods
        baseline = baselines[index] * share if settling else beside
        baseline = beside if math.isnan(baseline) else baseline
        most = max(1.0 - headroom - (used.mean if math.isnan(baseline) else baseline), 0.0)
        learned = max(most / value - pods, 0.0)
        room = learned if alone else min(max(1.0 - headroom - used.mean, 0.0) / value, learned)
        if index == 0 or room < scarce:
            scarce = math.inf if math.isnan(room) else room
            resource, cost, variance, most_assumed, capacity = index, value, spread, assumed, most
    left = max(estimate.max_pods - pods, 0.0)
    available, is_known = min(scarce, left), math.isfinite(scarce)
    wander = levels.each[resource].doubt + (limit.DOUBT**2 if resource == 0 else 0.0)
    reach = (scarce if is_known else 0.0) + pods
    deviation = _ONE_SIDED_90 * math.sqrt(wander + variance * reach * reach) / cost
    believed = scarce if is_known else left
    return Room(
        available,
        math.floor(min(max(believed - deviation, 0.0), available) + 1e-9),
        max(min(believed + deviation, left), available),
        -1 if left < scarce else resource,
        cost,
        0.0 if math.isnan(capacity) else capacity,
        resource,
        most_assumed,
    )
