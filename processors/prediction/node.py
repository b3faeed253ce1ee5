"""What is remembered of all nodes of a partition and of their pods, and what is predicted of some of them.

Statistics are kept of every group of a node and of every pod. What the calibrated model learns from all nodes is used
only from the end of a window of the partition's event time on, so that it does not matter which nodes came together.
A pod of a workload that is known begins with what is remembered of another pod of it, alive or gone.
"""

from collections.abc import Container, Iterator, KeysView, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from processors.decode import Head
from processors.prediction import calibration, peaks, rejects, report, statistic, window
from processors.prediction.calibration import Lesson
from processors.prediction.models import calibrated, sigma
from processors.prediction.peaks import NODE, SYSTEM
from processors.prediction.pod import Pods, Row
from processors.prediction.scoring import accuracy
from processors.prediction.warm_start import Heritage
from processors.prediction.window import Series
from processors.rows import table
from schemas.messages.facts import NodeFacts
from schemas.messages.prediction import GROUPS
from schemas.sections.prediction import PEAK_MODELS, Predict
from schemas.settings import Settings

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_Followed = TypeVar("_Followed", calibrated.State, accuracy.State)

_GROUPS = len(GROUPS)
_SLOTS = 8  # predictions of a node that wait for their horizon
_RECENT = 10  # windows of the mean that Koordinator takes over five minutes
_ACCURACY_HORIZONS = 24.0


class Closed(NamedTuple):
    """A window that is over: usage of the node and of its pods, and whether anybody told which pods there are."""

    node: Series
    told: bool
    series: list[Series]
    pods: list[Row]


class Look(NamedTuple):
    """What is to be looked at of a node: a window that is over, if one is, and its pods."""

    at_us: int
    closed: Closed | None
    pods: list[Row]


class _State(NamedTuple):
    """Of each node.

    Attributes:
        calibrated: Of that model; its resources are those of all groups, one behind the other.
        accuracy: How the predictions have held.
        report: What was told.
        rejects: PRONTO's signal.
        recent: (nodes, windows, parts, resources) mean usage of the newest windows, of the node and outside its pods.
        windows: (nodes,) windows so far.
        sizes: (nodes, resources) what the machine has.
    """

    calibrated: calibrated.State
    accuracy: accuracy.State
    report: report.State
    rejects: rejects.State
    recent: Array
    windows: NDArray[np.int64]
    sizes: Array


