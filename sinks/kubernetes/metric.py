"""NodeMetric objects: the prediction and the availability of each node, for clients of the Kubernetes API.

Each Node owns one object of its name, so that both are deleted together. All values are in `status`, which is not a
subresource: only this sink writes it, and one request creates and fills an object. Values that are too old are removed;
the values of an object that is not rewritten are current within `diff`.
"""

import functools
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kube import answer, apply
from kube.api import Api
from schemas.messages.estimate import Availability
from schemas.messages.prediction import Prediction, Resources
from schemas.settings import Settings
from sinks.kubernetes.latest import Latest
from sinks.kubernetes.node import Node, Strategy
from sinks.kubernetes.objects import Objects
from sinks.kubernetes.writing import change
from sinks.kubernetes.writing.change import Leaves, Rule
from sinks.kubernetes.writing.waits import Waits
from sinks.kubernetes.writing.writer import Write, Writer

VERSION, KIND = "spazio.io/v1alpha1", "NodeMetric"
RESOURCE = f"{VERSION}/nodemetrics"
REMEDY = "; for spazio's own: kubectl apply -f deploy/kubernetes/crd.yaml"

_TIMES = ("availability.at", "prediction.at")
_AMOUNTS = (".cpu", ".memory")
_MEBI = 1 << 20


class Written(NamedTuple):
    """A NodeMetric as the API server has it: the uid of its owner, and the leaves of its status without times."""

    owner: str
    status: Leaves


def read(thing: Mapping[str, Any]) -> Written:
    """Reduce a NodeMetric; raises what `Objects` expects."""
    owners = [str(owner["uid"]) for owner in thing["metadata"].get("ownerReferences") or ()]
    return Written(owners[0] if owners else "", _compared(thing.get("status") or {}))


class Metric:
    """Keeps the NodeMetric objects of all nodes."""

    def __init__(
        self,
        api: Api,
        nodes: Objects[Node],
        metrics: Objects[Written],
        latest: Latest,
        settings: Settings,
        clock: Callable[[], float],
    ) -> None:
        """Create the part; it writes nothing before `refresh`.

        Args:
            api: The API server.
            nodes: The nodes.
            metrics: Their NodeMetric objects.
            latest: The newest messages.
            settings: All settings.
            clock: Seconds since the epoch.
        """
        self._api, self._nodes, self._metrics, self._latest, self._clock = api, nodes, metrics, latest, clock
        self._output, self._expiry_seconds = settings.output, settings.cache.expiry_seconds
        self._waits = Waits()

    async def refresh(self, writer: Writer) -> bool:
        """Write due changes; returns False while the state is not loaded completely.

        Args:
            writer: Sends the writes.
        """
        if not self._output.metrics:
            return True
        if not (self._nodes.whole and self._metrics.whole and self._latest.current.is_set()):
            return False

        def done(key: str, thing: Mapping[str, Any]) -> None:
            self._metrics.put(thing)
            self._waits.written(key, self._clock())

        await writer.write([write async for write in self._due(self._clock())], done=done, gone=self._metrics.drop)
        return True

    async def _due(self, now: float) -> AsyncIterator[Write]:
        rule = Rule(self._output.diff, self._output.force_seconds)
        async for key, node, waited in self._waits.oldest_first(dict(self._nodes), now):
            status, written = self._status(key, node, now), self._metrics.get(key)
            if written is None:
                due = bool(status)
            else:
                moved = change.due(written.status, _compared(status), waited, rule, _least)
                due = moved or (written.owner != node.uid and bool(status))
            if due:
                yield Write(key, functools.partial(self._apply, key, node))

    def _status(self, key: str, node: Node, now: float) -> dict[str, Any]:
        """Return a node's status, without values that are too old or from a wrong clock."""
        status: dict[str, Any] = {}
        availability = self._latest.availability(key, node.created_us)
        prediction = self._latest.prediction(key, node.created_us)
        if availability is not None and abs(now - availability.at_us / 1e6) <= self._expiry_seconds:
            status["availability"] = _available(availability)
        if prediction is not None and abs(now - prediction.at_us / 1e6) <= self._output.stale_seconds:
            status["prediction"] = _predicted(prediction, node.strategy)
        return status

    async def _apply(self, key: str, node: Node) -> dict[str, Any]:
        """Write a node's status of this moment, because thousands of writes take minutes.

        An empty one is left out: an apply that takes all fields from an object makes it null, which the API refuses.
        """
        owner = {"apiVersion": "v1", "kind": "Node", "name": key, "uid": node.uid}
        thing: dict[str, Any] = {
            "apiVersion": VERSION,
            "kind": KIND,
            "metadata": {"name": key, "ownerReferences": [owner]},
        }
        if status := self._status(key, node, self._clock()):
            thing["status"] = status
        try:
            return await apply.apply(self._api, f"/apis/{RESOURCE}/{key}", thing, force=True)
        except answer.Unserved as trouble:
            trouble.reason += REMEDY
            raise


def _available(availability: Availability) -> dict[str, Any]:
    return {
        "at": _time(availability.at_us),
        "available": round(availability.available, 2),
        "lower": round(availability.lower, 2),
        "upper": round(availability.upper, 2),
        "binding": availability.binding,
        "mode": availability.mode,
        "pods": availability.pods,
        "usage": {feature: round(ratio, 3) for feature, ratio in availability.usage.items()},
    }


def _predicted(prediction: Prediction, strategy: Strategy) -> dict[str, Any]:
    lent = strategy.lent(prediction)
    prod = prediction.peaks.get("prod", {}).get(prediction.model)
    return {
        "at": _time(prediction.at_us),
        "horizonSeconds": round(prediction.horizon_seconds),
        "model": prediction.model,
        "formula": strategy.formula or prediction.formula,
        "peak": _amounts(prediction.peak),
        **({} if prod is None else {"prodPeak": _amounts(prod)}),
        "peaks": {model: _amounts(peak) for model, peak in prediction.peaks.get("node", {}).items()},
        "reclaimable": _amounts(prediction.reclaimable),
        **({} if lent is None else {"mid": _amounts(lent)}),
        "batch": _amounts(prediction.batch),
        "accuracy": {
            model: {
                "violations": round(scores.violations, 3),
                "severity": round(scores.severity, 3),
                "savings": round(scores.savings, 3),
                "settled": round(scores.settled, 1),
            }
            for model, scores in (prediction.accuracy or {}).items()
        },
    }


def _amounts(pair: Resources) -> dict[str, str]:
    return {"cpu": f"{round(pair.cpu * 1000)}m", "memory": f"{round(pair.memory / _MEBI)}Mi"}


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _compared(status: Mapping[str, Any]) -> Leaves:
    return {name: leaf for name, leaf in change.leaves(status).items() if name not in _TIMES}


def _least(name: str) -> float:
    """Return the least reference of a change: 1 for pods and ratios, 0 for amounts."""
    return 0.0 if name.startswith("prediction.") and name.endswith(_AMOUNTS) else 1.0
