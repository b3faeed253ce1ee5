"""Payloads to arrays: each message is checked on its own, numbers of a whole batch at once."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from schemas import codec, metric
from schemas.channel import TELEMETRY_KINDS
from schemas.messages.base import Message
from schemas.messages.estimate import Model
from schemas.messages.prediction import Subspace
from schemas.messages.telemetry import EdgeBlock, SampleBlock
from schemas.subject import kind_and_node

Array = NDArray[np.float64]

COLUMNS: dict[str, int] = {name: index for index, name in enumerate(metric.NAMES)}
# What is read beside samples and the global model, by its kind in the subject.
OTHERS: Mapping[str, type[Message]] = {
    kind: codec.MESSAGES[kind] for kind in TELEMETRY_KINDS if kind not in ("samples", "edge")
}

# Payloads that wait in all memos of a process together; as decoded messages they take about four times as much.
MEMO_BYTES = 64 << 20

_HIGH = np.array([limits.high for limits in metric.METRICS])


class Head(NamedTuple):
    """The fields of a block beside its values; they are those of `SampleBlock`."""

    node: str
    boot: str
    seq: int
    at_us: int
    step_us: int
    cpus: int
    memory_bytes: int
    metrics: tuple[str, ...]
    samples: int


class Form:
    """Blocks of the same metrics and number of samples that are decoded together.

    Numbers are packed as soon as they are read. As Python objects, those of hundreds of blocks would be held at once,
    and then every one of them is a cache miss.

    Attributes:
        metrics: Columns as they are sent.
        samples: Rows of a block.
        table: (blocks, samples, metrics) in the order of the metrics table, NaN = missing; empty until `close`.
    """

    def __init__(self, metrics: tuple[str, ...], samples: int) -> None:
        self.metrics, self.samples = metrics, samples
        self.table: Array = np.zeros((0, self.samples, len(COLUMNS)))
        self._rows: list[bytes] = []

    def add(self, packed: bytes) -> int:
        """Add a block's packed values and return its row in the table."""
        self._rows.append(packed)
        return len(self._rows) - 1

    def close(self) -> dict[int, NDArray[np.bool_]]:
        """Fill the table; return which metrics (metrics,) are out of range, for those rows where any is."""
        values = np.frombuffer(b"".join(self._rows)).reshape(len(self._rows), self.samples, len(self.metrics))
        self._rows.clear()
        if self.metrics == metric.NAMES:
            self.table = values
        else:
            sources, columns = _columns(self.metrics)
            self.table = np.full((*values.shape[:2], len(COLUMNS)), np.nan)
            self.table[..., columns] = values[..., sources]
        wrong = (self.table < 0) | (self.table > _HIGH)
        if not wrong.any():
            return {}
        faults = np.asarray(wrong.any(axis=1))
        rows = np.flatnonzero(np.any(faults, axis=1))
        return dict(zip(rows.tolist(), faults[rows], strict=True))


_Forms = dict[tuple[tuple[str, ...], int], Form]


class Block(NamedTuple):
    """A valid sample block: its fields, where its values are, and its index among the messages decoded."""

    message: Head
    form: Form
    row: int
    message_index: int


class Summary(NamedTuple):
    """A valid block of a node that smooths and models itself; its head has no metrics, and sizes are in `edge`."""

    message: Head
    edge: EdgeBlock
    message_index: int


Item = Block | Summary | Message


class Sample(NamedTuple):
    """A sample block that the schema accepts; whether its values are in range is decided with the batch's others."""

    head: Head
    packed: bytes


class Memo:
    """Messages that a fold has decoded and that a later fold of the same partition will read: each is decoded once.

    A message is forgotten once it or one behind it was taken, since the later fold reads in the same order and has
    passed it. When too many bytes wait, all are forgotten, and nothing is kept until the later fold asks again: another
    process may have it. What is not here is decoded again, so results never depend on it. Both folds run in one
    thread.
    """

    def __init__(self, max_bytes: int = MEMO_BYTES) -> None:
        """Start empty; payloads of at most `max_bytes` together wait to be taken."""
        self._max_bytes, self._bytes, self._wanted = max_bytes, 0, True
        self._messages: OrderedDict[bytes, tuple[str, Sample | Message]] = OrderedDict()

    def take(self, source: str, payload: bytes) -> Sample | Message | None:
        """Return what was decoded of a payload of this subject, once; None: it is not here."""
        self._wanted = True
        waiting = self._messages.get(payload)
        if waiting is None or waiting[0] != source:
            return None
        passed = b""
        while passed != payload:
            passed, _ = self._messages.popitem(last=False)
            self._bytes -= len(passed)
        return waiting[1]

    def put(self, source: str, payload: bytes, decoded: Sample | Message) -> None:
        """Keep a decoded payload until it is taken."""
        if not self._wanted or payload in self._messages:
            return
        self._messages[payload] = source, decoded
        self._bytes += len(payload)
        if self._bytes > self._max_bytes:
            self._messages.clear()
            self._bytes, self._wanted = 0, False


