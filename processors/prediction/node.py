"""Statistics of all nodes of a partition and of their pods, and what is predicted of some of them.

Statistics are kept of every group of a node and of every pod. What the calibrated model learns from all nodes is used
only from the end of a window of the partition's event time on, so that it does not matter which nodes came together.
A pod of a known workload starts with the statistics of another pod of it, alive or gone.
"""

from collections.abc import Callable, Container, Iterator, KeysView, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors.decode import Head
from processors.prediction import check, peaks, rejects, report, statistic
from processors.prediction.check import Check, Closed
from processors.prediction.pod import Pods
from processors.prediction.scoring import accuracy, adaptive, calibration, clock, conformal
from processors.prediction.scoring.calibration import Calibration
from processors.prediction.tier import group, slew
from processors.prediction.tier.allocatable import Allocatable
from processors.prediction.warm_start import WarmStart
from processors.rows import table
from schemas.sections.prediction import PEAK_MODELS, Predict
from schemas.settings import Settings

Array = NDArray[np.float64]
Rows = NDArray[np.intp]
Times = NDArray[np.int64]

_COLUMNS = 2 * group.COUNT
_SLOTS = 8  # predictions of a node that wait for their horizon
_WHOLE_NODE = [2 * group.NODE, 2 * group.NODE + 1]  # among the resources of all groups
_RECENT = 10  # windows of the mean that Koordinator takes over five minutes


class _State(NamedTuple):
    """Of each node.

    Attributes:
        calibrated: Of that model; its resources are those of all groups, one behind the other.
        adaptive: What it knows beside mean and scale.
        accuracy: How the predictions have held.
        report: What was published.
        slew: What the Mid tier got.
        rejects: PRONTO's signal.
        recent: (nodes, windows, parts, resources) mean usage of the newest windows, of the node and outside its pods.
        windows: (nodes,) windows so far.
        sizes: (nodes, resources) what the machine has.
    """

    calibrated: conformal.State
    adaptive: adaptive.State
    accuracy: accuracy.State
    report: report.State
    slew: slew.State
    rejects: rejects.State
    recent: Array
    windows: NDArray[np.int64]
    sizes: Array


