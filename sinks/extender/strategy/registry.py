"""All strategies by their names in the settings."""

from collections.abc import Callable, Mapping

from schemas.sections import placement
from schemas.sections.placement import Extender
from sinks.extender.strategy.availability import Availability
from sinks.extender.strategy.node_resources.least_allocated import LeastAllocated
from sinks.extender.strategy.node_resources.most_allocated import MostAllocated
from sinks.extender.strategy.node_resources.requested_to_capacity_ratio import RequestedToCapacityRatio, points
from sinks.extender.strategy.peak import Peak
from sinks.extender.strategy.protocol import Strategy
from sinks.extender.strategy.target_load_packing import TargetLoadPacking
from sinks.extender.strategy.weighted import Weighted

_MAKERS: Mapping[str, Callable[[Extender], Strategy]] = {
    Availability.name: lambda _: Availability(),
    Weighted.name: lambda settings: Weighted(placement.pairs(settings.factors), settings.high_priority),
    MostAllocated.name: lambda settings: MostAllocated(placement.pairs(settings.resources)),
    LeastAllocated.name: lambda settings: LeastAllocated(placement.pairs(settings.resources)),
    RequestedToCapacityRatio.name: lambda settings: RequestedToCapacityRatio(
        placement.pairs(settings.resources), points(settings.shape)
    ),
    TargetLoadPacking.name: lambda settings: TargetLoadPacking(settings.target),
    Peak.name: lambda _: Peak(),
}
NAMES: tuple[str, ...] = tuple(_MAKERS)


def needs_market(settings: Extender) -> bool:
    """Tell whether strategies of the settings rank by past prices or interruptions; pods' annotations may, too."""
    used = (settings.strategies, *(entry.partition(":")[2] for entry in settings.profiles))
    factors = placement.pairs(settings.factors)
    is_weighed = any(factors.get(name, 0.0) > 0 for name in ("price", "stability"))
    return is_weighed and any(Weighted.name in placement.weights(each) for each in used)


def make(weights: Mapping[str, float], settings: Extender) -> list[tuple[Strategy, float]]:
    """Return the strategies with these names, each with its weight.

    Raises:
        ValueError: No strategy has one of the names.
    """
    if unknown := sorted(set(weights) - set(NAMES)):
        raise ValueError(f"strategies: {', '.join(unknown)} is none of {', '.join(NAMES)}")
    return [(_MAKERS[name](settings), weight) for name, weight in weights.items()]
