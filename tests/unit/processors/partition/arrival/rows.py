"""Blocks of some nodes, and folds over them."""

from processors.partition.output import Output
from processors.partition.partition import Partition
from schemas.messages.estimate import Availability
from schemas.messages.telemetry import SampleBlock, SmoothedBlock
from schemas.settings import Settings, load
from tests.support.processors.telemetry import START, block, stored


def configured() -> Settings:
    return load({"estimate_report_seconds": "0.5"}, environ={})  # an availability a block


def rows(outputs: list[Output], node: str = "n") -> list[Availability]:
    return [each.message for each in outputs if isinstance(each.message, Availability) and each.message.node == node]


def fold(messages: list[SampleBlock], partition: Partition | None = None) -> list[Output]:
    return (partition or Partition(configured(), 0)).fold([stored(message) for message in messages])[0]


def block_of(node: str, seq: int, at: float, boot: str = "boot") -> SampleBlock:
    """Return a block of a second of the boot clock with another time of the wall clock."""
    return block(node, 0, seq=seq).model_copy(update={"at_us": round((START + at) * 1e6), "boot": boot})


def seconds(outputs: list[Output], node: str = "n") -> list[float]:
    return [
        each.message.at_us / 1e6 - START
        for each in outputs
        if isinstance(each.message, SmoothedBlock) and each.message.node == node
    ]
