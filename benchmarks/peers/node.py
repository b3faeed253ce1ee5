"""The fold of one node, written for one node: numpy for what has ten samples, Python's own numbers for the rest.

The formulas are those of `processors` in the default variant, without a global model; each function names the module
that it follows. What no availability is made of is not computed: most metrics are never smoothed, and classes of pods,
container events, sums, clocks and late blocks are not known here. It is long because it is one program in one file, as
somebody would write it who needs no more than this.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.estimation import level, limit, slowdown
from processors.workload.reported import CHANGE_SHARE
from schemas import codec, metric
from schemas.messages.estimate import Availability
from schemas.messages.telemetry import SampleBlock
from schemas.sections.estimation import Estimate
from schemas.settings import Settings

Array = NDArray[np.float64]

FEATURES = ("cpu", "memory", "memory_pressure", "io_pressure", "disk")
_COLUMNS = [
    metric.NAMES.index(name)
    for name in ("cpu_util", "memory_util", "memory_pressure", "io_pressure", "disk_util", "cpu_pressure",
                 "cpu_throttled")
]  # fmt: skip
_PRESSURE, _THROTTLED = 5, 6
_PODS = metric.NAMES.index("pods")
_HIGH = np.array([limits.high for limits in metric.METRICS])
_WINDOW, _GAP_SECONDS = 7, 2.5
_TEN = np.arange(10)[:, None] + np.arange(_WINDOW)
_NEWS, _QUIET, _FLOOR, _SMALL_COST, _FULL = 0.05, 1e-8, 1e-9, 1e-3, 1 - 1e-6
_ALL_ASSUMED, _HALF_ASSUMED, _WANDER = 0.999, 0.5, 0.15
_ONE_SIDED_90 = 1.2815515655446004


class Expected(NamedTuple):
    """What `direction` and `capacity_signal` say of the node."""

    signal: float
    gap: float
    explained: float


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


@dataclass(slots=True)
class Evidence:
    """State of `least_squares` for one feature; what features share is in `Node`."""

    usage: float = 0.0
    products: float = 0.0
    noise: float = 0.0
    baseline: float = math.nan


@dataclass(slots=True)
class Level:
    """State of `level` for one resource."""

    mean: float = math.nan
    variance: float = 0.0
    product: float = 0.0
    last: float = 0.0
    seconds: float = 0.0
    age: float = 0.0

    def update(self, value: float, seconds: float, *, hold: bool) -> None:
        """Follow `level.update`."""
        first = math.isnan(self.mean)
        live = not math.isnan(value) and (first or not hold)
        span = seconds if live else 0.0
        deviation = value - self.mean if live and not first else 0.0
        bound = 16.0 * (self.variance + 1e-4)
        step = deviation * deviation > bound and self.age >= 4.0
        followed = min(self.seconds, level.SLOW_SECONDS)
        gain = (
            -math.expm1(-span / level.FAST_SECONDS)
            if step
            else span / (followed + span)
            if followed + span > 0
            else 0.0
        )
        held = math.copysign(math.sqrt(bound), deviation) if step else deviation
        age = min(self.age, 60.0) + span
        part = span / age if live and not first and age > 0 else 0.0
        self.mean = value if live and first else self.mean + gain * deviation
        self.variance += part * (held * held - self.variance)
        self.product += part * (held * self.last - self.product)
        self.last = held if live else self.last
        self.seconds = 2.0 * span if step else self.seconds + span
        self.age = (min(self.age, 4.0) if step else self.age) + span

    @property
    def correlated(self) -> float:
        """Follow `level.correlated`."""
        correlation = min(max(self.product / self.variance if self.variance > 0 else 0.0, 0.0), 0.9)
        return (1 + correlation) / (1 - correlation)

    @property
    def doubt(self) -> float:
        """Follow `level.doubt`."""
        averaged = min(max(self.seconds, 1.0), level.SLOW_SECONDS)
        return min(self.correlated / averaged, 1.0) * self.variance


@dataclass(slots=True)
class Published:
    """State of `report`."""

    at_us: int = 0
    since_us: int = 0
    available: float = 0.0
    pods: float = 0.0
    seen: tuple[int, bool, bool] = (0, False, False)


class Written:
    """One node.

    Attributes:
        name: Of the node.
        room: Its availability after the newest block, not rounded.
    """

    def __init__(self, settings: Settings) -> None:
        """Start without any block.

        Raises:
            ValueError: The settings ask for another variant, form or window than the default.
        """
        if settings.model.variant != "default" or settings.estimate.form or settings.smoothing.window != _WINDOW:
            raise ValueError("this fold is written for the default variant, estimator and window of 7 samples")
        self.name = ""
        self._settings = settings
        self._estimate: Estimate = settings.estimate
        self._window = np.full((_WINDOW - 1, len(_COLUMNS)), np.nan)
        self._moment = np.zeros((len(FEATURES), len(FEATURES)))
        self._published = Published()
        self._evidence = [Evidence() for _ in FEATURES]
        self._levels = [Level(), Level()]
        self._assumed: list[float] = []
        self._limits, self._share = [0.0, 0.0], [1.0, 1.0]
        self._headroom = (self._estimate.headroom_cpu, self._estimate.headroom_memory)
        self._costs = [0.0, 0.0]
        self._weight = self._mean_pods = self._squares = self._noise_weight = 0.0
        self._pods, self._seq = 0.0, -1
        self._at_us = self._changed_us = self._quiet_us = 0
        self.room: Room | None = None

    def fold(self, _subject: str, payload: bytes) -> bytes | None:
        """Take in a block with all metrics; return the availability that is due, as JSON."""
        try:
            read = codec.decode(SampleBlock, payload)
        except codec.Refused:
            return None
        raw = np.array(read.values, dtype=np.float64).reshape(-1, len(read.metrics))
        if tuple(read.metrics) != metric.NAMES or (raw < 0).any() or (raw > _HIGH).any() or read.seq <= self._seq:
            return None
        self.name, first = read.node, self._seq < 0
        length = len(raw) * read.step_us / 1e6
        at_us = read.at_us + (len(raw) - 1) * read.step_us
        elapsed = length if first else min(max((at_us - self._at_us) / 1e6, 0.0), 3600.0)
        if elapsed > _GAP_SECONDS * length:
            self._window = np.full_like(self._window, np.nan)
        features, quick = self._features(raw[:, _COLUMNS])
        usage = features[:, -1].tolist()
        if not quick:
            usage = [_newest(column) for column in features.tolist()]
        counted = _newest(raw[:, _PODS].tolist())
        pods = self._pods if math.isnan(counted) else counted
        churn, settling = self._churn(pods, at_us, first=first)
        still = settling and self._estimate.hold_in_churn
        slow = not np.isnan(raw[:, _COLUMNS[_PRESSURE]]).all()
        prior = self._assumed if still and self._assumed else self._prior(read, slow=slow)
        self._assumed = prior
        running = _mean(raw[:, _COLUMNS[0]].tolist()) * read.cpus
        sizes = read.cpus * (self._estimate.slowdown if slow else 1.0), read.memory_bytes
        demanded = [running / sizes[0], *usage[1:]]
        self._follow(read, demanded, sizes, pods, elapsed, settling=settling)
        # The first block has no baseline yet, so the model learns nothing of it.
        self._learn_moment(features, 0.0 if still else elapsed, quick=quick)
        full = running >= limit.PLATEAU * read.cpus
        if not (still or full or usage[1] >= _FULL or math.isnan(counted)):
            self._learn_cost(
                demanded, pods, elapsed, [self._cost(index, share)[0] for index, share in enumerate(prior)]
            )
        expected = self._expected(usage)
        room = self.room = self._room(pods, prior, settling=settling)
        self._pods, self._seq, self._at_us = pods, read.seq, at_us
        if not self._due(room, pods, at_us, churn=churn, settling=settling):
            return None
        if math.isnan(usage[0]) or math.isnan(usage[1]):
            return None
        return self._say(read, running, usage, expected, room, churn=churn, settling=settling)

    def _follow(
        self,
        read: SampleBlock,
        demanded: list[float],
        sizes: tuple[float, float],
        pods: float,
        elapsed: float,
        *,
        settling: bool,
    ) -> None:
        """Follow `limit` and the levels of `chain`."""
        allowed = slowdown.share(self._settings.slowdown, read.cpus) * read.cpus
        evicted = min(self._settings.policy.eviction_bytes, read.memory_bytes / 2)
        self._limits = [allowed, read.memory_bytes - evicted]
        self._share = [size / limit for size, limit in zip(sizes, self._limits, strict=True)]
        for followed, used, share in zip(self._levels, demanded, self._share, strict=False):
            if pods != self._pods:
                followed.seconds = 0.0
            followed.update(used * share, elapsed, hold=settling)
        memory = demanded[1] * self._share[1]
        if not math.isnan(memory):
            self._levels[1].mean = memory

    def _features(self, raw: Array) -> tuple[Array, bool]:
        """Follow `running_median` and `resource`: features (features, samples), and whether none is missing."""
        series = np.concatenate((self._window, raw))
        self._window = series[-_WINDOW + 1 :]
        samples = len(raw)
        rows = np.arange(samples)[:, None] + np.arange(_WINDOW) if samples != 10 else _TEN
        ordered = series.T[:, rows]
        ordered.sort(axis=2)
        quick = not np.isnan(ordered[:, :, -1]).any()  # what is missing is sorted last
        middle = ordered[:, :, _WINDOW // 2] if quick else _median_of_known(ordered)
        pressure = middle[_PRESSURE] * (1.0 - (middle[_THROTTLED] if quick else np.nan_to_num(middle[_THROTTLED])))
        blend = np.minimum(1.0, (middle[0] + pressure) / self._estimate.slowdown)
        middle[0] = blend if quick else np.where(np.isnan(pressure), middle[0], blend)
        return middle[: len(FEATURES)], quick

    def _churn(self, pods: float, at_us: int, *, first: bool) -> tuple[bool, bool]:
        """Follow `local`: whether the number of pods has just changed, and whether that is still worth waiting for."""
        if not first and pods != self._pods:
            self._changed_us = at_us
        churn = self._changed_us > 0 and abs(at_us - self._changed_us) < self._estimate.settle_seconds * 1e6
        if not churn or first:
            self._quiet_us = at_us
        return churn, churn and at_us - self._quiet_us <= self._estimate.churn_limit_seconds * 1e6

    def _prior(self, read: SampleBlock, *, slow: bool) -> list[float]:
        """Follow `global_model`: the cost that is assumed of a pod, per feature."""
        cores = read.cpus * (self._estimate.slowdown if slow else 1.0)
        cpu, memory = self._estimate.pod_cores / cores, self._estimate.pod_memory_bytes / read.memory_bytes
        return [min(cpu, 1.0), min(memory, 1.0), _SMALL_COST, _SMALL_COST, _SMALL_COST]

    def _learn_moment(self, features: Array, elapsed: float, *, quick: bool) -> None:
        """Follow `second_moment`, of usage above the baseline."""
        baseline = [evidence.baseline for evidence in self._evidence]
        above = np.maximum(features - np.array(baseline)[:, None], 0.0)
        if not quick or math.isnan(sum(baseline)):
            above[np.isnan(features).all(axis=1)] = 0.0
            above = above[:, ~np.isnan(above).any(axis=0)]
        count = above.shape[1]
        if count and elapsed:
            share = 1.0 if self._seq < 0 else -math.expm1(-elapsed / self._settings.model.tau_seconds)
            self._moment = (1 - share) * self._moment + share / count * (above @ above.T)

    def _cost(self, index: int, prior: float) -> tuple[float, float, float]:
        """Follow `least_squares.cost`: value, variance, share of the prior."""
        evidence = self._evidence[index]
        noise = max(evidence.noise, _QUIET)
        slope = max(evidence.products / self._squares, 0.0) if self._squares > 0 else 0.0
        assumed = 1.0 / (self._estimate.prior_deviation * max(prior, slope)) ** 2
        total = self._squares / noise + assumed
        value = (max(evidence.products, 0.0) / noise + prior * assumed) / total
        return max(value, _FLOOR), 1.0 / total, assumed / total

    def _learn_cost(self, usage: list[float], pods: float, elapsed: float, value: list[float]) -> None:
        """Follow `least_squares.update`."""
        fade = math.exp(-elapsed / self._estimate.memory_seconds)
        first = self._weight == 0
        squares = self._squares
        self._weight = self._weight * fade + elapsed
        share = elapsed / self._weight if self._weight > 0 else 0.0
        step = pods - self._mean_pods
        kept = fade if abs(step) > _NEWS else 1.0
        gain = 0.0 if first else (1.0 - share) * elapsed
        self._squares = self._squares * kept + gain * step * step
        self._noise_weight = self._noise_weight * fade + elapsed
        part = elapsed / self._noise_weight if self._noise_weight > 0 else 0.0
        follow = 1.0 - math.exp(-elapsed / self._estimate.level_seconds)
        for evidence, used, cost in zip(self._evidence, usage, value, strict=True):
            if math.isnan(used):
                continue
            rise = used - evidence.usage
            line = max(evidence.products / squares, 0.0) if squares > 0 else cost
            residual = 0.0 if first else rise - line * step
            evidence.products = evidence.products * kept + gain * step * rise
            evidence.noise += part * (residual * residual - evidence.noise)
            evidence.usage += share * rise
            without = max(used - cost * pods, 0.0)
            has_baseline = not math.isnan(evidence.baseline)
            evidence.baseline = evidence.baseline + follow * (without - evidence.baseline) if has_baseline else without
        self._mean_pods += share * step

    def _expected(self, usage: list[float]) -> Expected:
        """Follow `direction` and `capacity_signal`."""
        values, vectors = np.linalg.eigh(self._moment)
        strengths, vector = values.tolist(), vectors[:, -1].tolist()
        first = max(strengths[-1], 0.0)
        gap = max(strengths[-2], 0.0) / first if first else 1.0
        explained = min(first / float(self._moment.trace()), 1.0) if first else 0.0
        size, least = math.sqrt(first), 1 / self._estimate.max_pods
        if not first:
            vector = [len(FEATURES) ** -0.5] * len(FEATURES)
        headroom = (*self._headroom, 0.0, 0.0, 0.0)
        fits = [
            (1 - kept - used) / max(size * abs(share), least)
            for kept, used, share in zip(headroom, usage, vector, strict=True)
            if not math.isnan(used)
        ]
        signal = min(max(min(fits), 0.0), float(self._estimate.max_pods)) if fits else math.nan
        return Expected(signal, gap, explained)

    def _room(self, pods: float, prior: list[float], *, settling: bool) -> Room:
        """Follow `availability`, of cpu and memory."""
        scarce, resource, cost, variance, most_assumed, capacity = math.inf, 0, 0.0, 0.0, 0.0, math.nan
        costs = [self._cost(index, prior[index]) for index in range(2)]
        defined = pods == 0 and all(assumed > _ALL_ASSUMED for _, _, assumed in costs)
        alone = settling and all(assumed <= _HALF_ASSUMED for _, _, assumed in costs)
        for index, headroom in enumerate(self._headroom):
            value, spread, assumed = costs[index]
            self._costs[index] = value
            share, used = self._share[index], self._levels[index]
            value, spread = value * share, spread * share**2 * used.correlated
            spread = 0.0 if defined else spread + (_WANDER * value) ** 2
            beside = used.mean - value * pods
            baseline = self._evidence[index].baseline * share if settling else beside
            baseline = beside if math.isnan(baseline) else baseline
            most = max(1.0 - headroom - (used.mean if math.isnan(baseline) else baseline), 0.0)
            learned = max(most / value - pods, 0.0)
            room = learned if alone else min(max(1.0 - headroom - used.mean, 0.0) / value, learned)
            if index == 0 or room < scarce:
                scarce = math.inf if math.isnan(room) else room
                resource, cost, variance, most_assumed, capacity = index, value, spread, assumed, most
        left = max(self._estimate.max_pods - pods, 0.0)
        available, is_known = min(scarce, left), math.isfinite(scarce)
        wander = self._levels[resource].doubt + (limit.DOUBT**2 if resource == 0 else 0.0)
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

    def _due(self, room: Room, pods: float, at_us: int, *, churn: bool, settling: bool) -> bool:
        """Follow `report.update`."""
        published, now = self._published, (room.binding, churn, settling)
        turned = published.at_us == 0 or now != published.seen
        waited = (at_us - published.at_us) / 1e6
        published.seen = now
        if turned:
            published.since_us = at_us
        least = max(self._estimate.change_pods, CHANGE_SHARE * published.available)
        change = abs(room.available - published.available) >= least
        late = waited >= self._estimate.report_seconds - 0.5 or waited < 0
        if not (turned or change or late or pods != published.pods):
            return False
        published.at_us, published.available, published.pods = at_us, room.available, pods
        return True

    def _say(
        self,
        read: SampleBlock,
        running: float,
        usage: list[float],
        expected: Expected,
        room: Room,
        *,
        churn: bool,
        settling: bool,
    ) -> bytes:
        """Follow `report.availabilities`."""
        free = []
        for index, headroom in enumerate(self._headroom):
            learned = (self._evidence[index].baseline + self._costs[index] * self._pods) * self._share[index]
            believed = learned if settling and not math.isnan(learned) else self._levels[index].mean
            free.append(_ratio(max(1.0 - headroom - believed, 0.0)))
        message = Availability(
            node=read.node,
            at_us=self._at_us,
            seq=read.seq,
            available=round(room.available, 4),
            lower=round(room.lower, 4),
            upper=round(room.upper, 4),
            signal=round(expected.signal, 4),
            cost=round(room.cost, 9),
            capacity=round(room.capacity, 6),
            pods=int(self._pods),
            binding="pods" if room.binding < 0 else FEATURES[room.binding],
            mode="capacity" if settling else "signal",
            churn=churn,
            prior=_ratio(room.prior),
            usage={name: _ratio(used) for name, used in zip(FEATURES, usage, strict=True) if not math.isnan(used)},
            explained=_ratio(expected.explained),
            gap=_ratio(expected.gap),
            free=dict(zip(FEATURES[:2], free, strict=True)),
            limits={name: round(amount, 4) for name, amount in zip(FEATURES, self._limits, strict=False)},
            since_us=self._published.since_us,
            cpu_used=None if math.isnan(running) else _ratio(running / read.cpus),
        )
        return codec.encode(message)


def _ratio(value: float) -> float:
    return min(max(round(value, 6), 0.0), 1.0)


def _mean(series: list[float]) -> float:
    """Return the mean of what is not missing."""
    finite = [value for value in series if not math.isnan(value)]
    return sum(finite) / len(finite) if finite else math.nan


def _newest(series: list[float]) -> float:
    """Return the last value that is not missing."""
    return next((value for value in reversed(series) if not math.isnan(value)), math.nan)


def _median_of_known(ordered: Array) -> Array:
    count = np.count_nonzero(~np.isnan(ordered), axis=2)[..., None]
    lower = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=2)
    upper = np.take_along_axis(ordered, np.minimum(count // 2, _WINDOW - 1), axis=2)
    median: Array = (0.5 * (lower + upper))[..., 0]
    return median
