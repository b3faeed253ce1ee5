"""The global model: the last sums of each partition, added in partition order, workload classes by name."""

import json
from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from processors.partition.plan import Watermark
from schemas import codec
from schemas.messages.estimate import MAXIMUM_CLASSES, ClassSum, Model

FORMAT = 1


class Aggregate:
    """Sums of all partitions, folded into the global model once per event second."""

    def __init__(self, partitions: int, *, silent_seconds: float) -> None:
        """Start empty; sums older than `silent_seconds` are left out."""
        self._partitions, self._silent = partitions, silent_seconds
        self.clear()

    def clear(self) -> None:
        """Forget all sums."""
        self._sums: dict[int, Model] = {}
        self._watermark = Watermark()

    def fold(self, subject: str, payload: bytes) -> Model | None:
        """Take over a partition's sums; return the global model if they end an event second.

        Raises:
            codec.Refused: They are not sums of the partition that the subject names; or all sums together, each of
                them valid, exceed what a model can hold.
        """
        model = codec.decode(Model, payload)
        named = subject.rpartition(".")[2]
        if model.scope != "partition" or model.partition is None or str(model.partition) != named:
            raise codec.Refused(f"partition: {model.scope} {model.partition} on the subject of partition {named}")
        if model.partition >= self._partitions:
            raise codec.Refused(f"partition: {named} of {self._partitions}")
        after = self._watermark.seen(model.at_us // 1_000_000)
        ended, self._watermark = self._watermark.second, after
        try:
            if ended and ended != after.second:
                return merge(self._sums, ended, silent_seconds=self._silent)
        except ValidationError as error:
            raise codec.Refused(f"sums of second {ended}: {error}") from error
        finally:
            self._sums[model.partition] = model
        return None

    def snapshot(self) -> bytes:
        """Return the state as bytes."""
        sums = [model.model_dump(mode="json", exclude_none=True) for model in self._sums.values()]
        return json.dumps(
            {"format": FORMAT, "watermark": [self._watermark.second, self._watermark.far], "sums": sums}
        ).encode()

    def restore(self, body: bytes) -> None:
        """Take over a state that `snapshot` made.

        Raises:
            ValueError: The bytes are damaged, or of another format.
        """
        try:
            stored = json.loads(body)
            if stored["format"] != FORMAT:
                raise ValueError(f"state has format {stored['format']}, this version reads {FORMAT}")
            sums = [Model.model_validate(item) for item in stored["sums"]]
            self._watermark = Watermark(*stored["watermark"])
            self._sums = {model.partition: model for model in sums if model.partition is not None}
        except (KeyError, TypeError) as error:
            raise ValueError(f"state is damaged: {error!r}") from error


def merge(sums: Mapping[int, Model], second: int, *, silent_seconds: float) -> Model | None:
    """Add partitions' sums.

    Args:
        sums: Last sums by partition.
        second: Event second that the result is of.
        silent_seconds: Older sums are left out.

    Returns:
        The global model, or None while no partition has a node. Partitions whose features differ from those of
        the last one (settings that are being rolled out) are left out.
    """
    live = [
        model for _, model in sorted(sums.items()) if model.nodes and abs(model.at_us / 1e6 - second) <= silent_seconds
    ]
    if not live:
        return None
    features = live[-1].features
    live = [model for model in live if model.features == features]
    return Model(
        scope="global",
        at_us=second * 1_000_000,
        features=features,
        moment=[sum(column) for column in zip(*(model.moment for model in live), strict=True)],
        cost=[sum(column) for column in zip(*(model.cost for model in live), strict=True)],
        pods=sum(model.pods for model in live),
        nodes=sum(model.nodes for model in live),
        classes=_classes(live),
        repeats=_total([model.repeats for model in live]),
        transitions=_total([model.transitions for model in live]),
    )


def _classes(live: Sequence[Model]) -> dict[str, ClassSum] | None:
    """Add classes' sums; those with most pods are kept, ties by name."""
    by_name: dict[str, list[ClassSum]] = {}
    for model in live:
        for name, item in (model.classes or {}).items():
            by_name.setdefault(name, []).append(item)
    sums = {
        name: ClassSum(
            pods=sum(item.pods for item in items),
            cpu=sum(item.cpu for item in items),
            memory=sum(item.memory for item in items),
            soaking=_total([item.soaking for item in items]),
            running=_total([item.running for item in items]),
            started=_total([item.started for item in items]),
            recent=_total([item.recent for item in items]),
        )
        for name, items in by_name.items()
    }
    most = sorted(sums, key=lambda name: (-sums[name].pods, name))[:MAXIMUM_CLASSES]
    return {name: sums[name] for name in most} or None


def _total(amounts: Sequence[float | None]) -> float | None:
    """Add up the amounts that are there; None if none is."""
    present = [amount for amount in amounts if amount is not None]
    return sum(present) if present else None