def samples(blocks: Sequence[Block]) -> Array:
    """Return the values of blocks with the same number of samples, (blocks, samples, metrics)."""
    form = blocks[0].form
    if all(block.form is form for block in blocks):
        return form.table[[block.row for block in blocks]]
    return np.stack([block.form.table[block.row] for block in blocks])


def messages(
    stored: Sequence[tuple[str, bytes]],
    model: str,
    subspace: str = "",
    *,
    leave: Memo | None = None,
    take: Memo | None = None,
) -> tuple[list[Item], list[tuple[int, str]]]:
    """Decode what a partition reads.

    Args:
        stored: (stored subject, payload) pairs.
        model: Subject of the global model; empty: it is not read.
        subspace: Subject of the directions of all nodes; empty: they are not read.
        leave: Takes what is decoded, for a later fold.
        take: Has what an earlier fold has decoded.

    Returns:
        The valid messages in order, and index and reason of each that is refused: it is not JSON, not of the schema,
        another node's, or has a number out of its metric's range.
    """
    forms: _Forms = {}
    items: list[Item] = []
    refused: dict[int, str] = {}
    for index, (subject, payload) in enumerate(stored):
        try:
            kind = None if subject == model else kind_and_node(subject)[0]
            if subject == subspace:
                items.append(_subspace(payload))
            elif kind == "samples":
                items.append(_block(_shared(_sample, subject, payload, leave, take), forms, index))
            elif kind == "edge":
                items.append(_summary(_shared(_edge, subject, payload, leave, take), index))
            elif kind is None:
                items.append(_model(payload))
            else:
                items.append(_shared(_other, subject, payload, leave, take))
        except codec.Refused as refusal:
            refused[index] = str(refusal)
    faults = {form: wrong for form in forms.values() if (wrong := form.close())}
    if faults:
        kept = [index for index in range(len(stored)) if index not in refused]
        for index, item in zip(kept, items, strict=True):
            if isinstance(item, Block) and item.row in faults.get(item.form, ()):
                refused[index] = _out_of_range(item.form.table[item.row], faults[item.form][item.row])
        items = [item for index, item in zip(kept, items, strict=True) if index not in refused]
    return items, sorted(refused.items())


Decoded = TypeVar("Decoded", bound=Sample | Message)


def _shared(
    decode: Callable[[str, bytes], Decoded], source: str, payload: bytes, leave: Memo | None, take: Memo | None
) -> Decoded:
    """Take what is decoded already, or decode it, and leave it for a later fold."""
    if take is not None and (decoded := take.take(source, payload)) is not None:
        return cast("Decoded", decoded)
    message = decode(source, payload)
    if leave is not None:
        leave.put(source, payload, message)
    return message


def _sample(source: str, payload: bytes) -> Sample:
    read = codec.decode_from(SampleBlock, payload, source)
    metrics = _one_object(tuple(read.metrics))
    head = Head(
        read.node, read.boot, read.seq, read.at_us, read.step_us, read.cpus, read.memory_bytes, metrics, read.samples
    )
    return Sample(head, read.packed())


@lru_cache(maxsize=256)
def _one_object(metrics: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns, one object for all blocks of them."""
    return metrics


def _block(sample: Sample, forms: _Forms, index: int) -> Block:
    head = sample.head
    key = head.metrics, head.samples
    form = forms.get(key)
    if form is None:
        form = forms[key] = Form(*key)
    return Block(head, form, form.add(sample.packed), index)


def _edge(source: str, payload: bytes) -> EdgeBlock:
    return codec.decode_from(EdgeBlock, payload, source)


def _summary(edge: EdgeBlock, index: int) -> Summary:
    samples = round(1e6 / edge.step_us)
    head = Head(edge.node, edge.boot, edge.seq, edge.at_us or 0, edge.step_us, 0, 0, (), samples)
    return Summary(head, edge, index)


def _subspace(payload: bytes) -> Subspace:
    directions = codec.decode(Subspace, payload)
    if directions.scope != "global":
        raise codec.Refused(f"scope: {directions.scope} is not global")
    return directions


def _model(payload: bytes) -> Model:
    model = codec.decode(Model, payload)
    if model.scope != "global":
        raise codec.Refused(f"scope: {model.scope} is not global")
    return model


def _other(source: str, payload: bytes) -> Message:
    kind = kind_and_node(source)[0]
    if kind not in OTHERS:
        raise codec.Refused(f"{kind} are not folded")
    return codec.decode_from(OTHERS[kind], payload, source)


@lru_cache(maxsize=256)
def _columns(metrics: tuple[str, ...]) -> tuple[list[int], list[int]]:
    pairs = [(source, COLUMNS[name]) for source, name in enumerate(metrics) if name in COLUMNS]
    return [source for source, _ in pairs], [column for _, column in pairs]


def _out_of_range(values: NDArray[np.float64], faults: NDArray[np.bool_]) -> str:
    limits = metric.METRICS[int(np.argmax(faults))]
    column = values[:, COLUMNS[limits.name]]
    worst = column[(column < 0) | (column > limits.high)][0]
    return metric.out_of_range(limits.name, worst)
