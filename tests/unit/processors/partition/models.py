"""Lines of a partition, with local models and without."""

from processors.partition.output import Output
from schemas import codec
from schemas.messages.estimate import ClassSum, Model
from schemas.settings import Settings, load
from tests.support.processors.telemetry import NAMES

VARIANTS = ("default", "carico")


def configured(**flags: str) -> Settings:
    return load(flags, environ={})


def lines(outputs: list[Output]) -> list[tuple[str, bytes]]:
    return [(output.subject, codec.encode(output.message)) for output in outputs]


def with_models(messages: list[tuple[str, bytes]], variant: str) -> list[tuple[str, bytes]]:
    """Put global models between the blocks, as the aggregator does."""
    features = ["cpu", "memory"] if variant == "carico" else list(configured().model.features)
    size = len(features)
    model = Model(
        scope="global",
        at_us=1,
        features=features,
        moment=[0.02 if row == column else 0.005 for row in range(size) for column in range(row, size)],
        cost=[0.4, 3e8, *[0.0] * (size - 2)],
        pods=3,
        nodes=2,
        classes={name: ClassSum(pods=2, cpu=0.5, memory=3e8) for name in ("shop/a", "shop/m", "elsewhere/z")},
    )
    present = model.classes or {}
    later = model.model_copy(update={"classes": {name: item for name, item in present.items() if name != "shop/m"}})
    left, right = ((NAMES.model, codec.encode(item)) for item in (model, later))
    return [*messages[:7], left, *messages[7:90], right, *messages[90:]]