class Nodes:
    """State of all nodes and pods of one partition.

    Attributes:
        allocatable: What Kubernetes gives to pods of each node.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._params = calibration.params(settings.predict, _SLOTS)
        self._slots: dict[str, int] = {}
        self.allocatable = Allocatable()
        self._state = self._empty(0)
        self._groups, self._pods = statistic.init(0), statistic.init(0)
        self._warm_start = WarmStart(settings.predict.workloads)
        self._half_lives = statistic.half_lives(settings.predict)
        self._calibration = Calibration(_COLUMNS, settings.predict)

    @property
    def names(self) -> KeysView[str]:
        """The nodes that are known."""
        return self._slots.keys()

    @property
    def rejects(self) -> rejects.State:
        """PRONTO's signal of each node, by slot."""
        return self._state.rejects

    def slots(self, names: Container[str]) -> Rows:
        """Return the slots of those of the nodes that are known, in the order in which they became known."""
        return np.array([slot for name, slot in self._slots.items() if name in names], dtype=np.intp)

    def of_group(self, node: str, number: int) -> statistic.State:
        """Return the statistics of a group of a node, as one row."""
        return table.take(self._groups, self._row(node, number))

    def put_group(self, node: str, number: int, own: statistic.State) -> None:
        """Replace the statistics of a group of a node."""
        table.put(self._groups, self._row(node, number), own)

    def _row(self, node: str, number: int) -> Rows:
        return np.array([self._slots[node] * group.COUNT + number])

    def pod(self, slot: int) -> statistic.State:
        """Return the statistics of a pod, as one row."""
        self.extend(slot + 1)
        return table.take(self._pods, np.array([slot]))

    def put_pod(self, slot: int, own: statistic.State) -> None:
        """Replace the statistics of a pod."""
        self.extend(slot + 1)
        table.put(self._pods, np.array([slot]), own)

    def slot(self, node: str) -> int:
        """Return the slot of a node."""
        slot = self._slots.get(node)
        if slot is None:
            slot = self._slots[node] = len(self._slots)
            if slot >= len(self._state.windows):
                more = max(16, slot)
                self._state = table.extend(self._state, self._empty(more))
                self._groups = table.extend(self._groups, statistic.init(more * group.COUNT))
        return slot

    def extend(self, pods: int) -> None:
        """Have at least so many slots for pods."""
        if (short := pods - len(self._pods.moments.at_us)) > 0:
            self._pods = table.extend(self._pods, statistic.init(max(64, short, pods // 2)))

    def predict(
        self, heads: Sequence[Head], slots: Rows, checks: Sequence[Check], settings: Predict
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Fold windows that have ended, predict, yield index and fields to publish; heads are of the newest blocks."""
        self._state.sizes[slots] = [(head.cpus, head.memory_bytes) for head in heads]
        self._turn(statistic.half_lives(settings))
        at_us = np.array([each.at_us for each in checks], dtype=np.int64)
        ended = [index for index, each in enumerate(checks) if each.closed is not None]
        closed = [window for each in checks if (window := each.closed) is not None]
        usage = self._close(slots[ended], closed, at_us[ended], settings) if ended else np.zeros((0, 2))
        state, capacity = self._state, self.allocatable.of([head.node for head in heads], self._state.sizes[slots])
        pods = check.pods(checks, at_us, statistic.read(self._pods, check.slots(checks), settings), settings)
        result = peaks.predict(self._nodes(slots, capacity, settings), pods, settings)
        if ended:
            supported = np.where(result.assumed[ended], np.nan, result.peaks[ended, group.NODE])
            self._score(slots[ended], usage, supported, capacity[ended], at_us[ended], settings)
        last = table.take(state.slew, slots)
        lent = slew.update(last, result.mid, capacity, at_us, settings.mid_rise, self._params.gap_seconds)
        table.put(self._state.slew, slots, lent)
        result = result._replace(mid=lent.lent)
        windows, before = state.windows[slots], table.take(state.report, slots)
        published, reason = report.update(before, report.measures(result, settings), at_us, windows > 0, settings)
        table.put(self._state.report, slots, published)
        recorded = state.calibrated.weight[slots[:, None], _WHOLE_NODE] > 0
        stated = self._calibration.stated_of(_WHOLE_NODE, recorded)
        violation = np.where(settings.model == "calibrated", stated, np.nan)
        scored = accuracy.summary(state.accuracy._replace(sums=table.take(state.accuracy.sums, slots)))
        fields = report.ReportFields(at_us, capacity, violation, scored, windows)
        due, nodes = np.flatnonzero(reason >= 0).tolist(), [head.node for head in heads]
        return report.fields(due, nodes, result, fields, reason, settings)

    def _turn(self, half_lives: tuple[float, float]) -> None:
        """Let all statistics fade with these half-lives from here on."""
        if half_lives == self._half_lives:
            return
        self._groups, self._pods = (
            statistic.turn(part, self._half_lives, half_lives) for part in (self._groups, self._pods)
        )
        self._warm_start.turn(self._half_lives, half_lives)
        self._half_lives = half_lives

    def _close(self, slots: Rows, closed: Sequence[Closed], at_us: Times, settings: Predict) -> Array:
        """Take in windows that have ended; returns the usage (windows, resources) of the whole nodes."""
        usage = check.usage(closed)
        times = np.repeat(at_us, group.COUNT)
        statistic.add(self._groups, group.rows(slots), usage.by_group.reshape(-1, 2), times, settings)
        exists = usage.slot >= 0
        statistic.add(self._pods, usage.slot[exists], usage.by_pod[exists], at_us[usage.window[exists]], settings)

        state = self._state
        old, recent, windows = table.take(state.calibrated, slots), state.recent[slots], state.windows[slots]
        shares = (usage.by_group / state.sizes[slots][:, None, :]).reshape(len(slots), -1)
        recent[at_us - old.at_us > settings.update_seconds * _RECENT * 1e6] = np.nan
        recent[np.arange(len(slots)), windows % _RECENT] = usage.mean
        own, adapted, self._calibration.today = adaptive.update(
            clock.set_back(old, at_us, self._params.gap_seconds),
            table.take(state.adaptive, slots),
            self._calibration.today,
            shares,
            at_us,
            in_force=self._calibration.in_force,
            params=self._params,
        )
        table.put(state.calibrated, slots, own)
        table.put(state.adaptive, slots, adapted)
        state.recent[slots], state.windows[slots] = recent, windows + 1
        return usage.by_group[:, group.NODE]

    def _score(
        self, slots: Rows, usage: Array, predicted: Array, limit: Array, at_us: Times, settings: Predict
    ) -> None:
        """Score predictions whose horizon has passed, and let the new ones wait."""
        params = accuracy.params(settings.horizon_seconds, _SLOTS, self._params.gap_seconds)
        old = clock.set_back(table.take(self._state.accuracy, slots), at_us, params.gap_seconds)
        scored = accuracy.update(old, usage, predicted, limit, at_us, params=params)
        table.put(self._state.accuracy, slots, scored)

    def _nodes(self, slots: Rows, capacity: Array, settings: Predict) -> peaks.Nodes:
        shape, recent = (len(slots), group.COUNT, 2), self._state.recent[slots]
        rows = adaptive.read(self._state.calibrated, self._state.adaptive, slots)
        spread = adaptive.spread(*rows, self._calibration.in_force, params=self._params)
        is_known = ~np.isnan(recent)
        count, sums = is_known.sum(axis=1), np.where(is_known, recent, 0.0).sum(axis=1)
        mean = np.divide(sums, count, out=np.full_like(sums, np.nan), where=count > 0)
        return peaks.Nodes(
            statistics=statistic.read(self._groups, group.rows(slots), settings),
            capacity=self._state.sizes[slots],
            allocatable=capacity,
            usage=mean[:, 0],
            system=mean[:, 1],
            spread=conformal.Spread(*(part.reshape(shape) for part in spread)),
        )

    def keep(self, gone: set[str], pods: Pods, present: Container[str], oldest: Callable[[str], int]) -> None:
        """Forget nodes that are gone, and pods without news since an event second; see `Pods.keep`."""
        self.extend(pods.slots)
        before = pods.slots
        kept = pods.keep(gone, present, oldest)
        if kept != list(range(before)):
            self._warm_start.keep(self._pods, {old: new for new, old in enumerate(kept)})
            self._pods = table.take(self._pods, np.array(kept, dtype=np.intp))
        if not gone & self._slots.keys():
            return
        kept_nodes = {name: slot for name, slot in self._slots.items() if name not in gone}
        slots = np.array(list(kept_nodes.values()), dtype=np.intp)
        self._state = table.take(self._state, slots)
        self._groups = table.take(self._groups, group.rows(slots))
        self._slots = {name: slot for slot, name in enumerate(kept_nodes)}

    def adopt(self, pods: Pods, second: int, settings: Predict) -> None:
        """Put in force what was learned until an event second, and let new pods of known workloads inherit."""
        self._calibration.enforce(second, settings.violation)
        self.extend(pods.slots)
        self._warm_start.adopt(pods, self._pods)

    def _empty(self, nodes: int) -> _State:
        return _State(
            calibrated=conformal.init(nodes, _COLUMNS, slots=_SLOTS),
            adaptive=adaptive.init(nodes, _COLUMNS, slots=_SLOTS),
            accuracy=accuracy.init(nodes, len(PEAK_MODELS), 2, _SLOTS),
            report=report.init(nodes),
            slew=slew.init(nodes),
            rejects=rejects.init(nodes, rejects.params(self._settings.reject)),
            recent=np.full((nodes, _RECENT, 2, 2), np.nan),
            windows=np.zeros(nodes, dtype=np.int64),
            sizes=np.ones((nodes, 2)),
        )

    def dump(self, pods: int) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return names as JSON types, and arrays; `pods` says how many slots pods have."""
        self.extend(pods)
        used = np.arange(len(self._slots))
        arrays = table.flatten(table.take(self._state, used), "node.")
        arrays |= statistic.dump(table.take(self._groups, np.arange(len(used) * group.COUNT)), "groups.")
        arrays |= statistic.dump(table.take(self._pods, np.arange(pods)), "pods.")
        inherited, past = self._warm_start.dump()
        second, taught = self._calibration.dump()
        arrays |= past | {f"lesson.{name}": values for name, values in taught.items()}
        names = {"slots": list(self._slots), "allocatable": self.allocatable.dump(), "half_lives": self._half_lives}
        return names | {"learned_until": second} | inherited, arrays

    def load(self, names: dict[str, Any], arrays: dict[str, NDArray[Any]], pods: int, horizon_seconds: float) -> None:
        """Take over what `dump` returned; `pods` as there. It was learned at this horizon.

        Raises:
            ValueError: Something is missing or cannot be.
        """
        arrays = accuracy.widen(arrays, "node.accuracy.", len(PEAK_MODELS))
        arrays = slew.widen(arrays, "node.slew.", len(names["slots"]))
        arrays = adaptive.widen(arrays, "node.adaptive.", len(names["slots"]), _COLUMNS, _SLOTS)
        self._state = table.restore(self._empty(0), arrays, "node.")
        if any(len(column) != len(names["slots"]) for column in table.flatten(self._state).values()):
            raise ValueError(f"state has not one row for each of {len(names['slots'])} nodes")
        self._groups, self._pods = (statistic.load(arrays, prefix) for prefix in ("groups.", "pods."))
        self._slots = {node: slot for slot, node in enumerate(names["slots"])}
        self.allocatable.load(names["allocatable"])
        self._half_lives = names["half_lives"][0], names["half_lives"][1]
        rows = [len(part.moments.at_us) for part in (self._groups, self._pods)]
        if rows != [len(self._slots) * group.COUNT, pods]:
            raise ValueError(f"state has statistics of {rows} rows, for {len(self._slots)} nodes and {pods} pods")
        self._warm_start.load(names, arrays, pods)
        taught = {name.removeprefix("lesson."): values for name, values in arrays.items()}
        self._calibration.load(names["learned_until"] if "learned_until" in names else 86_400 * names["day"], taught)
        if horizon_seconds != self._params.horizon_seconds:
            self._calibration.lengthen(horizon_seconds, self._params.horizon_seconds)
            # What waits for the old horizon, and what was judged at it, says nothing of the new one.
            self._state.calibrated.waiting.born_us[:] = 0
            scored, adapted = self._empty(len(self._slots)).accuracy, adaptive.unjudged(self._state.adaptive)
            self._state = self._state._replace(accuracy=scored, adaptive=adapted)
