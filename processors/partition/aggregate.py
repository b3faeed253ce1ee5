"""The last messages of all partitions merged in partition order, once per event second.

The global model is the sum of the partitions' sums, with workload classes by name. The directions of all nodes, for the
federated form of the reject signal, are merged from the directions of each partition.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from processors.estimation.global_model import EVIDENT_PODS, GlobalModel
from processors.estimation.variant import Variant
from processors.model import fair_share, keyed_sum
from processors.partition import plan
from processors.reject import federated
from processors.workload.cluster import attested, totals
from schemas import codec
from schemas.messages.estimate import ClassSum, Model
from schemas.messages.prediction import Subspace

Array = NDArray[np.float64]

FORMAT = 1

Published = TypeVar("Published", Model, Subspace)
Amount = TypeVar("Amount", int, float)


class PartitionMerge(Generic[Published]):
    """The last message of each partition, folded into one message of all partitions once per event second."""

    _message: type[Published]

    def __init__(self, partitions: int, *, silent_seconds: float) -> None:
        """Start empty; messages of partitions that are silent for `silent_seconds` are left out."""
        self._partitions, self._silent = partitions, silent_seconds
        self.clear()

    def clear(self) -> None:
        """Forget all messages."""
        self._sums: dict[int, Published] = {}
        self._heard: dict[int, int] = {}
        self._watermark = plan.Watermark()

    def _merge(self, second: int) -> Published | None:
        """Return the message of all partitions at the end of an event second; None: no partition has a node."""
        raise NotImplementedError

    def fold(self, subject: str, payload: bytes) -> Published | None:
        """Take over a partition's message; return the message of all partitions if it ends an event second.

        Raises:
            codec.Refused: It is not a message of the partition that the subject names; or all messages together, each
                of them valid, exceed what one message can hold.
        """
        message = codec.decode(self._message, payload)
        named = subject.rpartition(".")[2]
        if message.scope != "partition" or message.partition is None or str(message.partition) != named:
            raise codec.Refused(f"partition: {message.scope} {message.partition} on the subject of partition {named}")
        if message.partition >= self._partitions:
            raise codec.Refused(f"partition: {named} of {self._partitions}")
        after = self._watermark.seen(message.at_us // 1_000_000, named)
        ended, self._watermark = self._watermark.second, after
        try:
            if ended and ended != after.second:
                return self._merge(ended)
        except ValidationError as error:
            raise codec.Refused(f"sums of second {ended}: {error}") from error
        finally:
            self._sums[message.partition], self._heard[message.partition] = message, after.second
        return None

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        sums = [model.model_dump(mode="json", exclude_none=True) for model in self._sums.values()]
        heard = list(self._heard.items())
        watermark = astuple(self._watermark)
        return json.dumps({"format": FORMAT, "watermark": watermark, "sums": sums, "heard": heard}).encode()

    def restore(self, body: bytes) -> None:
        """Take over a state that `snapshot` made.

        Raises:
            ValueError: The bytes are damaged, or of another format.
        """
        try:
            stored = json.loads(body)
            if stored["format"] != FORMAT:
                raise ValueError(f"state has format {stored['format']}, this version reads {FORMAT}")
            sums = [self._message.model_validate(item) for item in stored["sums"]]
            self._watermark = plan.Watermark.of(stored["watermark"])
            self._sums = {model.partition: model for model in sums if model.partition is not None}
            self._heard = dict(stored.get("heard", ()))
        except (KeyError, TypeError) as error:
            raise ValueError(f"state is damaged: {error!r}") from error


class Aggregate(PartitionMerge[Model]):
    """The global model."""

    _message = Model

    def _merge(self, second: int) -> Model | None:
        return merge(self._sums, second, silent_seconds=self._silent, heard=self._heard)


class Federation(PartitionMerge[Subspace]):
    """The directions of all nodes."""

    _message = Subspace

    def _merge(self, second: int) -> Subspace | None:
        """Merge level by level in partition order; other metrics than those of the last partition are left out."""
        live = _live(self._sums, second, self._silent, self._heard)
        live = [directions for directions in live if directions.metrics == live[-1].metrics]
        if not live:
            return None
        return Subspace(
            scope="global",
            at_us=second * 1_000_000,
            metrics=live[0].metrics,
            nodes=sum(directions.nodes for directions in live),
            **federated.numbers(federated.together(live)),
        )


def _live(
    sums: Mapping[int, Published], second: int, silent_seconds: float, heard: Mapping[int, int]
) -> list[Published]:
    """Return the messages that have a node and are recent enough, in partition order; see `plan.is_live`."""
    return [
        model
        for number, model in sorted(sums.items())
        if model.nodes and plan.is_live(abs(model.at_us / 1e6 - second), heard.get(number, 0), second, silent_seconds)
    ]


def merge(
    sums: Mapping[int, Model], second: int, *, silent_seconds: float, heard: Mapping[int, int] = MappingProxyType({})
) -> Model | None:
    """Add partitions' sums.

    Args:
        sums: Last sums by partition.
        second: Event second that the result is of.
        silent_seconds: Older sums are left out.
        heard: Event second in which each partition's sums came, if that counts, too.

    Returns:
        The global model, or None while no partition has a node. Partitions whose features or units differ from those
        of the last one (settings that are being rolled out) are left out.
    """
    live = _live(sums, second, silent_seconds, heard)
    if not live:
        return None
    features, ratios = live[-1].features, live[-1].ratios
    live = [model for model in live if (model.features, model.ratios) == (features, ratios)]
    return Model(
        scope="global",
        at_us=second * 1_000_000,
        features=features,
        moment=[sum(column) for column in zip(*(model.moment for model in live), strict=True)],
        cost=_within([sum(column) for column in zip(*(model.cost for model in live), strict=True)], live),
        pods=sum(model.pods for model in live),
        nodes=sum(model.nodes for model in live),
        classes=_classes(live),
        repeats=_total([model.repeats for model in live]),
        transitions=_total([model.transitions for model in live]),
        costed=_total([model.costed for model in live]),
        voting=_total([model.voting for model in live]),
        voted=_total([model.voted for model in live]),
        voiced=_total([model.voiced for model in live]),
        others=_total([model.others for model in live]),
        ratios=ratios,
    )


def _classes(live: Sequence[Model]) -> dict[str, ClassSum] | None:
    """Add classes' sums; those with most pods are kept, ties by name."""
    by_name: dict[str, list[ClassSum]] = {}
    for model in live:
        for name, item in (model.classes or {}).items():
            by_name.setdefault(name, []).append(item)
    sums = {name: _added(items) for name, items in by_name.items()}
    by_pods = sorted(sums, key=lambda name: (-sums[name].pods, name))
    return {name: sums[name] for name in attested.listed(by_pods, lambda name: sums[name].nodes or 0)} or None


