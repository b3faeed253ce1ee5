"""How many cores the lower tiers of a node may use now: a controller that suppresses fast and releases slowly.

What production leaves free, less a reserve, is lent to Mid and Batch pods together. The limit falls to that at once and
rises by a bounded step a second. Usage alone sees a shortage only when the node is full, so the pressure of production
(the share of time that its threads wait for a CPU) acts too: from a high mark on the limit is halved each second, and
below that and above a low mark it does not rise (hysteresis, as a Schmitt trigger has it). Koordinator's koordlet
suppresses by usage in the same way (`cpuSuppressThresholdPercent`). Each tier keeps a floor, so Batch never stops.
Where that does not help, or memory runs out, the output names a reason to evict.

Laws: limits lie within floor and node; more use by production or more pressure never gives a higher limit; a limit
rises by at most `release` a second, and never while usage is unknown; unknown pressure counts as none; evictions are at
least `evict_seconds` apart.
"""

import math
from dataclasses import dataclass
from typing import Literal

_MID_GROWTH = 1.5  # Mid pods may use this multiple of what they use before Batch pods get the rest

Reason = Literal["cpu", "memory"]


@dataclass(frozen=True, slots=True)
class Params:
    """Settings of the controller; shares of the node are ratios 0..1.

    Attributes:
        reserve: Share of the node's cores that stays free beyond what production uses.
        floor: Share of the node's cores that each tier keeps.
        pressure_high: Pressure from which the limit is halved each second.
        pressure_low: Pressure below which the limit rises.
        release: Share of the node's cores by which the limit rises per second, at most.
        memory_low: Share of memory that is available, below which to evict.
        evict: Whether to evict at all.
        evict_after_seconds: Time for which pressure is high at the floor before an eviction.
        evict_seconds: Time between two evictions.
    """

    reserve: float
    floor: float
    pressure_high: float
    pressure_low: float
    release: float
    memory_low: float
    evict: bool
    evict_after_seconds: float
    evict_seconds: float


@dataclass(frozen=True, slots=True)
class Input:
    """What was measured since the step before; None: unknown.

    Attributes:
        elapsed_seconds: Time since the step before.
        cores: CPUs of the node.
        production_cores: Cores that everything but the lower tiers uses.
        pressure: Share of time that threads of production wait for a CPU, 0..1.
        memory_available: Share of the node's memory that is available, 0..1.
        mid_cores: Cores that Mid pods use together; None: there are none.
        batch: Whether there are Batch pods.
    """

    elapsed_seconds: float
    cores: float
    production_cores: float | None
    pressure: float | None
    memory_available: float | None
    mid_cores: float | None
    batch: bool


@dataclass(frozen=True, slots=True)
class State:
    """What the next step depends on.

    Attributes:
        lent_cores: Limit of both tiers together; None: there is none yet.
        strained_seconds: Time for which pressure has been high with nothing left to suppress.
        evicted_seconds: Time since the last eviction.
    """

    lent_cores: float | None = None
    strained_seconds: float = 0.0
    evicted_seconds: float = math.inf


@dataclass(frozen=True, slots=True)
class Output:
    """Limits, in cores.

    Attributes:
        lent_cores: Of both tiers together; a tier's floor may exceed it.
        mid_cores: Of all Mid pods together.
        batch_cores: Of all Batch pods together.
        at_floor: Nothing is left to suppress.
        evict: Why one pod is to be evicted now; None: none is.
    """

    lent_cores: float
    mid_cores: float
    batch_cores: float
    at_floor: bool
    evict: Reason | None


def update(state: State, seen: Input, *, params: Params) -> tuple[State, Output]:
    """Take one step.

    >>> params = Params(0.2, 0.02, 0.2, 0.1, 0.02, 0.05, False, 30, 60)
    >>> seen = Input(1, 10, production_cores=5, pressure=0, memory_available=0.5, mid_cores=None, batch=True)
    >>> update(State(), seen, params=params)[1].batch_cores
    3.0
    """
    floor = params.floor * seen.cores
    lent = _lent(state.lent_cores, seen, params)
    at_floor = lent <= floor
    is_high = seen.pressure is not None and seen.pressure >= params.pressure_high
    strained = state.strained_seconds + seen.elapsed_seconds if is_high and at_floor else 0.0
    evicted = state.evicted_seconds + seen.elapsed_seconds
    reason = _reason(strained, evicted, seen, params)
    mid, batch = _split(lent, seen, floor)
    after = State(lent, 0.0 if reason else strained, 0.0 if reason else evicted)
    return after, Output(lent, mid, batch, at_floor, reason)


def _lent(before: float | None, seen: Input, params: Params) -> float:
    """Return the limit of both tiers together, in cores."""
    floor = params.floor * seen.cores
    start = seen.cores if before is None else min(before, seen.cores)
    target = start
    if seen.production_cores is not None:
        target = seen.cores * (1 - params.reserve) - seen.production_cores
    pressure = 0.0 if seen.pressure is None else seen.pressure
    if pressure >= params.pressure_high:
        target = min(target, start * 0.5**seen.elapsed_seconds)
    elif pressure >= params.pressure_low:
        target = min(target, start)
    return max(floor, min(target, start + params.release * seen.cores * seen.elapsed_seconds))


def _split(lent: float, seen: Input, floor: float) -> tuple[float, float]:
    """Return the limits of Mid and of Batch: Mid first, each at least the floor."""
    if seen.mid_cores is None:
        return floor, lent
    if not seen.batch:
        return lent, floor
    batch = min(lent, max(floor, lent - _MID_GROWTH * seen.mid_cores))
    return max(floor, lent - batch), batch


def _reason(strained: float, evicted: float, seen: Input, params: Params) -> Reason | None:
    if not params.evict or evicted < params.evict_seconds or (seen.mid_cores is None and not seen.batch):
        return None
    if seen.memory_available is not None and seen.memory_available < params.memory_low:
        return "memory"
    return "cpu" if strained >= params.evict_after_seconds else None
