"""Everything the extender knows, in memory: what nodes report, what the API says, what is held.

A question takes rows out of columns; it asks nobody. How many pods of a kind fit is the node's room for the pod's
class where the node knows the class. Of another class nobody has seen a pod: its requests are a hint, with a wide tail
where it states none, and it fits at most as often as a mean pod does where the node does not say what is free. Nodes
are asked for the lower bound and ranked by the mean. The reference variant has no bound, and takes the mean for both.

A node that has fallen silent keeps its last capacity for a while: the pods that came since are still reserved, and
those that went leave room.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from schemas.messages.estimate import Availability
from schemas.messages.facts import NodeFacts
from schemas.messages.prediction import Prediction
from schemas.settings import Settings
from sinks.extender.candidate import Array, Candidates, Pod
from sinks.extender.state import market as markets
from sinks.extender.state import pods as pod_sums
from sinks.extender.state.class_capacity import ClassRooms, Told
from sinks.extender.state.market import Market
from sinks.extender.state.pods import Pods, Terms
from sinks.extender.state.reservations import Book
from sinks.extender.state.reserved import Reserved
from sinks.extender.state.rows import Columns, Growth, Rows, Taken

_CONVERSION = 100.0
# Columns that are NaN where a node has told nothing.
_TOLD = ("room", "sure", "assumed", "free:cpu", "free:memory", "usage", "cores", "price", "peak:cpu", "peak:memory")
_ASSUMED = 0.5  # share of a cost: nobody has seen a pod of the kind
_TAIL, _WIDE_TAIL = (
    1.64,
    3.6,
)  # what a pod may take, in requests that it states, and in stand-ins: one in ten takes more
_LEAST = 1e-9
_EMPTY: Mapping[str, str] = {}
UNKNOWN, FRESH, STALE = 0, 1, 2
STATES: tuple[Literal["unknown", "fresh", "stale"], ...] = ("unknown", "fresh", "stale")


class Board:
    """Nodes, pods and places.

    Attributes:
        rows: Names and numbers of nodes.
        pods: What the API says of pods.
        book: What is held.
    """

    def __init__(self, settings: Settings) -> None:
        """Know nothing."""
        own = settings.extender
        self._always_mean = settings.model.variant == "carico"
        self._expiry_us = round(settings.cache.expiry_seconds * 1e6)
        self._stale_us = round(own.stale_seconds * 1e6)
        self._predicted_us = round(settings.output.stale_seconds * 1e6)
        nothing = float("nan")
        self.rows = Rows(
            **dict.fromkeys(
                _TOLD,
                nothing,
            ),
            **dict.fromkeys(("median", "interruptions"), nothing),
            **dict.fromkeys(("at", "facts", "spot", "predicted", "then:cpu", "then:memory"), 0.0),
            **pod_sums.columns(),
        )
        terms = Terms(round(own.settle_seconds * 1e6), own.release == "running")
        self._classes = ClassRooms(self.rows)
        self.reserved = Reserved(self.rows, self._classes)
        self.pods = Pods(self.rows, self.reserved, Reserved(self.rows, self._classes, "gone:"), terms)
        self.book = Book(self.rows, self.pods)
        self._market = Market()
        self._binding: list[str] = []
        self._facts: list[NodeFacts | None] = []
        self._labels: list[Mapping[str, str]] = []
        self._annotations: list[Mapping[str, str]] = []

    def report(self, availability: Availability) -> None:
        """Take what a node reports; a report that is older than the one known is ignored."""
        row = self._row(availability.node)
        if availability.at_us < self.rows["at"][row]:
            return
        mean = self._always_mean
        self.rows["at"][row] = availability.at_us
        self.rows["room"][row] = availability.available
        self.rows["sure"][row] = availability.available if mean else availability.lower
        self.rows["assumed"][row] = availability.prior
        for resource in ("cpu", "memory"):
            share = (availability.free or {}).get(resource, float("nan"))
            self.rows[f"free:{resource}"][row] = share * (availability.limits or {}).get(resource, float("nan"))
        self.rows["usage"][row] = availability.usage.get("cpu", float("nan"))
        self._binding[row] = availability.binding
        said = (availability.classes or {}).items()
        self._classes.put(
            row,
            {
                name: Told(each.available, each.available if mean else each.lower, each.prior or 0.0)
                for name, each in said
            },
        )
        self.pods.report(row, availability.at_us)

    def predict(self, prediction: Prediction) -> None:
        """Take the peak that is expected of a node; one that is older than the one known is ignored.

        It knows of the pods that telemetry shows: those that are held a place or have not settled come on top of it.
        """
        row = self._row(prediction.node)
        if prediction.at_us < self.rows["predicted"][row]:
            return
        self.rows["predicted"][row] = prediction.at_us
        unseen = [self.pods.known[uid].requests for uid in self.pods.uncovered.get(row, ())]
        unseen += [held.requests for held in self.book.on(row)]
        for resource in ("cpu", "memory"):
            requested = self.rows[f"requested:{resource}"][row] if f"requested:{resource}" in self.rows else 0.0
            newer = sum(requests.get(resource, 0.0) for requests in unseen)
            self.rows[f"peak:{resource}"][row] = getattr(prediction.peak, resource)
            self.rows[f"then:{resource}"][row] = requested - newer

    def describe(self, facts: NodeFacts) -> None:
        """Take what the API says of a node; older facts than those known are ignored."""
        row = self._row(facts.node)
        before = self._facts[row]
        if before is not None and before.uid == facts.uid and before.version > facts.version:
            return
        if facts.deleted:
            self.leave(facts.node)
            return
        self._facts[row] = facts
        self._labels[row], self._annotations[row] = facts.labels, facts.annotations
        for resource, amount in facts.allocatable.items():
            self.rows.column(f"allocatable:{resource}", 0.0)[row] = amount
        if before is not None:
            for resource in before.allocatable.keys() - facts.allocatable.keys():
                self.rows[f"allocatable:{resource}"][row] = 0.0
        self.rows["facts"][row] = 1.0
        self.rows["cores"][row] = facts.capacity.get("cpu", float("nan"))
        self.rows["price"][row] = float("nan") if facts.price is None else facts.price
        self.rows["spot"][row] = float(markets.spot(facts.labels))
        self._trade(row, facts)

    def leave(self, node: str) -> None:
        """Forget what a node reported and what it was; pods and places that are still there keep its row."""
        row = self.rows.find(node)
        if row is None:
            return
        self._extend()
        for name in _TOLD:
            self.rows[name][row] = float("nan")
        self.rows["at"][row] = self.rows["facts"][row] = self.rows["predicted"][row] = 0.0
        self._facts[row], self._labels[row], self._annotations[row] = None, _EMPTY, _EMPTY
        self._binding[row] = ""
        self._classes.put(row, {})

    def sweep(self, now_us: int) -> None:
        """Give away the rows of nodes that nobody knows: not the API, no report of late, no pod and no place."""
        used = {known.row for known in self.pods.known.values()} | {row for _, row, _ in self.book.all()}
        for row, name in enumerate(self.rows.names):
            if (
                name
                and row not in used
                and not self.rows["facts"][row]
                and now_us - self.rows["at"][row] > self._stale_us
            ):
                self.leave(name)
                self.rows.remove(name)
                self.pods.gone.clear(row)
                self.pods.reported_us.pop(row, None)
                self.pods.uncovered.pop(row, None)
                self.book.leave(row)

    def states(self, rows: NDArray[np.intp], now_us: int) -> NDArray[np.int64]:
        """Return (nodes,) places in `STATES`: fresh, stale (silent, but not for long), unknown."""
        age = now_us - self.rows["at"][rows]
        return np.where(age <= self._expiry_us, FRESH, np.where(age <= self._stale_us, STALE, UNKNOWN))

    def nodes(self) -> list[str]:
        """Return the nodes that the API has; where it has said nothing, all that report."""
        all_names = [(row, name) for row, name in enumerate(self.rows.names) if name]
        described = [name for row, name in all_names if self.rows["facts"][row]]
        return described or [name for row, name in all_names if self.rows["at"][row]]

    def knows(self, node: str) -> bool:
        """Tell whether the API has a node, or telemetry of it has come."""
        row = self.rows.find(node)
        return row is not None and bool(self.rows["facts"][row] or self.rows["at"][row])

    def counts(self, now_us: int) -> dict[str, int]:
        """Return the number of nodes by state."""
        rows = np.array([row for row, name in enumerate(self.rows.names) if name], np.intp)
        found = self.states(rows, now_us) if len(rows) else np.zeros(0, np.int64)
        return {state: int(np.count_nonzero(found == number)) for number, state in enumerate(STATES)}

    def candidates(self, pod: Pod, names: Sequence[str], rows: NDArray[np.intp], now_us: int) -> Candidates:
        """Return the nodes as a strategy sees them.

        Args:
            pod: The pod that asks.
            names: Nodes.
            rows: Their rows.
            now_us: The time.
        """
        self._extend()
        take = self.rows
        states = self.states(rows, now_us)
        room, sure, assumed = self._fits(pod, rows)
        emptied = np.zeros(len(rows))
        for kind, column in self.pods.gone.columns() if (states == STALE).any() else ():
            emptied = emptied + column[rows] * self.freed(pod.workload, kind, rows)
        more = np.where(states == STALE, emptied, np.where(states == FRESH, 0.0, np.nan))
        resources = sorted({"cpu", "memory", "ephemeral-storage", "pods", *pod.requests})
        both = ("cpu", "memory")
        requested = Columns(take, "requested:", resources, rows)
        then = Columns(take, "then:", both, rows)
        return Candidates(
            names=names,
            room=room + more,
            sure=sure + more,
            unseen=(assumed > _ASSUMED) & (states != UNKNOWN) & ~np.isnan(room),
            reserved=self._reserved(pod.workload, rows),
            binding=Taken(self._binding, rows),
            allocatable=Columns(take, "allocatable:", resources, rows, take["facts"][rows] > 0),
            requested=requested,
            nonzero=Columns(take, "nonzero:", both, rows),
            pods=take["pods"][rows],
            cores=take["cores"][rows],
            usage_cpu=np.where(states == FRESH, take["usage"][rows], np.nan),
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

    def _fits(self, pod: Pod, rows: NDArray[np.intp]) -> tuple[Array, Array, Array]:
        """Return (nodes,) pods of this pod's kind that fit, that surely do, and what share of their cost is assumed."""
        told = self._classes.told(pod.workload, rows)
        known = ~np.isnan(told[:, 0])
        if known.all() or self._always_mean:
            mean = self.rows["room"][rows]
            room, sure = (np.where(known, column, mean) for column in told.T[:2])
            return room, sure, np.where(known, told[:, 2], 0.0)
        # Of a pod that states nothing the stand-ins are assumed, and it may take several times as much.
        stated = bool(pod.requests.get("cpu") and pod.requests.get("memory"))
        by_request = np.full(len(rows), np.inf)
        for resource, amount in pod.nonzero.items():
            free = self.rows[f"free:{resource}"][rows]
            by_request = np.minimum(by_request, np.where(np.isnan(free), np.inf, free / max(amount, _LEAST)))
        unlimited = ~np.isfinite(by_request)
        by_request = np.where(unlimited, self.rows["room"][rows], by_request)
        surely = np.floor(by_request / (_TAIL if stated else _WIDE_TAIL))
        surely = np.where(unlimited, self.rows["sure"][rows], surely)
        nobody = np.where(unlimited, self.rows["assumed"][rows], 1.0)
        return (
            np.where(known, told[:, 0], by_request),
            np.where(known, told[:, 1], surely),
            np.where(known, told[:, 2], nobody),
        )

    def trade(self, market: Market) -> None:
        """Take what prices and interruptions were in the past."""
        self._market = market
        for row, facts in enumerate(self._facts):
            if facts is not None:
                self._trade(row, facts)

    def _trade(self, row: int, facts: NodeFacts) -> None:
        past = self._market.of(facts.labels, facts.type, facts.zone, facts.annotations)
        self.rows["median"][row], self.rows["interruptions"][row] = past.price, past.rate

    def _row(self, node: str) -> int:
        row = self.rows.row(node)
        self._extend()
        return row

    def _extend(self) -> None:
        """Have an entry in every list for every row."""
        for _ in range(len(self.rows.names) - len(self._binding)):
            self._binding.append("")
            self._facts.append(None)
            self._labels.append(_EMPTY)
            self._annotations.append(_EMPTY)

    def freed(self, workload: str, kind: str, rows: NDArray[np.intp]) -> Array:
        """Return (nodes,) for how many pods of a class there is room where one of another kind has gone.

        At most one: how pods of different kinds compare is measured by what is left, which is little on a full node.
        """
        return np.minimum(self._worth(workload, kind, rows), 1.0)

    def _worth(self, workload: str, kind: str, rows: NDArray[np.intp]) -> Array:
        """Return (nodes,) pods of a class that take as much as one pod of a kind."""
        if kind == workload:
            return np.ones(len(rows))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self._classes.of(workload, rows) / self._classes.of(kind, rows)
        return np.clip(np.where(np.isnan(ratio), 1.0, ratio), 1 / _CONVERSION, _CONVERSION)

    def _reserved(self, workload: str, rows: NDArray[np.intp]) -> Array:
        """Return (nodes,) places that are taken, each as the part of a pod of this class that it displaces."""
        total = np.zeros(len(rows))
        for kind, column in self.reserved.columns():
            taken = column[rows]
            total += taken if kind == workload else taken * self._worth(workload, kind, rows)
        return total
