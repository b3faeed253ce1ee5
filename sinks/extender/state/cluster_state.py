"""The state of the cluster in memory: reports of nodes, facts of the API, and reservations.

If a node reports the pod's class, the room is the reported one. For any other class the pod's requests are a hint, with
a wide tail if it states none, and where the node does not report its free resources, the room is that of a mean pod.
Its cost is an assumption until telemetry has shown a pod of it for some time, on whichever node: reports name only a
few classes. Strategies filter by the lower bound, in the reference variant the mean, and rank by the mean.
A node that falls silent keeps its last capacity for a while: pods that came since count, and pods that ended do not.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kube import spot
from kube.node import FULL
from schemas.messages.estimate import MOSTLY_ASSUMED, Availability
from schemas.messages.facts import NodeFacts
from schemas.messages.prediction import Prediction
from schemas.settings import Settings
from sinks.extender.candidate import Array, Candidates, Mask, Pod
from sinks.extender.state import pod_sums
from sinks.extender.state.class_capacity import ClassCapacities, admitting_first, by_requests, evident
from sinks.extender.state.market import Market
from sinks.extender.state.pods import Pods, Terms
from sinks.extender.state.reservations import ReservationTable
from sinks.extender.state.reserved import Reserved
from sinks.extender.state.rows import Columns, Growth, Rows, Taken
from sinks.extender.state.unconfirmed import Unconfirmed

_LATE_SECONDS = 1.0
# Columns that are NaN for a node without reports, predictions and facts.
_REPORTED = "room", "sure", "assumed", "free:cpu", "free:memory", "saturation", "used", "excess", "left", "running"
_PREDICTED, _DESCRIBED = ("peak:cpu", "peak:memory"), ("cores", "price")
_EMPTY: Mapping[str, str] = {}
UNKNOWN, FRESH, STALE = 0, 1, 2
STATES: tuple[Literal["unknown", "fresh", "stale"], ...] = ("unknown", "fresh", "stale")


class ClusterState:
    """Nodes, pods and reservations.

    Attributes:
        rows: Names and rows of nodes.
        pods: Pods that the API reports.
        reservations: Reservations of pods that are not bound yet.
        market: Past prices and interruptions.
    """

    def __init__(self, settings: Settings) -> None:
        """Create an empty state."""
        own = settings.extender
        self._always_mean = settings.model.variant == "carico"
        self._expiry_us = round(settings.cache.expiry_seconds * 1e6)
        self._stale_us = round(own.stale_seconds * 1e6)
        self._reported_us = round((settings.estimate.report_seconds + _LATE_SECONDS) * 1e6)
        self._predicted_us = round(settings.output.stale_seconds * 1e6)
        self.rows = Rows(
            **dict.fromkeys((*_REPORTED, *_PREDICTED, *_DESCRIBED, "median", "interruptions"), float("nan")),
            **dict.fromkeys(("at", "facts", "created", "spot", "predicted", "then:cpu", "then:memory"), 0.0),
            **dict.fromkeys(("closed", "tainted", "barred"), 0.0),
            **pod_sums.columns(),
        )
        terms = Terms(round(own.settle_seconds * 1e6), own.release == "running")
        self._classes = ClassCapacities(self.rows)
        self.reserved = Reserved(self.rows, self._classes)
        self.pods = Pods(self.rows, self.reserved, Reserved(self.rows, self._classes, "gone:"), terms)
        self.reservations = ReservationTable(
            self.rows, self.pods, Unconfirmed(own), round(own.reservation_seconds * 1e6)
        )
        self.market = Market()
        self._binding: list[str] = []
        self._facts: list[NodeFacts | None] = []
        self._labels: list[Mapping[str, str]] = []
        self._annotations: list[Mapping[str, str]] = []

    def report(self, availability: Availability) -> None:
        """Store a node's report; older reports than the stored one, or than the node, are ignored."""
        row = self._row(availability.node)
        if availability.at_us < max(self.rows["at"][row], self.rows["created"][row]):
            return
        mean = self._always_mean
        self.rows["at"][row], self.rows["room"][row] = availability.at_us, availability.available
        self.rows["sure"][row] = availability.available if mean else availability.lower
        self.rows["assumed"][row], self._binding[row] = availability.prior, availability.binding
        for resource in ("cpu", "memory"):
            share = (availability.free or {}).get(resource, float("nan"))
            self.rows[f"free:{resource}"][row] = share * (availability.limits or {}).get(resource, float("nan"))
        self.rows["saturation"][row] = availability.usage.get("cpu", float("nan"))
        self.rows["running"][row] = availability.pods
        self.rows["used"][row] = float("nan") if availability.cpu_used is None else availability.cpu_used
        self.rows["excess"][row] = float("nan") if availability.excess is None else availability.excess
        # What whole pods that surely fit would take, as a share of the node.
        self.rows["left"][row] = availability.cost * (availability.lower // 1)
        self._classes.put(row, availability.classes or {}, mean=mean)
        self.pods.report(row, availability.at_us)

    def predict(self, prediction: Prediction) -> None:
        """Store a node's predicted peak; older predictions than the stored one, or than the node, are ignored.

        Reservations and unsettled pods come on top. A peak that nothing supports would refuse every pod: it is unknown.
        """
        row = self._row(prediction.node)
        if prediction.at_us < max(self.rows["predicted"][row], self.rows["created"][row]):
            return
        self.rows["predicted"][row] = prediction.at_us
        unseen = [self.pods.bound[uid].requests for uid in self.pods.uncovered.get(row, ())]
        unseen += [held.requests for held in self.reservations.on(row)]
        for resource in ("cpu", "memory"):
            requested = self.rows[f"requested:{resource}"][row] if f"requested:{resource}" in self.rows else 0.0
            newer = sum(requests.get(resource, 0.0) for requests in unseen)
            peak = float("nan") if resource in (prediction.assumed or ()) else getattr(prediction.peak, resource)
            self.rows[f"peak:{resource}"][row] = peak
            self.rows[f"then:{resource}"][row] = requested - newer

    def describe(self, facts: NodeFacts) -> None:
        """Store the API's facts of a node; older facts than the stored ones are ignored.

        What was reported before it was created is of the machine that had its name before.
        """
        row = self._row(facts.node)
        before = self._facts[row]
        if before is not None and before.uid == facts.uid and before.version > facts.version:
            return
        if facts.deleted:
            # Bucket and stream are read beside each other: what ended may be an earlier node of this name.
            if before is None or before.uid == facts.uid:
                self.leave(facts.node)
            return
        self._forget_reports(row, facts.created_us)
        self._facts[row] = facts
        self._labels[row], self._annotations[row] = facts.labels, facts.annotations
        for resource, amount in facts.allocatable.items():
            self.rows.column(f"allocatable:{resource}", 0.0)[row] = amount
        if before is not None:
            for resource in before.allocatable.keys() - facts.allocatable.keys():
                self.rows[f"allocatable:{resource}"][row] = 0.0
        self.rows["facts"][row], self.rows["created"][row] = 1.0, facts.created_us
        self.rows["cores"][row] = facts.capacity.get("cpu", float("nan"))
        self.rows["price"][row] = float("nan") if facts.price is None else facts.price
        self.rows["spot"][row], self.rows["closed"][row] = spot.is_spot(facts.labels), facts.unschedulable
        self.rows["tainted"][row] = float(any(taint.key == FULL for taint in facts.taints))
        self.rows["barred"][row] = not facts.ready or any(taint.effect != "PreferNoSchedule" for taint in facts.taints)
        self._trade(row, facts)

    def leave(self, node: str) -> None:
        """Forget a node's reports and facts; its pods and reservations keep the row."""
        row = self.rows.find(node)
        if row is None:
            return
        self._extend()
        facts = self._facts[row]
        for resource in facts.allocatable if facts is not None else ():
            self.rows[f"allocatable:{resource}"][row] = 0.0
        for name in _DESCRIBED:
            self.rows[name][row] = float("nan")
        self.rows["facts"][row] = 0.0
        self._facts[row], self._labels[row], self._annotations[row] = None, _EMPTY, _EMPTY
        self._forget_reports(row)

    def _forget_reports(self, row: int, before_us: float = float("inf")) -> None:
        """Forget what was reported of a node, and predicted for it, before a time."""
        for at, columns in (("at", _REPORTED), ("predicted", _PREDICTED)):
            if 0 < self.rows[at][row] < before_us:
                self.rows[at][row] = 0.0
                for name in columns:
                    self.rows[name][row] = float("nan")
        if not self.rows["at"][row]:
            self._binding[row] = ""
            self._classes.put(row, {}, mean=False)

    def sweep(self, now_us: int) -> None:
        """Free the rows of nodes without facts, recent reports, pods and reservations."""
        used = {bound.row for bound in self.pods.bound.values()} | {row for _, row, _ in self.reservations.all()}
        for row, name in enumerate(self.rows.names):
            is_used = not name or row in used or self.rows["facts"][row]
            if not is_used and now_us - self.rows["at"][row] > self._stale_us:
                self.leave(name)
                self.pods.gone.clear(row)
                self.rows.remove(name)
                self.pods.reported_us.pop(row, None)
                self.pods.uncovered.pop(row, None)
                self.reservations.leave(row)

    def states(self, rows: NDArray[np.intp], now_us: int) -> NDArray[np.int64]:
        """Return (nodes,) indexes of `STATES`: fresh, stale (silent, but not for long), unknown."""
        age = now_us - self.rows["at"][rows]
        return np.where(age <= self._expiry_us, FRESH, np.where(age <= self._stale_us, STALE, UNKNOWN))

    def nodes(self) -> list[str]:
        """Return the nodes that the API has; without facts, all nodes that report."""
        all_names = [(row, name) for row, name in enumerate(self.rows.names) if name]
        described = [name for row, name in all_names if self.rows["facts"][row]]
        return described or [name for row, name in all_names if self.rows["at"][row]]

    def registered(self, rows: NDArray[np.intp]) -> Mask:
        """Return (nodes,) whether the API has a node, or the node has reported."""
        return np.asarray((self.rows["facts"][rows] > 0) | (self.rows["at"][rows] > 0))

    def counts(self, now_us: int) -> dict[str, int]:
        """Return the number of nodes by state."""
        rows = np.array([row for row, name in enumerate(self.rows.names) if name], np.intp)
        states = self.states(rows, now_us) if len(rows) else np.zeros(0, np.int64)
        return {state: int(np.count_nonzero(states == number)) for number, state in enumerate(STATES)}

    def candidates(self, pod: Pod, names: Sequence[str], rows: NDArray[np.intp], now_us: int) -> Candidates:
        """Return the nodes as a strategy sees them.

        Args:
            pod: The pod to place.
            names: Names of nodes.
            rows: Their rows.
            now_us: The time.
        """
        self._extend()
        take = self.rows
        states = self.states(rows, now_us)
        room, sure, withheld, assumed, running = self._fits(pod, rows, now_us)
        emptied = np.zeros(len(rows))
        for kind, column in self.pods.gone.columns() if (states == STALE).any() else ():
            emptied = emptied + column[rows] * self.reserved.freed(pod.workload, kind, rows, room)
        more = np.where(states == STALE, emptied, np.where(states == FRESH, 0.0, np.nan))
        resources = sorted({"cpu", "memory", "ephemeral-storage", "pods", *pod.requests, *pod.limits})
        both = ("cpu", "memory")
        requested = Columns(take, "requested:", resources, rows)
        then = Columns(take, "then:", both, rows)
        return Candidates(
            names=names,
            room=room + more,
            sure=sure + more,
            withheld=withheld,
            unseen=(assumed > MOSTLY_ASSUMED) & (states != UNKNOWN) & ~np.isnan(room),
            running=np.where(now_us - take["at"][rows] <= self._reported_us, running, 0.0),
            starting=take["starting"][rows],
            reserved=self.reserved.taken(pod.workload, rows, room, requests=not self._always_mean),
            binding=Taken(self._binding, rows),
            allocatable=Columns(take, "allocatable:", resources, rows, take["facts"][rows] > 0),
            requested=requested,
            nonzero=Columns(take, "nonzero:", both, rows),
            pods=take["pods"][rows],
            cores=take["cores"][rows],
            usage_cpu=np.where(states == FRESH, take["used"][rows], np.nan),
            recent_cpu=take["recent"][rows],
            peak=Columns(take, "peak:", both, rows, now_us - take["predicted"][rows] <= self._predicted_us),
            unpredicted=Growth(requested, then),
            labels=Taken(self._labels, rows),
            annotations=Taken(self._annotations, rows),
            price=take["price"][rows],
            median_price=take["median"][rows],
            interruption_rate=take["interruptions"][rows],
            spot=take["spot"][rows] > 0,
        )

    def _fits(self, pod: Pod, rows: NDArray[np.intp], now_us: int) -> tuple[Array, ...]:
        """Return (nodes,) room, lower bound, what that withholds, assumed share of the cost, and pods of the kind."""
        *reported, pods = self._classes.reported(pod.workload, rows).T
        estimated = ~np.isnan(reported[0])
        mean = self.rows["room"][rows]
        others = [mean, mean, np.zeros(len(rows))]
        if not estimated.all() and not self._always_mean:
            others = by_requests(self.rows, pod, rows)
        room, sure, assumed = (np.where(estimated, own, other) for own, other in zip(reported, others, strict=True))
        whole = sure
        if not self._always_mean:
            sure = np.where(estimated, evident(sure, assumed), sure)
        withheld = whole - sure
        sure = admitting_first(room, sure, assumed > MOSTLY_ASSUMED, pods, self.rows["saturation"][rows])
        if not estimated.all() and self._classes.is_measured(pod.workload) and self.pods.is_seen(pod.workload, now_us):
            assumed = np.where(estimated, assumed, 0.0)
        return room, sure, withheld, assumed, np.nan_to_num(pods)

    def trade(self, market: Market) -> None:
        """Store past prices and interruptions."""
        self.market = market
        for row, facts in enumerate(self._facts):
            if facts is not None:
                self._trade(row, facts)

    def _trade(self, row: int, facts: NodeFacts) -> None:
        past = self.market.of(facts.labels, facts.type, facts.zone, facts.annotations)
        self.rows["median"][row], self.rows["interruptions"][row] = past.price, past.rate

    def _row(self, node: str) -> int:
        row = self.rows.row(node)
        self._extend()
        return row

    def _extend(self) -> None:
        """Extend every list to the number of rows."""
        for _ in range(len(self.rows.names) - len(self._binding)):
            self._binding.append("")
            self._facts.append(None)
            self._labels.append(_EMPTY)
            self._annotations.append(_EMPTY)