def _added(items: Sequence[ClassSum]) -> ClassSum:
    """Add the sums of one class."""
    cpu, memory = _within([sum(item.cpu for item in items), sum(item.memory for item in items)], items)
    return ClassSum(
        pods=sum(item.pods for item in items),
        cpu=cpu,
        memory=memory,
        soaking=_total([item.soaking for item in items]),
        running=_total([item.running for item in items]),
        started=_total([item.started for item in items]),
        recent=_total([item.recent for item in items]),
        nodes=_total([item.nodes for item in items]),
        votes=_total([item.votes for item in items]),
        coming=_total([item.coming for item in items]),
        largest=max((item.largest for item in items if item.largest is not None), default=None),
    )


def _within(sums: list[float], parts: Sequence[ClassSum] | Sequence[Model]) -> list[float]:
    """Return sums of what nodes take, of which the furthest above and below the mean count as far as they may."""
    none = [0.0] * len(sums)
    above, below = (np.max([getattr(part, end) or none for part in parts], axis=0) for end in ("above", "below"))
    within: list[float] = (np.asarray(sums) - above + below).tolist()
    return within


def _total(amounts: Sequence[Amount | None]) -> Amount | None:
    """Add up the amounts that are there; None if none is."""
    present = [amount for amount in amounts if amount is not None]
    return sum(present) if present else None


class Sums(NamedTuple):
    """Sums over nodes in absolute units: `moment` (features, features), `cost` (features,), and by workload class.

    `costed` is the number of nodes with evidence of what a pod takes, and `above` and `below` (features,) say how far
    the furthest of them are beyond the range around the mean.
    """

    moment: Array
    cost: Array
    above: Array
    below: Array
    pods: float
    nodes: int
    costed: int
    classes: totals.Sums | None


def model_of(second: int, partition: int, variant: Variant, sums: Sums) -> Model:
    """Return a partition's sums as a message."""
    return Model(
        scope="partition",
        partition=partition,
        at_us=second * 1_000_000,
        features=list(variant.features),
        moment=keyed_sum.triangle(sums.moment).tolist(),
        cost=sums.cost.tolist(),
        pods=sums.pods,
        nodes=sums.nodes,
        classes=sums.classes and sums.classes.classes,
        repeats=(sums.classes and sums.classes.repeats) or None,
        transitions=(sums.classes and sums.classes.transitions) or None,
        costed=sums.costed or None,
        voting=(sums.classes and sums.classes.voting) or None,
        voted=(sums.classes and sums.classes.voted) or None,
        voiced=(sums.classes and sums.classes.voiced) or None,
        others=(sums.classes and sums.classes.others) or None,
        above=sums.above.tolist() if sums.above.any() else None,
        below=sums.below.tolist() if sums.below.any() else None,
        ratios=None if variant.absolute else True,
    )


def global_model_of(model: Model, variant: Variant) -> GlobalModel:
    """Return the global model as arrays; nothing if it is empty, or of other features or units than ours."""
    if not model.nodes or tuple(model.features) != variant.features or bool(model.ratios) == variant.absolute:
        return GlobalModel()
    moment = keyed_sum.from_triangle(np.asarray(model.moment)) / model.nodes
    voters = model.costed or 0
    return GlobalModel(
        moment,
        np.asarray(model.cost) / model.pods if model.pods >= EVIDENT_PODS else None,
        model.pods / voters if voters >= fair_share.LEAST_VOTERS else math.nan,
        model.nodes,
        voters,
    )
