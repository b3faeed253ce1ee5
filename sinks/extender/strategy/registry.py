"""All strategies by their names in the settings."""

from collections.abc import Callable, Mapping

from schemas.sections import ranking
from schemas.sections.placement import Extender
from sinks.extender.strategy.availability import Availability
from sinks.extender.strategy.node_resources.least_allocated import LeastAllocated
from sinks.extender.strategy.node_resources.most_allocated import MostAllocated
from sinks.extender.strategy.node_resources.requested_to_capacity_ratio import RequestedToCapacityRatio, points
from sinks.extender.strategy.peak import Peak
from sinks.extender.strategy.protocol import Strategy
from sinks.extender.strategy.target_load_packing import TargetLoadPacking
from sinks.extender.strategy.weighted import Weighted

_Maker = Callable[[Extender, Mapping[str, float]], Strategy]


def _weighted(settings: Extender, options: Mapping[str, float]) -> Strategy:
    factors = {name: weight for name, weight in options.items() if name != ranking.AVAILABLE}
    available = options.get(ranking.AVAILABLE, settings.minimum_availability)
    return Weighted(factors or ranking.pairs(settings.factors), settings.high_priority, available)


def _resources(settings: Extender, options: Mapping[str, float]) -> Mapping[str, float]:
    return ranking.named(options) or ranking.pairs(settings.resources)


def _by_curve(settings: Extender, options: Mapping[str, float]) -> Strategy:
    shape = ranking.curve(options) or settings.shape
    return RequestedToCapacityRatio(_resources(settings, options), points(shape))


_MAKERS: Mapping[str, _Maker] = {
    Availability.name: lambda *_: Availability(),
    Weighted.name: _weighted,
    MostAllocated.name: lambda *given: MostAllocated(_resources(*given)),
    LeastAllocated.name: lambda *given: LeastAllocated(_resources(*given)),
    RequestedToCapacityRatio.name: _by_curve,
    TargetLoadPacking.name: lambda settings, options: TargetLoadPacking(options.get(ranking.TARGET, settings.target)),
    Peak.name: lambda *_: Peak(),
}
NAMES: tuple[str, ...] = tuple(_MAKERS)


def make(terms: Mapping[str, ranking.Term], settings: Extender) -> list[tuple[Strategy, float]]:
    """Return the strategies with these names, each with its weight.

    Raises:
        ValueError: No strategy has one of the names.
    """
    if unknown := sorted(set(terms) - set(NAMES)):
        raise ValueError(f"strategies: {', '.join(unknown)} is none of {', '.join(NAMES)}")
    return [(_MAKERS[name](settings, term.options), term.weight) for name, term in terms.items()]
