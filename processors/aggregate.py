"""The global model: the last sums of each partition, added in partition order, workload classes by name."""

from collections.abc import Mapping, Sequence

from schemas.estimate import MAXIMUM_CLASSES, ClassSum, Model


def merge(sums: Mapping[int, Model], second: int, *, silent_seconds: float) -> Model | None:
    """Add partitions' sums.

    Args:
        sums: Last sums by partition.
        second: Event second that the result is of.
        silent_seconds: Older sums are left out.

    Returns:
        The global model, or None while nobody has anything to say. Partitions whose features differ from those of
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
    )


def _classes(live: Sequence[Model]) -> dict[str, ClassSum] | None:
    """Add classes' sums; those with most pods are kept, ties by name."""
    found: dict[str, list[ClassSum]] = {}
    for model in live:
        for name, item in (model.classes or {}).items():
            found.setdefault(name, []).append(item)
    sums = {
        name: ClassSum(
            pods=sum(item.pods for item in items),
            cpu=sum(item.cpu for item in items),
            memory=sum(item.memory for item in items),
        )
        for name, items in found.items()
    }
    most = sorted(sums, key=lambda name: (-sums[name].pods, name))[:MAXIMUM_CLASSES]
    return {name: sums[name] for name in most} or None
