"""NodeMetric objects: what is predicted of each node and how many more pods fit, for whoever reads the API.

One object for each Node, named as it and owned by it, so that it goes with it. Everything is in `status`, which is no
subresource: nobody but this sink has anything to say there, and one request makes an object and fills it. What is too
old is taken out; an object that is not rewritten says what still holds, but for what is less than `diff`.
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
from sinks.kubernetes import change
from sinks.kubernetes.change import Leaves, Rule
from sinks.kubernetes.latest import Said
from sinks.kubernetes.node import Node
from sinks.kubernetes.objects import Objects
from sinks.kubernetes.waits import Waits
from sinks.kubernetes.writer import Write, Writer

VERSION, KIND = "spazio.io/v1alpha1", "NodeMetric"
RESOURCE = f"{VERSION}/nodemetrics"
MEND = "; for spazio's own: kubectl apply -f deploy/kubernetes/crd.yaml"

_TIMES = ("availability.at", "prediction.at")
_AMOUNTS = (".cpu", ".memory")
_MEBI = 1 << 20


class Written(NamedTuple):
    """A NodeMetric as the API server has it: whose it is, and the leaves of its status but for times."""

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
        said: Said,
        settings: Settings,
        clock: Callable[[], float],
    ) -> None:
        """Describe what to keep.

        Args:
            api: Where to write.
            nodes: Which nodes there are.
            metrics: What is written of them.
            said: What is known of them.
            settings: All settings.
            clock: Seconds since the epoch.
        """
        self._api, self._nodes, self._metrics, self._said, self._clock = api, nodes, metrics, said, clock
        self._output, self._expiry_seconds = settings.output, settings.cache.expiry_seconds
        self._waits = Waits()

    async def look(self, writer: Writer) -> bool:
        """Write what is due; False: not yet, since not everything is known that is there.

        Args:
            writer: Carries it out.
        """
        if not self._output.metrics:
            return True
        if not (self._nodes.whole and self._metrics.whole and self._said.current.is_set()):
            return False

        def done(key: str, thing: Mapping[str, Any]) -> None:
            self._metrics.put(thing)
            self._waits.written(key, self._clock())

        await writer.write([write async for write in self._due(self._clock())], done=done, gone=self._metrics.drop)
        return True

    async def _due(self, now: float) -> AsyncIterator[Write]:
        rule = Rule(self._output.diff, self._output.force_seconds)
        async for key, node, waited in self._waits.oldest_first(dict(self._nodes), now):
            status, written = self._status(key, now), self._metrics.get(key)
            if written is None:
                due = bool(status)
            else:
                moved = change.due(written.status, _compared(status), waited, rule, _least)
                due = moved or (written.owner != node.uid and bool(status))
            if due:
                yield Write(key, functools.partial(self._apply, key, node.uid))

    def _status(self, key: str, now: float) -> dict[str, Any]:
        """Return what is to be said of a node; what is too old, or of a wrong clock, is left out."""
        status: dict[str, Any] = {}
        availability, prediction = self._said.availabilities.get(key), self._said.predictions.get(key)
        if availability is not None and abs(now - availability.at_us / 1e6) <= self._expiry_seconds:
            status["availability"] = _available(availability)
        if prediction is not None and abs(now - prediction.at_us / 1e6) <= self._output.stale_seconds:
            status["prediction"] = _predicted(prediction)
        return status

    async def _apply(self, key: str, uid: str) -> dict[str, Any]:
        """Write what is to be said of a node at this moment: thousands of writes take minutes."""
        owner = {"apiVersion": "v1", "kind": "Node", "name": key, "uid": uid}
        thing = {
            "apiVersion": VERSION,
            "kind": KIND,
            "metadata": {"name": key, "ownerReferences": [owner]},
            "status": self._status(key, self._clock()),
        }
        try:
            return await apply.apply(self._api, f"/apis/{RESOURCE}/{key}", thing, force=True)
        except answer.Unserved as trouble:
            trouble.reason += MEND
            raise


def _available(said: Availability) -> dict[str, Any]:
    return {
        "at": _time(said.at_us),
        "available": round(said.available, 2),
        "lower": round(said.lower, 2),
        "upper": round(said.upper, 2),
        "binding": said.binding,
        "mode": said.mode,
        "pods": said.pods,
        "usage": {feature: round(ratio, 3) for feature, ratio in said.usage.items()},
    }


def _predicted(said: Prediction) -> dict[str, Any]:
    lent = said.mid.get(said.formula)
    return {
        "at": _time(said.at_us),
        "horizonSeconds": round(said.horizon_seconds),
        "model": said.model,
        "formula": said.formula,
        "peak": _amounts(said.peak),
        "peaks": {model: _amounts(peak) for model, peak in said.peaks.get("node", {}).items()},
        "reclaimable": _amounts(said.reclaimable),
        **({} if lent is None else {"mid": _amounts(lent)}),
        "batch": _amounts(said.batch),
        "accuracy": {
            model: {
                "violations": round(one.violations, 3),
                "severity": round(one.severity, 3),
                "savings": round(one.savings, 3),
                "settled": round(one.settled, 1),
            }
            for model, one in (said.accuracy or {}).items()
        },
    }


def _amounts(pair: Resources) -> dict[str, str]:
    return {"cpu": f"{round(pair.cpu * 1000)}m", "memory": f"{round(pair.memory / _MEBI)}Mi"}


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _compared(status: Mapping[str, Any]) -> Leaves:
    return {name: leaf for name, leaf in change.leaves(status).items() if name not in _TIMES}


def _least(name: str) -> float:
    """Return what a change is a share of at least: of a pod or of a whole ratio, and of an amount itself."""
    return 0.0 if name.startswith("prediction.") and name.endswith(_AMOUNTS) else 1.0