class Nodes:
    """State of all nodes and pods of one partition."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._params = calibration.params(settings.predict, _SLOTS)
        self._slots: dict[str, int] = {}
        self._allocatable: dict[str, tuple[int, float, float]] = {}
        self._state = self._empty(0)
        self._groups, self._pods = statistic.init(0), statistic.init(0)
        self._heritage = Heritage(settings.predict.workloads)
        self._half_lives = statistic.half_lives(settings.predict)
        self._lesson = Lesson(2 * _GROUPS, settings.predict.violation)

    @property
    def names(self) -> KeysView[str]:
        """The nodes that are known."""
        return self._slots.keys()

    @property
    def rejects(self) -> rejects.State:
        """PRONTO's signal of each node, by slot."""
        return self._state.rejects

    def group(self, node: str, group: int) -> statistic.State:
        """Return what is remembered of a group of a node, as one row."""
        return table.take(self._groups, self._group(node, group))

    def put_group(self, node: str, group: int, own: statistic.State) -> None:
        """Remember something else of it."""
        table.put(self._groups, self._group(node, group), own)

    def _group(self, node: str, group: int) -> Rows:
        return np.array([self._slots[node] * _GROUPS + group])

    def pod(self, slot: int) -> statistic.State:
        """Return what is remembered of a pod, as one row."""
        self.extend(slot + 1)
        return table.take(self._pods, np.array([slot]))

    def put_pod(self, slot: int, own: statistic.State) -> None:
        """Remember something else of it."""
        self.extend(slot + 1)
        table.put(self._pods, np.array([slot]), own)

    def slot(self, head: Head) -> int:
        """Return the place of a node, and take note of its size."""
        slot = self._slots.get(head.node)
        if slot is None:
            slot = self._slots[head.node] = len(self._slots)
            if slot >= len(self._state.windows):
                more = max(16, slot)
                self._state = table.extend(self._state, self._empty(more))
                self._groups = table.extend(self._groups, statistic.init(more * _GROUPS))
        self._state.sizes[slot] = head.cpus, head.memory_bytes
        return slot

    def learn(self, facts: NodeFacts) -> None:
        """Take in what Kubernetes says of a node; an older version changes nothing."""
        given = facts.allocatable
        if facts.version < self._allocatable.get(facts.node, (0,))[0]:
            return
        if facts.deleted or "cpu" not in given or "memory" not in given:
            self._allocatable.pop(facts.node, None)
        else:
            self._allocatable[facts.node] = facts.version, given["cpu"], given["memory"]

    def extend(self, pods: int) -> None:
        """Make room for so many pods."""
        if (short := pods - len(self._pods.moments.at_us)) > 0:
            self._pods = table.extend(self._pods, statistic.init(max(64, short, pods // 2)))

    def predict(
        self, names: Sequence[str], slots: Rows, looks: Sequence[Look], settings: Predict
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Fold windows that are over, predict, and yield index and fields of what is to be told."""
        self._turn(statistic.half_lives(settings))
        at_us = np.array([look.at_us for look in looks], dtype=np.int64)
        over = [index for index, look in enumerate(looks) if look.closed is not None]
        closed = [closed for look in looks if (closed := look.closed) is not None]
        usage = self._close(slots[over], closed, at_us[over], settings) if over else np.zeros((0, 2))
        state = table.take(self._state, slots)
        capacity = self._capacity(names, state.sizes)
        result = peaks.predict(self._nodes(slots, state, capacity), self._rows(looks, at_us, settings), settings)
        if over:
            self._judge(slots[over], usage, result.peaks[over, NODE], capacity[over], at_us[over], settings)
        told, reason = report.update(
            state.report, report.measures(result, settings), at_us, state.windows > 0, settings
        )
        table.put(self._state.report, slots, told)
        times = calibrated.time_of_day(at_us, len(self._lesson.stated))
        violation = self._lesson.stated[times][:, [2 * NODE, 2 * NODE + 1]].max(axis=1)
        words = report.Words(
            at_us=at_us,
            capacity=capacity,
            violation=violation if settings.model == "calibrated" else np.full(len(slots), np.nan),
            accuracy=accuracy.summary(table.take(self._state.accuracy, slots)),
            windows=state.windows,
        )
        return report.fields(np.flatnonzero(reason >= 0).tolist(), names, result, words, reason, settings)

    def _turn(self, half_lives: tuple[float, float]) -> None:
        """Let all that is remembered fade with these half-lives from here on."""
        if half_lives == self._half_lives:
            return
        self._groups, self._pods = (
            statistic.turn(part, self._half_lives, half_lives) for part in (self._groups, self._pods)
        )
        self._heritage.turn(self._half_lives, half_lives)
        self._half_lives = half_lives

    def _close(self, slots: Rows, closed: Sequence[Closed], at_us: NDArray[np.int64], settings: Predict) -> Array:
        """Take in windows that are over; returns the usage (windows, resources) that each stands for."""
        node = np.repeat(np.arange(len(closed)), [len(one.series) for one in closed])
        series = [one for window in closed for one in window.series]
        pods = [row for window in closed for row in window.pods]
        group = peaks.GROUP_OF_PRIORITY[np.array([row.priority for row in pods], dtype=np.intp)]
        told = np.array([one.told for one in closed])
        by_pod = window.ninetieth(series)
        usage = peaks.grouped(window.ninetieth(one.node for one in closed), by_pod, node, group, told)
        rows = (slots[:, None] * _GROUPS + np.arange(_GROUPS)).ravel()
        statistic.add(self._groups, rows, usage.reshape(-1, 2), np.repeat(at_us, _GROUPS), settings)
        pod_slots = np.array([row.slot for row in pods], dtype=np.intp)
        known = pod_slots >= 0
        statistic.add(self._pods, pod_slots[known], by_pod[known], at_us[node[known]], settings)

        old = table.take(self._state, slots)
        shares = (usage / old.sizes[:, None, :]).reshape(len(slots), -1)
        gap_us = self._params.gap_seconds * 1e6
        recent = at_us - old.calibrated.at_us <= settings.update_seconds * _RECENT * 1e6
        old.recent[~recent] = np.nan
        followed = _set_back(old.calibrated, at_us, gap_us)
        own, self._lesson.today = calibrated.update(followed, self._lesson.today, shares, at_us, params=self._params)
        means = peaks.grouped(window.mean(one.node for one in closed), window.mean(series), node, group, told)
        old.recent[np.arange(len(slots)), old.windows % _RECENT] = means[:, [NODE, SYSTEM]]
        table.put(self._state, slots, old._replace(calibrated=own, windows=old.windows + 1))
        return usage[:, NODE]

    def _judge(
        self, slots: Rows, usage: Array, predicted: Array, limit: Array, at_us: NDArray[np.int64], settings: Predict
    ) -> None:
        """Hold predictions whose horizon is over against what came, and let the new ones wait."""
        horizon = settings.horizon_seconds
        held = accuracy.update(
            _set_back(table.take(self._state.accuracy, slots), at_us, self._params.gap_seconds * 1e6),
            usage,
            predicted,
            limit,
            at_us,
            horizon_seconds=horizon,
            interval_seconds=horizon / _SLOTS,
            half_life_seconds=_ACCURACY_HORIZONS * horizon,
            gap_seconds=self._params.gap_seconds,
        )
        table.put(self._state.accuracy, slots, held)

    def _nodes(self, slots: Rows, state: _State, capacity: Array) -> peaks.Nodes:
        rows = (slots[:, None] * _GROUPS + np.arange(_GROUPS)).ravel()
        statistics = table.take(self._groups, rows)
        shares = calibrated.peak(state.calibrated, self._lesson.multiple, params=self._params)
        own = shares.reshape(len(slots), _GROUPS, 2) * state.sizes[:, None, :]
        seen = (statistics.moments.weight > 0).reshape(own.shape)
        known = ~np.isnan(state.recent)
        count = known.sum(axis=1)
        sums = np.where(known, state.recent, 0.0).sum(axis=1)
        mean = np.divide(sums, count, out=np.full_like(sums, np.nan), where=count > 0)
        return peaks.Nodes(
            statistics=statistics,
            capacity=state.sizes,
            allocatable=capacity,
            usage=mean[:, 0],
            system=mean[:, 1],
            calibrated=np.where(seen, own, np.nan),
        )

    def _capacity(self, names: Sequence[str], sizes: Array) -> Array:
        """Return what Kubernetes gives to pods (nodes, resources), or what the machine has."""
        unknown = (0, np.nan, np.nan)
        given = np.array([self._allocatable.get(name, unknown)[1:] for name in names]).reshape(-1, 2)
        return np.where(np.isnan(given), sizes, given)

    def _rows(self, looks: Sequence[Look], at_us: NDArray[np.int64], settings: Predict) -> peaks.Pods:
        rows = [row for look in looks for row in look.pods]
        node = np.repeat(np.arange(len(looks)), [len(look.pods) for look in looks])
        slots = np.array([row.slot for row in rows], dtype=np.intp)
        usage = np.array([row.usage for row in rows], dtype=np.float64).reshape(-1, 2)
        statistics = table.take(self._pods, slots)
        created = np.array([row.created_us for row in rows], dtype=np.int64)
        young = (at_us[node] - created) / 1e6 <= settings.cold_start_seconds
        # What a pod has inherited counts as its own past; of an old one something must have been seen, too.
        wanted = np.where(
            young, settings.cold_start_seconds, min(settings.cold_start_seconds, settings.evidence_seconds)
        )
        return peaks.Pods(
            node=node,
            priority=np.array([row.priority for row in rows], dtype=np.int8),
            request=np.array([row.request for row in rows], dtype=np.float64).reshape(-1, 2),
            usage=usage,
            exclusive=np.array([row.exclusive for row in rows], dtype=np.bool_),
            ending=np.array([row.ending for row in rows], dtype=np.bool_),
            cold=sigma.span_seconds(statistics.moments) < wanted,
            statistics=statistics,
        )

    def keep(self, gone: set[str], pods: Pods, known: Container[str], oldest: int) -> None:
        """Forget nodes that are gone, and pods that were not heard of since an event second; see `Pods.keep`."""
        self.extend(pods.slots)
        before = pods.slots
        kept = pods.keep(gone, known, oldest)
        if kept != list(range(before)):
            self._heritage.keep(self._pods, {old: new for new, old in enumerate(kept)})
            self._pods = table.take(self._pods, np.array(kept, dtype=np.intp))
        if not gone & self._slots.keys():
            return
        names = [(name, slot) for name, slot in self._slots.items() if name not in gone]
        slots = np.array([slot for _, slot in names], dtype=np.intp)
        self._state = table.take(self._state, slots)
        self._groups = table.take(self._groups, (slots[:, None] * _GROUPS + np.arange(_GROUPS)).ravel())
        self._slots = {name: place for place, (name, _) in enumerate(names)}

    def adopt(self, pods: Pods, second: int, settings: Predict) -> None:
        """Put in force what was learned until an event second, and let new pods of known workloads inherit."""
        self._lesson.enforce(second, settings.violation)
        self.extend(pods.slots)
        self._heritage.adopt(pods, self._pods)

    def _empty(self, nodes: int) -> _State:
        return _State(
            calibrated=calibrated.init(nodes, 2 * _GROUPS, slots=_SLOTS),
            accuracy=accuracy.init(nodes, len(PEAK_MODELS), 2, _SLOTS),
            report=report.init(nodes),
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
        arrays |= statistic.dump(table.take(self._groups, np.arange(len(used) * _GROUPS)), "groups.")
        arrays |= statistic.dump(table.take(self._pods, np.arange(pods)), "pods.")
        inherited, past = self._heritage.dump()
        arrays |= past
        day, taught = self._lesson.dump()
        arrays |= {f"lesson.{name}": values for name, values in taught.items()}
        names = {
            "slots": list(self._slots),
            "allocatable": self._allocatable,
            "half_lives": self._half_lives,
            "day": day,
        }
        return names | inherited, arrays

    def load(self, names: dict[str, Any], arrays: dict[str, NDArray[Any]], pods: int) -> None:
        """Take over what `dump` returned; `pods` as there.

        Raises:
            ValueError: Something is missing or cannot be.
        """
        self._state = table.restore(self._empty(0), arrays, "node.")
        if any(len(column) != len(names["slots"]) for column in table.flatten(self._state).values()):
            raise ValueError(f"state has not one row for each of {len(names['slots'])} nodes")
        self._groups, self._pods = (statistic.load(arrays, prefix) for prefix in ("groups.", "pods."))
        self._slots = {node: slot for slot, node in enumerate(names["slots"])}
        self._allocatable = {node: (*said,) for node, said in names["allocatable"].items()}
        cpu, memory = names["half_lives"]
        self._half_lives = cpu, memory
        rows = [len(part.moments.at_us) for part in (self._groups, self._pods)]
        if rows != [len(self._slots) * _GROUPS, pods]:
            raise ValueError(f"state has statistics of {rows} rows, for {len(self._slots)} nodes and {pods} pods")
        self._heritage.load(names, arrays, pods)
        taught = {name.removeprefix("lesson."): values for name, values in arrays.items()}
        self._lesson.load(names["day"], taught)


def _set_back(state: _Followed, at_us: NDArray[np.int64], gap_us: float) -> _Followed:
    """Return the state as after a gap where the clock (nodes,) was set back; else it would wait for the old time."""
    back = state.at_us - at_us > gap_us
    born_us = np.where(back[:, None], 0, state.waiting.born_us)
    return state._replace(at_us=np.where(back, 0, state.at_us), waiting=state.waiting._replace(born_us=born_us))
