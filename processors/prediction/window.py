"""One sample of half a minute: the 90th percentile of the usage of its seconds, which are kept until it is over.

A histogram fed with every second would count a burst of seconds like hours of calm. So, as Koordinator does, the
seconds of a window are sorted, and the one at place `max(int(0.9 n) - 1, 0)` stands for it.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from processors import decode
from processors.decode import Block
from processors.prediction.pod import Pod, Repeat
from processors.rows.roster import Run
from schemas.messages.telemetry import PodUsageBlock

Array = NDArray[np.float64]

_SHARE = 0.9
_USAGE = [decode.COLUMNS["cpu_util"], decode.COLUMNS["memory_util"]]


class Series(NamedTuple):
    """Usage second by second; a second of which one of both is not known is in the other alone."""

    cpu: "array[float]"
    memory: "array[float]"

    @classmethod
    def empty(cls) -> "Series":
        """Return a series without seconds."""
        return cls(array("d"), array("d"))

    def add(self, cpu: float | None, memory: float | None) -> None:
        """Take in a second."""
        if cpu is not None:
            self.cpu.append(cpu)
        if memory is not None:
            self.memory.append(memory)


class Window:
    """What is known of one node's window so far.

    Attributes:
        number: Which window of event time it is; none before the first block.
        node: Usage of the whole node.
        reports: Blocks of pod usage in it; without any, the node's pods are not known.
    """

    __slots__ = ("_pods", "_priorities", "_run", "_running", "node", "number", "reports")

    def __init__(self, number: int) -> None:
        self.number = number
        self.node = Series.empty()
        self._pods: dict[str, Series] = {}
        self._priorities: dict[str, int] = {}
        self._run: Run | None = None
        self._running: list[tuple[str, int]] = []
        self.reports = 0

    @property
    def pods(self) -> dict[str, Series]:
        """Usage of each pod, by UID."""
        self._settle()
        return self._pods

    @property
    def priorities(self) -> dict[str, int]:
        """Class of each pod, as `priority.Priority`; one may be gone when the window is over."""
        self._settle()
        return self._priorities

    def add_pod(self, pod: str, priority: int, cpu: float | None, memory: float | None) -> None:
        """Take in a second of a pod."""
        self._settle()
        self._priorities[pod] = priority
        self._series(pod).add(cpu, memory)

    def resume(self, reports: int, priorities: dict[str, int], pods: dict[str, Series]) -> None:
        """Go on with what a window had."""
        self.reports, self._priorities, self._pods = reports, priorities, pods

    def take(
        self, block: PodUsageBlock, repeat: Repeat | None, used: Iterable[tuple[Pod, float | None, float | None]]
    ) -> None:
        """Take in a second of the node's pods: of the same ones as in the second before, or what each has used."""
        self.reports += 1
        if repeat is not None:
            self._repeat(block, repeat)
        for pod, cpu, memory in used:
            self.add_pod(pod.uid, pod.priority, cpu, memory)

    def _repeat(self, block: PodUsageBlock, repeat: Repeat) -> None:
        if self._run is None or self._run.roster is not repeat.roster:
            self._settle()
            self._run, self._running = Run(repeat.roster, block), [(pod.uid, pod.priority) for pod in repeat.pods]
        else:
            self._run.add(block)

    def _series(self, pod: str) -> Series:
        series = self._pods.get(pod)
        if series is None:
            series = self._pods[pod] = Series.empty()
        return series

    def _settle(self) -> None:
        """Hand the seconds of the run over to its pods."""
        run, self._run = self._run, None
        if run is None:
            return
        cpu, memory = (np.ascontiguousarray(values.T) for values in (run.cpu, run.memory))
        for row, (pod, priority) in enumerate(self._running):
            self._priorities[pod] = priority
            series = self._series(pod)
            series.cpu.frombytes(cpu[row].tobytes())
            series.memory.frombytes(memory[row].tobytes())


