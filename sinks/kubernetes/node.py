"""The fields of a Node that the sink needs: its identity, how it lends, its Mid-tier resources, and its marks."""

import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from kube import apply, clock, quantity
from schemas.messages.prediction import FORMULAS, Prediction, Resources
from schemas.sections.output import Output, pairs
from sinks.kubernetes import mark
from sinks.kubernetes.mark import Marks

log = logging.getLogger(__name__)

SIDES = ("capacity", "allocatable")
STRATEGY = "spazio.mid-strategy"
_SHARES = ("cpu", "memory")
_EPOCH = "1970-01-01T00:00:00Z"


class Strategy(NamedTuple):
    """How a node lends, where its annotation differs from the settings.

    Attributes:
        formula: Formula of the Mid tier; empty: that of the settings.
        cpu: Largest share of what Kubernetes may give to its pods that it lends, 0 to 1; None: no such limit.
        memory: The same of its memory.
    """

    formula: str = ""
    cpu: float | None = None
    memory: float | None = None

    def lent(self, prediction: Prediction) -> Resources | None:
        """Return what a node lends by a prediction; None: the prediction lacks the formula."""
        amounts = {str(formula): amount for formula, amount in prediction.mid.items()}
        lent = amounts.get(self.formula or prediction.formula)
        if lent is None:
            return None
        whole = prediction.capacity
        return Resources(
            cpu=_limited(lent.cpu, self.cpu, whole.cpu), memory=_limited(lent.memory, self.memory, whole.memory)
        )


_NOTHING = Strategy("", 0.0, 0.0)


def _limited(amount: float, share: float | None, whole: float) -> float:
    return amount if share is None else min(amount, share * whole)


class Node(NamedTuple):
    """A Node as the API server has it.

    Attributes:
        uid: Its uid.
        amounts: Its Mid-tier resources, as `side.resource`; absent: it has none.
        ours: We have applied some of them.
        lends: It has opted in to lending, and lending is on.
        version: Its resourceVersion.
        marks: Its taint and annotations for autoscalers.
        strategy: How it lends.
        created_us: When it was made, microseconds since the epoch; what is older is about another of its name.
    """

    uid: str
    amounts: dict[str, float]
    ours: bool
    lends: bool
    version: str
    marks: Marks
    strategy: Strategy = Strategy()
    created_us: int = 0


def reader(output: Output) -> Callable[[Mapping[str, Any]], Node]:
    """Return a function that reduces a Node; it raises what `Objects` expects."""
    names, selected = (output.mid_cpu, output.mid_memory), pairs(output.mid_nodes)

    def read(node: Mapping[str, Any]) -> Node:
        status = node.get("status") or {}
        amounts = {
            f"{side}.{name}": float(quantity.parse((status.get(side) or {})[name]))
            for side in SIDES
            for name in names
            if name in (status.get(side) or {})
        }
        metadata = node["metadata"]
        labels, notes = (metadata.get(kind) or {} for kind in ("labels", "annotations"))
        lends = output.mid and all(any(each.get(key) == value for each in (labels, notes)) for key, value in selected)
        return Node(
            uid=str(metadata["uid"]),
            amounts=amounts,
            ours=apply.owns(node, "status", "status"),
            lends=lends,
            version=str(metadata["resourceVersion"]),
            marks=mark.read(node),
            strategy=_strategy(str(metadata["name"]), str(notes.get(STRATEGY) or "")),
            created_us=clock.microseconds(metadata.get("creationTimestamp") or _EPOCH),
        )

    return read


@lru_cache(maxsize=4096)  # what cannot be read is logged once, and not with every change of its node
def _strategy(node: str, text: str) -> Strategy:
    """Return the strategy that an annotation states; a node whose annotation cannot be read lends nothing."""
    try:
        return strategy(text)
    except ValueError as error:
        log.warning("node.strategy_unreadable", extra={"node": node, "annotation": text[:100], "reason": str(error)})
        return _NOTHING


def strategy(text: str) -> Strategy:
    """Return the strategy that a text states.

    >>> strategy("formula=mixed, cpu=0.5")
    Strategy(formula='mixed', cpu=0.5, memory=None)

    Raises:
        ValueError: It is none.
    """
    given = dict(pairs(text))
    if unknown := given.keys() - set(Strategy._fields):
        raise ValueError(f"{STRATEGY} has no {', '.join(sorted(unknown))}; it has formula, cpu and memory")
    formula = given.get("formula", "")
    if formula and formula not in FORMULAS:
        raise ValueError(f"{STRATEGY}: formula is one of {', '.join(FORMULAS)}")
    shares = {name: float(given[name]) for name in _SHARES if name in given}
    if not all(0 <= share <= 1 for share in shares.values()):
        raise ValueError(f"{STRATEGY}: cpu and memory are shares from 0 to 1")
    return Strategy(formula, **shares)
