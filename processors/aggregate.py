"""The global model: the last sums of each partition, added in partition order."""

from collections.abc import Mapping

from schemas.estimate import Model


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
    )