def usage_of(blocks: Sequence[Block]) -> Iterator[tuple[float | None, float | None]]:
    """Yield the mean share of CPU and of memory of each block; None: not known."""
    by_form: dict[int, list[int]] = {}
    for index, block in enumerate(blocks):
        by_form.setdefault(id(block.form), []).append(index)
    means_of: list[tuple[float | None, float | None]] = [(None, None)] * len(blocks)
    for indices in by_form.values():
        values = decode.samples([blocks[index] for index in indices])[:, :, _USAGE]
        is_known = ~np.isnan(values)
        counts = is_known.sum(axis=1)
        sums = np.where(is_known, values, 0.0).sum(axis=1)
        means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
        for index, (cpu, memory) in zip(indices, means.tolist(), strict=True):
            means_of[index] = None if cpu != cpu else cpu, None if memory != memory else memory  # noqa: PLR0124 # NaN
    return iter(means_of)


def ninetieth(series: Iterable[Series]) -> Array:
    """Return the 90th percentiles (series, resources); NaN where there is no second."""
    listed = list(series)
    return np.stack(
        [_ninetieth([usage.cpu for usage in listed]), _ninetieth([usage.memory for usage in listed])], axis=1
    )


def mean(series: Iterable[Series]) -> Array:
    """Return the means (series, resources); NaN where there is no second."""
    nothing = np.full((0, 2), np.nan)
    rows = [[_mean(usage.cpu), _mean(usage.memory)] for usage in series]
    return np.array(rows) if rows else nothing


def _ninetieth(lists: "list[array[float]]") -> Array:
    counts = np.array([len(values) for values in lists], dtype=np.intp)
    values = np.concatenate([np.frombuffer(values) for values in lists]) if counts.sum() else np.zeros(0)
    ordered = values[np.lexsort((values, np.repeat(np.arange(len(lists)), counts)))]
    places = np.cumsum(counts) - counts + np.maximum((counts * _SHARE).astype(np.intp) - 1, 0)
    percentiles = np.full(len(lists), np.nan)
    percentiles[counts > 0] = ordered[places[counts > 0]]
    return percentiles


def _mean(values: "array[float]") -> float:
    return sum(values) / len(values) if values else float("nan")


def dump(windows: Mapping[str, Window]) -> tuple[list[Any], dict[str, NDArray[Any]]]:
    """Return names and numbers as JSON types, and seconds one behind the other as arrays."""
    names: list[Any] = []
    lists: list[array[float]] = []
    for node, window in windows.items():
        names.append([node, window.number, window.reports, list(window.pods), window.priorities])
        for usage in (window.node, *window.pods.values()):
            lists += usage
    counts = np.array([len(values) for values in lists], dtype=np.int32)
    values = np.frombuffer(b"".join(values.tobytes() for values in lists))
    return names, {"window.counts": counts, "window.values": values}


def load(names: list[Any], arrays: Mapping[str, NDArray[Any]]) -> dict[str, Window]:
    """Take over what `dump` returned.

    Raises:
        ValueError: Seconds do not fit the names.
    """
    pieces = _pieces(arrays["window.counts"], arrays["window.values"])
    windows: dict[str, Window] = {}
    try:
        for node, number, reports, pods, priorities in names:
            window = windows[node] = Window(number)
            if priorities.keys() != set(pods):
                raise ValueError("state has other classes than pods")
            window.node = Series(next(pieces), next(pieces))
            series = {pod: Series(next(pieces), next(pieces)) for pod in pods}
            window.resume(reports, dict(priorities), series)
    except StopIteration:
        raise ValueError("state has fewer series than windows") from None
    if next(pieces, None) is not None:
        raise ValueError("state has more series than windows")
    return windows


def _pieces(counts: NDArray[Any], values: NDArray[Any]) -> "Iterator[array[float]]":
    if counts.dtype != np.int32 or values.dtype != np.float64:
        raise ValueError(f"state has {counts.dtype} counts of {values.dtype} seconds")
    ends = np.cumsum(counts)
    if len(values) != (ends[-1] if len(ends) else 0):
        raise ValueError(f"state has {len(values)} seconds, and series of another length")
    for begin, end in zip((ends - counts).tolist(), ends.tolist(), strict=True):
        piece = array("d")
        piece.frombytes(values[begin:end].tobytes())
        yield piece
