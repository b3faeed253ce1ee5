"""Warm start: what new pods inherit, the past of another pod of their workload, alive or gone.

One living pod of each workload is its donor. When it goes, what was remembered of it is kept, for a bounded number of
workloads, until another pod of the workload is there.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from processors.prediction import statistic
from processors.prediction.pod import Pods
from processors.rows import table


class WarmStart:
    """Donors, by workload, and the pasts of workloads whose donor is gone."""

    def __init__(self, most: int) -> None:
        """Start empty; at most so many pasts are kept."""
        self._most = most
        self._donors: dict[str, int] = {}
        self._past = statistic.init(0)
        self._past_of: dict[str, int] = {}

    def keep(self, pods: statistic.State, new_slots: Mapping[int, int]) -> None:
        """Follow donors to their new slots; what is remembered of those that have none is kept as a past.

        Args:
            pods: What is remembered of pods, by their old slots.
            new_slots: New slots by old ones.
        """
        for workload, slot in list(self._donors.items()):
            if slot in new_slots:
                self._donors[workload] = new_slots[slot]
            else:
                del self._donors[workload]
                self._remember(workload, table.take(pods, np.array([slot])))

    def _remember(self, workload: str, own: statistic.State) -> None:
        if not own.moments.weight.any() or not self._most:
            return
        if (row := self._past_of.pop(workload, None)) is None:
            row = len(self._past_of)
            if row >= self._most:
                row = self._past_of.pop(next(iter(self._past_of)))
            else:
                self._past = table.extend(self._past, statistic.init(1))
        self._past_of[workload] = row
        table.put(self._past, np.array([row]), own)

    def adopt(self, pods: Pods, statistics: statistic.State) -> None:
        """Let pods that have not inherited yet do so, in place."""
        from_past: dict[int, int] = {}
        from_donor: dict[int, int] = {}
        for pod in pods.all():
            if not pod.workload:
                continue
            donor = self._donors.setdefault(pod.workload, pod.slot)
            if pod.settled:
                continue
            pod.settled = True
            if donor != pod.slot:
                from_donor[pod.slot] = donor
            elif (row := self._past_of.get(pod.workload)) is not None:
                from_past[pod.slot] = row
        # A donor inherits from the past only, so that comes first.
        self._inherit(statistics, from_past, self._past)
        self._inherit(statistics, from_donor, statistics)

    @staticmethod
    def _inherit(statistics: statistic.State, sources: Mapping[int, int], source: statistic.State) -> None:
        """Copy rows of `source` to slots, in place; `sources` has the row of each slot."""
        slots, rows = (np.array(list(numbers), dtype=np.intp) for numbers in (sources.keys(), sources.values()))
        # A node whose clock is a little behind the others' has closed a window of it already.
        new = ~(statistics.moments.weight[slots] > 1.0).any(axis=1)
        if new.any():
            table.put(statistics, slots[new], table.take(source, rows[new]))

    def turn(self, old: tuple[float, float], new: tuple[float, float]) -> None:
        """Let pasts fade with other half-lives; see `statistic.turn`."""
        self._past = statistic.turn(self._past, old, new)

    def dump(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return names as JSON types, and arrays."""
        return {"donors": self._donors, "past": self._past_of}, statistic.dump(self._past, "past.")

    def load(self, names: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], pods: int) -> None:
        """Take over what `dump` returned; `pods` says how many slots pods have.

        Raises:
            ValueError: Something is missing, or a workload is remembered in no row.
        """
        self._past = statistic.load(arrays, "past.")
        self._donors, self._past_of = names["donors"], names["past"]
        for places, count in ((self._donors, pods), (self._past_of, len(self._past.moments.at_us))):
            if not set(places.values()) <= set(range(count)):
                raise ValueError(f"state has workloads that are remembered in none of {count} rows")
