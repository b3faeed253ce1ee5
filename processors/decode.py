"""Payloads to arrays: each message is checked on its own, numbers of a whole batch at once."""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas import codec, metric
from schemas.estimate import Model
from schemas.facts import PodFacts
from schemas.message import Message
from schemas.subject import kind_and_node
from schemas.telemetry import ContainerEvent, PodUsageBlock, SampleBlock

COLUMNS: dict[str, int] = {name: index for index, name in enumerate(metric.NAMES)}
# What is read beside samples and the global model, by its kind in the subject.
OTHERS: Mapping[str, type[Message]] = {"containers": ContainerEvent, "pods": PodUsageBlock, "podfacts": PodFacts}

KINDS = ("samples", *OTHERS)

_HIGH = np.array([known.high for known in metric.METRICS])


class Block(NamedTuple):
    """One believed sample block; `values` is (samples, metrics) in the order of the metrics table."""

    message: SampleBlock
    values: NDArray[np.float64]


def messages(stored: Sequence[tuple[str, bytes]], model: str) -> tuple[list[Block | Message], list[tuple[int, str]]]:
    """Decode what a partition reads.

    Args:
        stored: (stored subject, payload) pairs.
        model: Subject of the global model.

    Returns:
        What is believed, in order, and index and reason of what is refused.
    """
    kinds = [None if subject == model else kind_and_node(subject)[0] for subject, _ in stored]
    sampled = iter(blocks(pair for pair, kind in zip(stored, kinds, strict=True) if kind == "samples"))
    items: list[Block | Message] = []
    refused: list[tuple[int, str]] = []
    for index, ((subject, payload), kind) in enumerate(zip(stored, kinds, strict=True)):
        try:
            item = next(sampled) if kind == "samples" else _other(kind, subject, payload)
        except codec.Refused as refusal:
            item = refusal
        if isinstance(item, codec.Refused):
            refused.append((index, str(item)))
        else:
            items.append(item)
    return items, refused


def _other(kind: str | None, subject: str, payload: bytes) -> Message:
    if kind is None:
        model = codec.decode(Model, payload)
        if model.scope != "global":
            raise codec.Refused(f"scope: {model.scope} is not global")
        return model
    if kind not in OTHERS:
        raise codec.Refused(f"{kind} are not folded")
    return codec.decode_from(OTHERS[kind], payload, subject)


def blocks(messages: Iterable[tuple[str, bytes]]) -> list[Block | codec.Refused]:
    """Decode sample blocks.

    Args:
        messages: (subject, payload) pairs.

    Returns:
        In the same order, a block or the reason why there is none: not JSON, not of the schema, another node's, or a
        number out of its metric's range.
    """
    decoded = [_decode(subject, payload) for subject, payload in messages]
    shapes: dict[tuple[tuple[str, ...], int], list[int]] = {}
    for index, item in enumerate(decoded):
        if isinstance(item, SampleBlock):
            shapes.setdefault((tuple(item.metrics), item.samples), []).append(index)
    result: list[Block | codec.Refused] = [
        item if isinstance(item, codec.Refused) else codec.Refused("not decoded") for item in decoded
    ]
    for (metrics, samples), indices in shapes.items():
        rows = [item for index in indices if isinstance(item := decoded[index], SampleBlock)]
        values = np.array([row.values for row in rows], dtype=np.float64).reshape(len(rows), samples, len(metrics))
        sources, columns = _columns(metrics)
        wide = np.full((len(rows), samples, len(COLUMNS)), np.nan)
        wide[..., columns] = values[..., sources]
        wrong = np.any((wide < 0) | (wide > _HIGH), axis=1)
        for index, row, numbers, faults in zip(indices, rows, wide, wrong, strict=True):
            result[index] = _out_of_range(numbers, faults) if faults.any() else Block(row, numbers)
    return result


def _decode(subject: str, payload: bytes) -> SampleBlock | codec.Refused:
    try:
        return codec.decode_from(SampleBlock, payload, subject)
    except codec.Refused as refusal:
        return refusal


@lru_cache(maxsize=256)
def _columns(metrics: tuple[str, ...]) -> tuple[list[int], list[int]]:
    known = [(source, COLUMNS[name]) for source, name in enumerate(metrics) if name in COLUMNS]
    return [source for source, _ in known], [column for _, column in known]


def _out_of_range(values: NDArray[np.float64], faults: NDArray[np.bool_]) -> codec.Refused:
    known = metric.METRICS[int(np.argmax(faults))]
    column = values[:, COLUMNS[known.name]]
    worst = column[(column < 0) | (column > known.high)][0]
    return codec.Refused(f"values: {known.name} is {worst:g}; it is a {known.unit} from 0 to {known.high:g}")
