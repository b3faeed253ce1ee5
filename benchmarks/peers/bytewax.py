"""The fold as a bytewax dataflow of one worker: a source and a sink in memory, and one stateful step between them.

Messages have a key, and recovery is off. State is per node, with one of two folds: `Chained` calls our own decoder,
chain and reporting rule with one node at a time, and so gives the same bytes; `Written` (`written`) is direct code
for one node, which avoids numpy's overhead on short arrays. Both omit, to their advantage, sums for the global model,
clocks, and counts of late and duplicate blocks. Alternatively state is per partition, and the step calls
`Partition.fold`: that shows the value of batching, and the cost of the framework.
"""

from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Protocol

import numpy as np

from processors import decode
from processors.estimation import availability, chain
from processors.estimation.chain import Batch, Params
from processors.estimation.global_model import GlobalModel
from processors.estimation.variant import choose
from processors.partition import report
from schemas import codec
from schemas.messages.estimate import Availability
from schemas.settings import Settings

Messages = Sequence[tuple[str, bytes]]

_NO = np.zeros(1, dtype=np.bool_)
_UNSAID = np.full((1, 3), np.nan)
_FIRST = np.zeros(1, dtype=np.intp)


class Node(Protocol):
    """Fold of one node."""

    def fold(self, subject: str, payload: bytes) -> bytes | None:
        """Fold a block; return the availability as JSON if it is due."""


class Chained:
    """One node by our own functions."""

    def __init__(self, settings: Settings) -> None:
        """Start without any block."""
        self._estimate = settings.estimate
        self._params = Params(settings, choose(settings))
        self._chain, self._report = chain.init(1, self._params), report.init(1)
        self._seq = -1

    def fold(self, subject: str, payload: bytes) -> bytes | None:
        """Fold a block."""
        items, _ = decode.messages([(subject, payload)], "")
        if not items or not isinstance(items[0], decode.Block) or items[0].message.seq <= self._seq:
            return None
        block, head = items[0], items[0].message
        self._seq = head.seq
        at_us = np.array([head.at_us + (head.samples - 1) * head.step_us])
        sizes = np.ones((1, len(self._params.features)))
        sizes[:, self._params.resources] = head.cpus, head.memory_bytes
        batch = Batch(decode.samples([block]), np.array([head.step_us / 1e6]), at_us, sizes, _NO, _UNSAID)
        self._chain, result = chain.update(self._chain, batch, GlobalModel(), params=self._params)
        self._report, due = report.update(self._report, result, at_us, _NO, self._estimate)
        if not due[0]:
            return None
        words = report.ReportFields(
            [head],
            at_us,
            self._report.since_us,
            result.believed,
            availability.free(result.believed, self._estimate),
            self._chain.amount,
            self._chain.running / self._chain.cores,
            None,
            lambda _index, _room: [],
            lambda _rows, _room: [],
        )
        fields = next(report.availabilities(_FIRST, words, result, self._params.features))
        return codec.encode(Availability.model_validate(fields))


class _Keyed:
    """State of one key, with the interface that bytewax requires."""

    def __init__(self, fold: Callable[[Messages], list[bytes]]) -> None:
        self._fold = fold

    def on_batch(self, messages: list[tuple[str, bytes]]) -> tuple[Iterable[bytes], bool]:
        """Fold the messages of the key."""
        return self._fold(messages), False

    def on_notify(self) -> tuple[Iterable[bytes], bool]:
        """Return no rows: nothing depends on the clock."""
        return (), False

    def on_eof(self) -> tuple[Iterable[bytes], bool]:
        """Return no rows: none are pending."""
        return (), False

    def notify_at(self) -> None:
        """Request no notification."""

    def snapshot(self) -> object:
        """Return the state; bytewax calls this only with recovery."""
        return self._fold


def by_node(messages: Messages, make: Callable[[], Node], batch: int) -> list[bytes]:
    """Run messages, (subject, payload), through the dataflow with a node's state per key; return the rows.

    Args:
        messages: In stream order; the subject is the key.
        make: Makes the state of a new node.
        batch: Messages that the source emits at once.
    """

    def fold() -> Callable[[Messages], list[bytes]]:
        node = make()
        return lambda messages: [row for message in messages if (row := node.fold(*message)) is not None]

    return _run(((message[0], message) for message in messages), fold, batch)


def by_partition(messages: Messages, fold: Callable[[Messages], list[bytes]], batch: int) -> list[bytes]:
    """Run messages through the dataflow with one key for all, whose fold takes many of them; return the rows."""
    return _run((("0", message) for message in messages), lambda: fold, batch)


def _run(
    keyed: Iterable[tuple[str, tuple[str, bytes]]], make: Callable[[], Callable[[Messages], list[bytes]]], batch: int
) -> list[bytes]:
    operators, testing = import_module("bytewax.operators"), import_module("bytewax.testing")
    operators.StatefulBatchLogic.register(_Keyed)
    outputs: list[tuple[str, bytes]] = []
    flow = import_module("bytewax.dataflow").Dataflow("fold")
    blocks = operators.input("blocks", flow, testing.TestingSource(keyed, batch))
    rows = operators.stateful_batch("state", blocks, lambda _resumed: _Keyed(make()))
    operators.output("rows", rows, testing.TestingSink(outputs))
    testing.run_main(flow)
    return [row for _, row in outputs]
