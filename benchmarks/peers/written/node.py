"""The fold of one node, written for one node: numpy for what has ten samples, Python's own numbers for the rest.

The formulas are those of `processors` in the default variant, without a global model; each function names the module
that it follows. What no availability is made of is not computed: most metrics are never smoothed, and classes of pods,
container events, sums, clocks and late blocks are not known here. The modules beside it do one step each.
"""

import math
from dataclasses import dataclass

import numpy as np

from benchmarks.peers.written import room as rooms
from benchmarks.peers.written.cost import Costs
from benchmarks.peers.written.level import Levels
from benchmarks.peers.written.model import Expected, Model
from benchmarks.peers.written.room import Room
from benchmarks.peers.written.series import COLUMNS, FEATURES, PRESSURE, WINDOW, Series, mean, newest
from processors.estimation import limit
from processors.workload.reported import CHANGE_SHARE
from schemas import codec, metric
from schemas.messages.estimate import Availability
from schemas.messages.telemetry import SampleBlock
from schemas.sections.estimation import Estimate
from schemas.settings import Settings

_COLUMNS = [metric.NAMES.index(name) for name in COLUMNS]
_PODS = metric.NAMES.index("pods")
_HIGH = np.array([limits.high for limits in metric.METRICS])
_GAP_SECONDS, _FULL = 2.5, 1 - 1e-6


@dataclass(slots=True)
class Published:
    """State of `report`."""

    at_us: int = 0
    since_us: int = 0
    available: float = 0.0
    pods: float = 0.0
    seen: tuple[int, bool] = (0, False)
    churn: bool = False


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
        if settings.model.variant != "default" or settings.estimate.form or settings.smoothing.window != WINDOW:
            raise ValueError("this fold is written for the default variant, estimator and window of 7 samples")
        self.name = ""
        self._estimate: Estimate = settings.estimate
        self._series, self._model = Series(settings.estimate.slowdown), Model(settings)
        self._costs, self._levels = Costs(settings.estimate), Levels(settings)
        self._published = Published()
        self._assumed: list[float] = []
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
            self._series.clear()
        features, quick = self._series.features(raw[:, _COLUMNS])
        usage = features[:, -1].tolist()
        if not quick:
            usage = [newest(column) for column in features.tolist()]
        counted = newest(raw[:, _PODS].tolist())
        pods = self._pods if math.isnan(counted) else counted
        churn, settling = self._churn(pods, at_us, first=first)
        still = settling and self._estimate.hold_in_churn
        slow = not np.isnan(raw[:, _COLUMNS[PRESSURE]]).all()
        prior = self._assumed if still and self._assumed else self._costs.prior(read, slow=slow)
        self._assumed = prior
        running = mean(raw[:, _COLUMNS[0]].tolist()) * read.cpus
        sizes = read.cpus * (self._estimate.slowdown if slow else 1.0), read.memory_bytes
        demanded = [running / sizes[0], *usage[1:]]
        self._levels.update(read, demanded, sizes, elapsed, moved=pods != self._pods, settling=settling)
        # The first block has no baseline yet, so the model learns nothing of it.
        baseline = [evidence.baseline for evidence in self._costs.evidence]
        self._model.learn(features, baseline, 0.0 if still else elapsed, first=first, quick=quick)
        self._costs.resize(sizes)
        full = running >= limit.PLATEAU * read.cpus
        if not (still or full or usage[1] >= _FULL or math.isnan(counted)):
            before = [self._costs.of(index, share)[0] for index, share in enumerate(prior)]
            self._costs.learn(demanded, pods, elapsed, before)
        expected = self._model.expected(usage)
        costs = [self._costs.of(index, prior[index]) for index in range(2)]
        baselines = [evidence.baseline for evidence in self._costs.evidence[:2]]
        room = self.room = rooms.of(pods, costs, baselines, self._levels, self._estimate, settling=settling)
        self._pods, self._seq, self._at_us = pods, read.seq, at_us
        if not self._due(room, pods, at_us, churn=churn, settling=settling):
            return None
        if math.isnan(usage[0]) or math.isnan(usage[1]):
            return None
        used = self._used([value for value, _, _ in costs], baselines, settling=settling)
        return self._report(read, running, usage, expected, room, used, churn=churn, settling=settling)

    def _churn(self, pods: float, at_us: int, *, first: bool) -> tuple[bool, bool]:
        """Follow `local`: whether the number of pods has just changed, and whether that is still worth waiting for."""
        if not first and pods != self._pods:
            self._changed_us = at_us
        churn = self._changed_us > 0 and abs(at_us - self._changed_us) < self._estimate.settle_seconds * 1e6
        if not churn or first:
            self._quiet_us = at_us
        return churn, churn and abs(at_us - self._quiet_us) <= self._estimate.churn_limit_seconds * 1e6

    def _due(self, room: Room, pods: float, at_us: int, *, churn: bool, settling: bool) -> bool:
        """Follow `report.update`."""
        published, now = self._published, (room.binding, settling)
        turned = published.at_us == 0 or now != published.seen
        waited = (at_us - published.at_us) / 1e6
        unsettled = churn != published.churn
        published.seen, published.churn = now, churn
        if turned:
            published.since_us = at_us
        least = max(self._estimate.change_pods, CHANGE_SHARE * published.available)
        change = abs(room.available - published.available) >= least
        late = waited >= self._estimate.report_seconds - 0.5 or waited < 0
        if not (turned or unsettled or change or late or pods != published.pods):
            return False
        published.at_us, published.available, published.pods = at_us, room.available, pods
        return True

    def _used(self, costs: list[float], baselines: list[float], *, settling: bool) -> list[float]:
        """Follow `chain.conclude`: the share of cpu and memory that pods may have which they take."""
        used = []
        for cost, baseline, share, level in zip(costs, baselines, self._levels.share, self._levels.each, strict=True):
            learned = (baseline + cost * self._pods) * share
            used.append(learned if settling and not math.isnan(learned) else level.mean)
        return used

    def _report(
        self,
        read: SampleBlock,
        running: float,
        usage: list[float],
        expected: Expected,
        room: Room,
        used: list[float],
        *,
        churn: bool,
        settling: bool,
    ) -> bytes:
        """Follow `report.availabilities`."""
        headroom = self._estimate.headroom_cpu, self._estimate.headroom_memory
        free = [_ratio(max(1.0 - kept - taken, 0.0)) for kept, taken in zip(headroom, used, strict=True)]
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
            limits={name: round(amount, 4) for name, amount in zip(FEATURES, self._levels.limits, strict=False)},
            since_us=self._published.since_us,
            cpu_used=None if math.isnan(running) else _ratio(running / read.cpus),
            excess=round(max(1.0, *used) - 1.0, 4),
        )
        return codec.encode(message)


def _ratio(value: float) -> float:
    return min(max(round(value, 6), 0.0), 1.0)
